//! What `recover` says when it is done.

use std::path::Path;

use serde::Serialize;

use crate::screen::{Columns, HumanText};
use crate::store::identity::HostIdentity;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecoverReport {
    pub node_id: String,
    pub spiffe_id: String,
    pub cert_serial: String,
    pub cert_not_after: String,
    pub domain: String,
    pub dir: String,
    /// Finds the recovery in the control plane's records.
    pub correlation_id: String,
    /// Whether the certificate was confirmed to the control plane.
    pub confirmed: bool,
}

impl RecoverReport {
    pub fn new(dir: &Path, identity: &HostIdentity, correlation_id: &str, confirmed: bool) -> Self {
        Self {
            node_id: identity.node_id().unwrap_or_default().to_owned(),
            spiffe_id: identity.spiffe.to_string(),
            cert_serial: identity.facts.serial.to_string(),
            cert_not_after: identity.facts.not_after.to_string(),
            domain: identity.spiffe.domain.to_string(),
            dir: dir.display().to_string(),
            correlation_id: correlation_id.to_owned(),
            confirmed,
        }
    }
}

impl HumanText for RecoverReport {
    fn text(&self, screen: Columns) -> String {
        let mut lines = vec![format!("recovered as {}", self.node_id)];
        let fields = [
            ("SPIFFE ID", &self.spiffe_id),
            ("serial", &self.cert_serial),
            ("valid until", &self.cert_not_after),
        ];
        lines.extend(fields.map(|(label, value)| screen.hang(&format!("  {label:<12} "), 15, value)));
        let next = if self.confirmed {
            "Next: start `enlist-agent run` again."
        } else {
            "The recovery is not confirmed to the control plane yet. Next: start `enlist-agent run`, which confirms it."
        };
        lines.push(screen.hang("", 0, next));
        lines.join("\n")
    }
}
