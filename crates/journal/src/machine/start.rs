//! Putting the state machine together from a snapshot, or from nothing.

use super::core::Core;
use super::storage::Machine;
use crate::audit::{self, chain};
use crate::open_error::OpenError;
use crate::options::Options;
use crate::raft::StoredMembership;
use crate::snapshot::{Image, ImageMeta, SnapshotDir};
use crate::thread::Thread;
use crate::view::{AuditHead, Board, View};
use lifecycle::registry::State;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// What the state machine tells others.
#[derive(Clone, Default)]
pub struct Signals {
    /// The last audit line that is in its store.
    pub audit_seq: Arc<AtomicU64>,
    /// The log since the last snapshot has grown too long.
    pub snapshot_due: Arc<Notify>,
    /// Bytes of log applied since the last snapshot.
    pub since_snapshot: Arc<AtomicU64>,
}

/// `held` is the last audit line that the log remembers the store to have held.
pub fn start(
    options: &Options,
    image: Option<Image>,
    held: u64,
    signals: &Signals,
) -> Result<(Machine, Arc<Board>), OpenError> {
    let file = options.dir.join(audit::FILE);
    let image = image.unwrap_or_else(|| Image {
        meta: ImageMeta {
            log_id: None,
            membership: StoredMembership::default(),
            audit: AuditHead::default(),
            at: State::default().at,
        },
        state: State::default(),
    });
    let head = image.meta.audit;
    let store =
        audit::Store::open(&file, held.max(head.seq), head.seq).map_err(OpenError::database(&file))?;
    check_head(&file, &store, head)?;
    let applied = image.meta.log_id;
    let view =
        View { state: image.state.clone(), applied_index: applied.map_or(0, |id| id.index), audit: head };
    let board = Arc::new(Board::new(view));
    let core = Core {
        state: image.state,
        applied,
        membership: image.meta.membership,
        head,
        audit: store,
        board: Arc::clone(&board),
        audit_seq: Arc::clone(&signals.audit_seq),
        since_snapshot: Arc::clone(&signals.since_snapshot),
        snapshot_limit: options.snapshot_limit(),
        snapshot_due: Arc::clone(&signals.snapshot_due),
        last_commands: None,
        lines_checked: false,
        line: Vec::with_capacity(2048),
        failed: false,
    };
    let snapshots = SnapshotDir::of(&options.dir, options.framing());
    snapshots.prepare().map_err(OpenError::io(snapshots.dir()))?;
    let thread = Thread::start("journal-apply", core).map_err(OpenError::io(&options.dir))?;
    Ok((
        Machine {
            thread,
            snapshots,
            differs: Arc::new(Mutex::new(None)),
            building: Arc::default(),
            log: Arc::default(),
        },
        board,
    ))
}

/// The line that the snapshot stands on, if it is there, must be the one that the snapshot knows.
fn check_head(file: &Path, store: &audit::Store, head: AuditHead) -> Result<(), OpenError> {
    let line = store.line(head.seq).map_err(OpenError::database(file))?;
    match line.map(|line| chain::read(&line, head.seq)) {
        Some(Ok((_, hash))) if hash == head.head => Ok(()),
        None => Ok(()),
        Some(_) => Err(OpenError::AuditDiffers { file: file.to_owned(), seq: head.seq }),
    }
}
