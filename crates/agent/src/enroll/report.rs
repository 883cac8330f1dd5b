//! What `enroll` says when it is done.

use std::path::Path;

use serde::Serialize;

use crate::store::generation::Generations;
use crate::store::identity::Identity;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    pub node_id: String,
    pub spiffe_id: String,
    /// The node's state as the control plane said it; `enrolled` if it was not asked.
    pub state: String,
    pub cert_serial: String,
    pub cert_not_after: String,
    pub renew_at: Option<String>,
    pub tenant: String,
    pub domain: String,
    pub dir: String,
    pub already_enrolled: bool,
}

impl Report {
    pub fn new(dir: &Path, identity: &Identity, state: String, already_enrolled: bool) -> Self {
        Self {
            node_id: identity.node_id().unwrap_or_default().to_owned(),
            spiffe_id: identity.spiffe.to_string(),
            state,
            cert_serial: identity.facts.serial.to_string(),
            cert_not_after: identity.facts.not_after.to_string(),
            renew_at: identity.renew_at().map(str::to_owned),
            tenant: identity.tenant().unwrap_or_default().to_owned(),
            domain: identity.spiffe.domain.to_string(),
            dir: dir.display().to_string(),
            already_enrolled,
        }
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let done = if self.already_enrolled { "already enrolled" } else { "enrolled" };
        writeln!(f, "{done} as {} ({})", self.node_id, self.state)?;
        writeln!(f, "  SPIFFE id    {}", self.spiffe_id)?;
        let place = Generations::under(Path::new(&self.dir)).current_path();
        writeln!(f, "  identity     {}", place.display())?;
        writeln!(f, "  valid until  {}", self.cert_not_after)?;
        write!(f, "  renew at     {}", self.renew_at.as_deref().unwrap_or("unknown"))?;
        if self.already_enrolled {
            write!(
                f,
                "\nNothing was asked of the control plane; a token given was not used. --replace enrolls anew."
            )?;
        }
        Ok(())
    }
}
