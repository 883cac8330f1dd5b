//! Revocations that an external issuer has taken.

use crate::names::{NodeId, Serial};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Envelope, Event, State};

pub(in crate::registry) fn record(state: &State, serials: &[Serial]) -> Decision {
    let owed = |serial: &&Serial| state.undelivered_revocations.contains_key(*serial);
    let serials: Vec<Serial> = serials.iter().filter(owed).cloned().collect();
    let event =
        (!serials.is_empty()).then_some(Event::RevocationsDelivered(RevocationsDelivered { serials }));
    Decision::granted(event.into_iter().collect())
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevocationsDelivered {
    pub serials: Vec<Serial>,
}

impl Happened for RevocationsDelivered {
    const NAME: &'static str = "revocation.delivered";

    fn fields(&self) -> AuditFields {
        vec![("cert_serials", AuditField::texts(&self.serials))]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        for serial in &self.serials {
            state.undelivered_revocations.remove(serial);
        }
    }
}
