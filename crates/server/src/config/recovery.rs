//! `[recovery]`: where a node that has lost its identity turns to, where that is not where everybody goes.

use super::{Mistake, mistake, take};
use lifecycle::names::Label;
use serde::{Deserialize, Serialize};
use std::path::Path;

const DEFAULT_ID: &str = "default";
/// A bundle goes to every host.
const CA_BYTES: u64 = 64 * 1024;

/// As written.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawRecovery {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<String>,
}

/// What hosts are told. Without a URL it is the first that is advertised, without a CA what they trust anyway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    pub id: Label,
    pub url: Option<String>,
    /// PEM.
    pub ca: Option<String>,
}

impl RawRecovery {
    pub(super) fn is_empty(&self) -> bool {
        self.id.is_none() && self.url.is_none() && self.ca_file.is_none()
    }
}

pub(super) fn parse(table: toml::Table, raw: &mut RawRecovery, mistakes: &mut Vec<Mistake>) {
    for (key, value) in table {
        let shown = value.to_string();
        let taken = match key.as_str() {
            "id" => take(value, &mut raw.id),
            "url" => take(value, &mut raw.url),
            "ca_file" => take(value, &mut raw.ca_file),
            _ => Err("id, url and ca_file"),
        };
        if let Err(expected) = taken {
            mistakes.push(mistake(&format!("recovery.{key}"), &shown, expected));
        }
    }
}

pub(super) fn check(raw: &RawRecovery, mistakes: &mut Vec<Mistake>) -> Option<Recovery> {
    let id = raw.id.as_deref().unwrap_or(DEFAULT_ID);
    let label = Label::parse(id).ok();
    if label.is_none() {
        mistakes.push(mistake("recovery.id", id, "1 to 128 visible ASCII characters"));
    }
    if let Some(url) = raw.url.as_ref().filter(|url| client::url::ServerUrl::parse(url).is_err()) {
        mistakes.push(mistake("recovery.url", url, "an https:// URL with host and optional port"));
    }
    let ca = raw.ca_file.as_ref().and_then(|file| {
        let certificates = certificates(Path::new(file));
        if certificates.is_none() {
            let expected = "the absolute path of a readable file with certificates in PEM, at most 64 KiB";
            mistakes.push(mistake("recovery.ca_file", file, expected));
        }
        certificates
    });
    let url = raw.url.as_ref().map(|url| url.trim_end_matches('/').to_owned());
    Some(Recovery { id: label?, url, ca })
}

/// The certificates in the file and nothing else of it.
fn certificates(file: &Path) -> Option<String> {
    let fits = file.is_absolute() && std::fs::metadata(file).is_ok_and(|meta| meta.len() <= CA_BYTES);
    let text = fits.then(|| std::fs::read(file).ok()).flatten()?;
    let found = pki::pem::certificates(&text).ok()?;
    Some(pki::pem::chain_pem(found.iter().map(|certificate| certificate.as_ref())))
}
