//! What the control plane writes into its own trail: refused attempts, checkpoints, gaps.

use crate::registry::apply::Decision;
use crate::registry::{AuditGap, Checkpoint, Event, Refusals};

pub(in crate::registry) fn refusals(refusals: &Refusals) -> Decision {
    Decision::granted(vec![Event::EnrollmentRefused(refusals.clone())])
}

pub(in crate::registry) fn checkpoint(checkpoint: &Checkpoint) -> Decision {
    Decision::granted(vec![Event::CheckpointRecorded(checkpoint.clone())])
}

pub(in crate::registry) fn gap(gap: &AuditGap) -> Decision {
    Decision::granted(vec![Event::AuditGapFound(gap.clone())])
}
