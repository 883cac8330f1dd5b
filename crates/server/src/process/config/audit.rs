//! `[audit]`: where the newest signed checkpoint is kept outside of the data directory.

use super::form::ABSOLUTE_PATH;
use super::key::config_keys;
use super::shape::Optional;
use std::path::PathBuf;

config_keys! {
    /// `[audit]` as written.
    pub struct RawAudit as written;
    /// `[audit]` key by key.
    pub struct AuditConfig {
        /// File outside of the data directory that the newest signed checkpoint is written to; a data directory that is older
        /// is refused at start. A URL is not accepted
        "anchor" anchor: Optional<PathBuf> = Optional(&ABSOLUTE_PATH, "off");
    }
}
