//! The audit lines from before a replica's first snapshot: copied from a peer, and checked against what the snapshot says.

use super::link::Link;
use super::roster::Roster;
use super::wire::{PeerReply, PeerRequest};
use crate::audit::chain;
use crate::machine::Machine;
use crate::view::{AuditHead, Board};
use lifecycle::names::ReplicaId;
use std::sync::Arc;

/// Why lines are still missing.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error("replica {0} has no more lines")]
    Short(ReplicaId),
    #[error("replica {replica}: line {seq} does not follow from the one before")]
    Detached { replica: ReplicaId, seq: u64 },
    #[error("replica {0} could not be asked")]
    Unreachable(ReplicaId),
    #[error("the lines could not be kept: {0}")]
    Store(String),
}

/// Copies what the store lacks up to the head, if it lacks anything; `missing` is called first then. Tells whether it did.
pub async fn copy_missing(
    machine: &Machine,
    board: &Board,
    roster: &Arc<Roster>,
    from: ReplicaId,
    missing: impl FnOnce(),
) -> Result<bool, CopyError> {
    let store = |error: &dyn std::fmt::Display| CopyError::Store(error.to_string());
    let held = machine.thread.call(|core| core.missing_lines()).await.map_err(|gone| store(&gone))?;
    let Some((mut held, until)) = held.map_err(|error| store(&error))? else { return Ok(false) };
    missing();
    let link = Link::new(from, roster.clone());
    while held.seq < until {
        let asked = link.ask(PeerRequest::Lines { after: held.seq, until }).await;
        let Ok(PeerReply::Lines { lines }) = asked else { return Err(CopyError::Unreachable(from)) };
        if lines.is_empty() {
            return Err(CopyError::Short(from));
        }
        for line in &lines {
            let seq = held.seq + 1;
            let head = chain::check(line, seq, &held.head)
                .map_err(|_| CopyError::Detached { replica: from, seq })?;
            held = AuditHead { seq, head };
        }
        let first = held.seq + 1 - lines.len() as u64;
        let kept = machine.thread.call(move |core| core.refill(first, &lines)).await;
        kept.map_err(|gone| store(&gone))?.map_err(|error| store(&error))?;
    }
    // The last one that was missing is the one before a line that the log produced, or the head itself.
    let joined = machine.thread.call(move |core| core.joins(held)).await.map_err(|gone| store(&gone))?;
    if !joined.map_err(|error| store(&error))? {
        return Err(CopyError::Detached { replica: from, seq: held.seq });
    }
    tracing::info!(lines = board.view().audit.seq, "the audit trail was copied from replica {from}");
    Ok(true)
}
