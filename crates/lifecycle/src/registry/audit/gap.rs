//! Lines of the trail that were missing at start.

use crate::names::NodeId;
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Envelope, Event, State};
use serde::{Deserialize, Serialize};

/// Lines of the audit store were missing at start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditGap {
    pub from: u64,
    pub to: u64,
    /// Whether the log still held them.
    pub refilled: bool,
}

pub(in crate::registry) fn record(gap: &AuditGap) -> Decision {
    Decision::granted(vec![Event::AuditGapFound(gap.clone())])
}

impl Happened for AuditGap {
    const NAME: &'static str = "audit.gap";

    fn fields(&self) -> AuditFields {
        vec![
            ("from", AuditField::Number(self.from)),
            ("to", AuditField::Number(self.to)),
            ("refilled", AuditField::Flag(self.refilled)),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, _state: &mut State, _envelope: &Envelope) {}
}
