//! `[audit]`: where the newest signed checkpoint is kept outside of the data directory.

use super::form::{CERTIFICATES, Form, SECRET_FILE};
use super::key::config_keys;
use super::mistake::ConfigMistake;
use super::shape::Optional;
use crate::process::anchor::AnchorPlace;
use client::trust::Trust;
use std::path::PathBuf;

static ANCHOR: Form<AnchorPlace> = Form {
    parse: AnchorPlace::parse,
    expected: || {
        "an absolute path, or an https:// URL without user name (http:// to this machine alone)".to_owned()
    },
    // A URL may be written with a password in it.
    is_secret: true,
};

config_keys! {
    /// `[audit]` as written.
    pub struct RawAudit as written;
    /// `[audit]` key by key.
    pub struct AuditKeys {
        /// File or URL outside of the data directory that the newest signed checkpoint is written to; a data directory that is
        /// older is refused at start. To a URL it is sent with PUT, and read back with GET at start; redirects are not followed.
        /// Each replica has one of its own
        "anchor" anchor: Optional<AnchorPlace> = Optional(&ANCHOR, "off");
        /// CA that the certificate of the anchor's server must come from; read at start
        "anchor_ca_file" anchor_ca: Optional<String> = Optional(&CERTIFICATES, "the system's roots");
        /// File with a bearer token for the anchor's server; read again for every request
        "anchor_bearer_file" anchor_bearer: Optional<PathBuf> = Optional(&SECRET_FILE, "none");
    }
}

/// `[audit]` as used. `--anchor` may put another place into it.
#[derive(Debug, Clone)]
pub struct AuditConfig {
    pub anchor: Option<AnchorPlace>,
    pub anchor_trust: Trust,
    pub anchor_bearer: Option<PathBuf>,
}

/// A CA and a token are for a URL.
pub(super) fn usable(
    written: &RawAudit,
    keys: Option<AuditKeys>,
    mistakes: &mut Vec<ConfigMistake>,
) -> Option<AuditConfig> {
    let keys = keys?;
    if !matches!(keys.anchor, Some(AnchorPlace::Url(_))) {
        let alone = [
            ("audit.anchor_ca_file", &written.anchor_ca),
            ("audit.anchor_bearer_file", &written.anchor_bearer),
        ];
        let expected = "none where audit.anchor is no URL";
        let alone = alone.into_iter().filter_map(|(key, value)| Some((key, value.as_ref()?)));
        mistakes.extend(alone.map(|(key, value)| ConfigMistake::new(key, value, expected)));
    }
    let trust = match &keys.anchor_ca {
        None => Trust::system_roots(),
        // Read as certificates already.
        Some(pem) => Trust::from_ca_pem(pem.as_bytes()).ok()?,
    };
    Some(AuditConfig { anchor: keys.anchor, anchor_trust: trust, anchor_bearer: keys.anchor_bearer })
}
