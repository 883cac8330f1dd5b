//! How far the trail has been forwarded to somebody else's store.

use crate::names::NodeId;
use crate::registry::apply::Decision;
use crate::registry::event::{AuditFields, Happened};
use crate::registry::{AuditSink, Envelope, Event, State};
use serde::{Deserialize, Serialize};

/// Every line up to `through` is with the sink, or was left out and that is on record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forwarded {
    pub sink: AuditSink,
    pub through: u64,
}

/// A cursor never goes back: what a replica sends again was sent before.
pub(in crate::registry) fn record(state: &State, forwarded: &Forwarded) -> Decision {
    let news = forwarded.through > state.forwarded(forwarded.sink);
    Decision::granted(news.then(|| Event::AuditForwarded(forwarded.clone())).into_iter().collect())
}

/// Without a line of its own, which would have to be forwarded again.
impl Happened for Forwarded {
    const NAME: &'static str = "audit.forwarded";
    const AUDITED: bool = false;

    fn fields(&self) -> AuditFields {
        Vec::new()
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.forwarded.insert(self.sink, self.through);
    }
}
