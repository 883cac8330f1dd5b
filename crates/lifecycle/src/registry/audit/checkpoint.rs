//! Signed checkpoints of the trail.

use crate::names::{Fingerprint, NodeId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Envelope, Event, State};
use serde::{Deserialize, Serialize};

/// Audit line `seq` had hash `head`: signed by the audit key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    pub seq: u64,
    pub head: Fingerprint,
    #[serde(with = "serde_bytes")]
    pub signature: Vec<u8>,
}

pub(in crate::registry) fn record(checkpoint: &Checkpoint) -> Decision {
    Decision::granted(vec![Event::CheckpointRecorded(checkpoint.clone())])
}

impl Happened for Checkpoint {
    const NAME: &'static str = "audit.checkpoint";

    fn fields(&self) -> AuditFields {
        vec![
            ("checkpoint_seq", AuditField::Number(self.seq)),
            ("checkpoint_head", AuditField::text(self.head.hex())),
            ("signature", AuditField::text(crate::names::hex(&self.signature))),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.checkpoint = self.seq;
    }
}
