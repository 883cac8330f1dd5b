//! `[tls]`: a server certificate that the operator brings along, instead of one that the domain issues itself.

use super::form::ABSOLUTE_PATH;
use super::key::config_keys;
use super::mistake::ConfigMistake;
use super::shape::Optional;
use std::path::PathBuf;

config_keys! {
    /// `[tls]` as written.
    pub struct RawTls as written;
    /// `[tls]` key by key.
    pub struct TlsConfig {
        /// Server certificate (leaf, then its chain), presented as it is and read again every hour; the control plane does
        /// not renew it
        "server_cert" server_cert: Optional<PathBuf> = Optional(&ABSOLUTE_PATH, "the domain issues its own");
        /// Key of the server certificate; set both or neither
        "server_key" server_key: Optional<PathBuf> = Optional(&ABSOLUTE_PATH, "the domain issues its own");
    }
}

/// Where certificate (with its chain, if it has one) and key are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnCertificate {
    pub cert: PathBuf,
    pub key: PathBuf,
}

pub(super) fn both_or_neither(
    written: &RawTls,
    tls: Option<TlsConfig>,
    mistakes: &mut Vec<ConfigMistake>,
) -> Option<Option<OwnCertificate>> {
    let missing = match (&written.server_cert, &written.server_key) {
        (Some(_), Some(_)) | (None, None) => {
            let TlsConfig { server_cert, server_key } = tls?;
            return Some(server_cert.zip(server_key).map(|(cert, key)| OwnCertificate { cert, key }));
        }
        (None, Some(_)) => "tls.server_cert",
        (Some(_), None) => "tls.server_key",
    };
    let expected = format!("{}; certificate and key belong together", (ABSOLUTE_PATH.expected)());
    mistakes.push(ConfigMistake::new(missing, "", expected));
    None
}
