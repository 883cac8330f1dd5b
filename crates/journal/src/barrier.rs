//! Reads that must be fresh: whoever waits at the same time shares one question to the leader and its quorum.

use crate::batcher::ProposeError;
use crate::peer::LeaderLinks;
use crate::raft::Raft;
use crate::view::{Board, View};
use lifecycle::names::ReplicaId;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// How long a read may wait for what other replicas have acknowledged.
pub const BARRIER: Duration = Duration::from_secs(2);

type BarrierReply = oneshot::Sender<Result<Arc<View>, ProposeError>>;

/// The last moment at which a quorum was known to have acknowledged a leader that this replica follows, or is. A start proves nothing:
/// the others may have gone on without this replica for days.
pub struct QuorumProof {
    began: Instant,
    proven: Mutex<Option<Instant>>,
    /// Since when it was asked for in vain.
    failing: Mutex<Option<Instant>>,
}

impl QuorumProof {
    pub fn new() -> Self {
        Self { began: Instant::now(), proven: Mutex::new(None), failing: Mutex::new(None) }
    }

    /// How long ago that was; `Duration::MAX` if it was never since the start.
    pub fn age(&self) -> Duration {
        self.proven().map_or(Duration::MAX, |proven| proven.elapsed())
    }

    /// For how long this process has been without one.
    pub fn missing_for(&self) -> Duration {
        self.proven().unwrap_or(self.began).elapsed()
    }

    fn proven(&self) -> Option<Instant> {
        *self.proven.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For how long it has been asked for in vain. A process that was stopped meanwhile has not asked.
    pub fn failing_for(&self) -> Duration {
        let failing = *self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        failing.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn refused(&self) {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(Instant::now);
    }

    /// It was asked for at this moment.
    pub fn given(&self, asked: Instant) {
        *self.failing.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let mut proven = self.proven.lock().unwrap_or_else(PoisonError::into_inner);
        *proven = (*proven).max(Some(asked));
    }
}

/// Asks the leader on behalf of all who wait.
pub struct Barriers {
    pub raft: Raft,
    pub forwarder: Arc<LeaderLinks>,
    pub board: Arc<Board>,
    pub proof: Arc<QuorumProof>,
}

impl Barriers {
    pub fn start(self) -> mpsc::Sender<BarrierReply> {
        let (waiting, mut inbox) = mpsc::channel::<BarrierReply>(4096);
        tokio::spawn(async move {
            let mut group = Vec::new();
            while inbox.recv_many(&mut group, 4096).await > 0 {
                let view = self.pass().await;
                for waiter in group.drain(..) {
                    // Whoever gave up waiting needs none.
                    let _ = waiter.send(view.clone());
                }
            }
        });
        waiting
    }

    async fn pass(&self) -> Result<Arc<View>, ProposeError> {
        let asked = Instant::now();
        let fresh = async {
            let index = self.read_index().await?;
            Some(self.board.reached(index).await)
        };
        let view = tokio::time::timeout(BARRIER, fresh).await.ok().flatten();
        match view {
            Some(_) => self.proof.given(asked),
            None => self.proof.refused(),
        }
        view.ok_or(ProposeError::Unavailable)
    }

    async fn read_index(&self) -> Option<u64> {
        let (leads, leader) = {
            let metrics = self.raft.metrics();
            let metrics = metrics.borrow();
            (metrics.state.is_leader(), metrics.current_leader)
        };
        if leads {
            let (read, _) = self.raft.get_read_log_id().await.ok()?;
            return Some(read.map_or(0, |id| id.index));
        }
        self.forwarder.read_index(ReplicaId(leader?)).await
    }
}
