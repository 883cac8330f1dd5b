//! `[recovery]`: where a node that has lost its identity turns to, where that is not where everybody goes.

use super::form::{CERTIFICATES, LABEL, SERVER_URL};
use super::key::config_keys;
use super::shape::{Optional, StringOr};
use lifecycle::names::Label;

config_keys! {
    /// `[recovery]` as written.
    pub struct RawRecovery as written;
    /// What hosts are told. It is sent to nodes with their recovery tokens and written into repair bundles.
    pub struct ConfiguredRecovery {
        /// Name of the recovery endpoint
        "id" id: StringOr<Label> = StringOr(&LABEL, "default");
        /// Where a node that has lost its identity recovers
        "url" url: Optional<String> = Optional(&SERVER_URL, "the first advertised URL");
        /// CA that it trusts there; read at start
        "ca_file" ca: Optional<String> = Optional(&CERTIFICATES, "the domain's own CA");
    }
}
