//! `[tls]`: a server certificate that the operator brings along, instead of one that the domain issues itself.

use super::{Mistake, mistake, take};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// As written.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawTls {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_cert: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_key: Option<String>,
}

/// Where certificate (with its chain, if it has one) and key are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnCertificate {
    pub cert: PathBuf,
    pub key: PathBuf,
}

impl RawTls {
    pub(super) fn is_empty(&self) -> bool {
        self.server_cert.is_none() && self.server_key.is_none()
    }
}

pub(super) fn parse(table: toml::Table, raw: &mut RawTls, mistakes: &mut Vec<Mistake>) {
    for (key, value) in table {
        let shown = value.to_string();
        let taken = match key.as_str() {
            "server_cert" => take(value, &mut raw.server_cert),
            "server_key" => take(value, &mut raw.server_key),
            _ => Err("server_cert and server_key"),
        };
        if let Err(expected) = taken {
            mistakes.push(mistake(&format!("tls.{key}"), &shown, expected));
        }
    }
}

/// Both or neither, found from wherever the control plane is started.
pub(super) fn check(raw: &RawTls, mistakes: &mut Vec<Mistake>) -> Option<OwnCertificate> {
    let mut path = |key: &str, text: Option<&String>, other: bool| {
        let path = text.map(PathBuf::from);
        match &path {
            Some(path) if path.is_absolute() => {}
            None if !other => {}
            _ => {
                let shown = text.map(String::as_str).unwrap_or_default();
                mistakes.push(mistake(key, shown, "an absolute path, for certificate and key alike"));
            }
        }
        path
    };
    let cert = path("tls.server_cert", raw.server_cert.as_ref(), raw.server_key.is_some());
    let key = path("tls.server_key", raw.server_key.as_ref(), raw.server_cert.is_some());
    Some(OwnCertificate { cert: cert?, key: key? })
}
