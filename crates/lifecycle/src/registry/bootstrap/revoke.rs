//! Revoking a bootstrap identity: every certificate of the name is denied, and the name may be used again for new ones.

use crate::names::{BootstrapName, NodeId, Serial};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Envelope, Event, Rejection, State};

pub(in crate::registry) fn decide(state: &State, name: &BootstrapName) -> Decision {
    let Some(bootstrap) = state.bootstraps.get(name) else {
        return Rejection::BootstrapNotFound { name: name.clone() }.into();
    };
    let serials = state.undenied(&bootstrap.serials);
    if serials.is_empty() {
        return Decision::granted(Vec::new());
    }
    Decision::granted(vec![Event::BootstrapRevoked(BootstrapRevoked { name: name.clone(), serials })])
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootstrapRevoked {
    pub name: BootstrapName,
    pub serials: Vec<Serial>,
}

impl Happened for BootstrapRevoked {
    const NAME: &'static str = "bootstrap.revoked";

    fn fields(&self) -> AuditFields {
        vec![("bootstrap", AuditField::text(&self.name)), ("cert_serials", AuditField::texts(&self.serials))]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.deny(&self.serials);
    }
}
