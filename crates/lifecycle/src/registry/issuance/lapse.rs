//! Intents without a result: the replica was stopped in between, or the issuer did not answer. Whether it has signed is not known, so
//! what it may have signed is revoked.

use crate::names::{NodeId, RequestId, Serial};
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Envelope, Event, State};

const AT_ONCE: usize = 256;

pub(in crate::registry) fn lapsed(state: &State) -> Option<Event> {
    let over = state.intents.iter().filter(|(_, intent)| intent.has_lapsed(state.at)).take(AT_ONCE);
    let (intents, serials): (Vec<_>, Vec<_>) = over.map(|(id, intent)| (*id, intent.serial.clone())).unzip();
    (!intents.is_empty()).then_some(Event::IssuancesLapsed(IssuancesLapsed { intents, serials }))
}

impl State {
    /// None of them has its result any more. Only folds call this.
    pub(in crate::registry) fn lapse_intents(&mut self) {
        for intent in std::mem::take(&mut self.intents).values() {
            self.owe_unrecorded(intent, &intent.serial);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuancesLapsed {
    pub intents: Vec<RequestId>,
    /// What may have been signed.
    pub serials: Vec<Serial>,
}

impl Happened for IssuancesLapsed {
    const NAME: &'static str = "issuance.lapsed";

    fn fields(&self) -> AuditFields {
        vec![("asked_serials", AuditField::texts(&self.serials))]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        for intent in &self.intents {
            if let Some(intent) = state.intents.remove(intent) {
                state.owe_unrecorded(&intent, &intent.serial);
            }
        }
    }
}
