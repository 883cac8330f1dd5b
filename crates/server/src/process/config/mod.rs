//! Local configuration: addresses, paths and keys. Read in two steps: as written, with unknown keys refused, then
//! checked, with every complaint at once; only then is a socket opened. What can change an outcome is not
//! here but in the replicated policy. A key is declared once, in `keys.rs` or in the file of its table; parser, check, file
//! and reference page follow from the declaration.

mod addresses;
mod audit;
mod claims;
mod endpoint_profile;
mod form;
mod journal;
mod key;
mod keys;
mod loki;
mod mistake;
mod own_certificate;
mod pkcs11;
mod ready;
mod recovery;
mod shape;
mod spire;
mod table_list;
#[cfg(test)]
mod tests;

pub use addresses::{PEER_PORT, host_of, is_own_machine};
pub use audit::AuditConfig;
pub use claims::ClaimsConfig;
pub use form::read_secret;
pub use key::ConfigKeyReference;
pub use keys::{ControlPlaneConfig, RawConfig, RawDoors};
pub use loki::{ForwardingStart, LokiConfig, LokiCredential};
pub use mistake::{ConfigMistake, ConfigMistakes};
pub use own_certificate::{OwnCertificate, RawTls};
pub use pkcs11::{Pkcs11Config, RawPkcs11};
pub use ready::IssuerReadiness;
pub use spire::{PathMap, SpireConfig, own_domain};

use crate::datadir::{DirError, replace};
use key::ConfigTable;
use pki::seal::KekSource;
use std::path::Path;

/// Reads and checks a configuration file.
pub fn load(path: &Path) -> Result<ControlPlaneConfig, ConfigMistakes> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let expected = format!("a readable file ({error})");
        ConfigMistakes(vec![ConfigMistake::new(&path.display().to_string(), "", expected)])
    })?;
    let (raw, mut mistakes) = parse(&text)?;
    let config = check(&raw, &mut mistakes);
    mistakes.extend(config.iter().flat_map(|config| spire::distinct(&config.spire)));
    match config {
        Some(config) if mistakes.is_empty() => Ok(config),
        _ => Err(ConfigMistakes(mistakes)),
    }
}

/// The file's keys one by one, so that one wrong key does not hide the next.
fn parse(text: &str) -> Result<(RawConfig, Vec<ConfigMistake>), ConfigMistakes> {
    let table: toml::Table = toml::from_str(text).map_err(|error| {
        let place = error.span().map_or_else(|| "enlist.toml".to_owned(), |span| line_of(text, span.start));
        let expected = format!("valid TOML ({})", error.message());
        ConfigMistakes(vec![ConfigMistake::new(&place, "", expected)])
    })?;
    let mut mistakes = Vec::new();
    Ok((RawConfig::read("", table, &mut mistakes), mistakes))
}

/// Turns raw values into usable ones, noting every mistake.
pub fn check(raw: &RawConfig, mistakes: &mut Vec<ConfigMistake>) -> Option<ControlPlaneConfig> {
    raw.check("", mistakes)
}

/// Every key as operators read of it.
pub fn reference() -> Vec<ConfigKeyReference> {
    RawConfig::reference("")
}

fn line_of(text: &str, offset: usize) -> String {
    let line = text.bytes().take(offset).filter(|b| *b == b'\n').count() + 1;
    format!("enlist.toml line {line}")
}

/// Writes another source of the key-encryption key into a configuration file, and leaves the rest as it is.
pub fn set_kek(path: &Path, source: &KekSource) -> Result<(), DirError> {
    let io = |error| DirError::Io { path: path.to_owned(), error };
    let text = std::fs::read_to_string(path).map_err(io)?;
    let is_kek = |line: &str| {
        line.trim_start().strip_prefix("kek").is_some_and(|rest| rest.trim_start().starts_with('='))
    };
    let value = toml::Value::String(source.to_string());
    let lines =
        text.lines().map(|line| if is_kek(line) { format!("kek = {value}") } else { line.to_owned() });
    let changed = lines.collect::<Vec<_>>().join("\n") + "\n";
    replace(path, changed.as_bytes(), 0o640)
}
