//! Lines of the trail that a sink does not get.

use crate::names::NodeId;
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{AuditSink, Envelope, Event, State};
use serde::{Deserialize, Serialize};

/// Why a line is not forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForwardingGapCause {
    /// The trail does not hold it any more.
    Missing,
    /// The configuration says where to begin.
    Configured,
}

impl ForwardingGapCause {
    pub fn as_str(self) -> &'static str {
        match self {
            ForwardingGapCause::Missing => "missing",
            ForwardingGapCause::Configured => "configured",
        }
    }
}

/// The lines after the cursor up to `to` are not forwarded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkipForwarding {
    pub sink: AuditSink,
    pub to: u64,
    pub cause: ForwardingGapCause,
}

pub(in crate::registry) fn skip(state: &State, skip: &SkipForwarding) -> Decision {
    let from = state.forwarded(skip.sink).saturating_add(1);
    let (sink, to, cause) = (skip.sink, skip.to, skip.cause);
    let gap = (from <= to).then_some(Event::ForwardingGapFound(ForwardingGap { sink, from, to, cause }));
    Decision::granted(gap.into_iter().collect())
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardingGap {
    pub sink: AuditSink,
    pub from: u64,
    pub to: u64,
    pub cause: ForwardingGapCause,
}

impl Happened for ForwardingGap {
    const NAME: &'static str = "audit.forwarding_gap";

    fn fields(&self) -> AuditFields {
        vec![
            ("sink", AuditField::text(self.sink)),
            ("from", AuditField::Number(self.from)),
            ("to", AuditField::Number(self.to)),
            ("cause", AuditField::text(self.cause.as_str())),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.forwarded.insert(self.sink, self.to);
    }
}
