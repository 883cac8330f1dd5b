//! Commands that arrive together travel as one entry.
//!
//! openraft 0.9 waits for the fsync of each entry before it takes the next, so only grouping gets past the
//! speed of the disk. While two entries are under way, what arrives gathers for the third.

use crate::batch::{Batch, EncodedEnvelope};
use crate::options::Clock;
use crate::peer::{LeaderLinks, ProposalFate};
use crate::raft::Raft;
use crate::view::{Board, View};
use lifecycle::names::{ReplicaId, Timestamp};
use lifecycle::registry::Answer;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

/// The most commands in an entry, and the most bytes of them.
const COMMANDS: usize = 512;
const BYTES: usize = 1024 * 1024;
/// Entries under way at a time.
const IN_FLIGHT: u32 = 2;
/// Groups of commands on their way to a leader elsewhere.
const FORWARDED: u32 = 4;
/// How long an entry may be under way before its proposers are told that its outcome is not known.
const DEADLINE: Duration = Duration::from_secs(5);

/// Why a proposal has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// It may have been applied, or may yet be: the same envelope can safely be proposed again.
    #[error("whether it was applied is not known")]
    OutcomeUnknown,
    /// It was not applied.
    #[error("there is no leader to take the change")]
    Unavailable,
    /// It was not applied.
    #[error("the journal is shutting down")]
    ShuttingDown,
}

/// A command that was applied: its answer, and a view that holds its effects.
#[derive(Debug, Clone)]
pub struct Committed {
    pub answer: Answer,
    /// At the index of the command's entry or later. The view that the replica shows at that moment may be older
    /// where the entry was applied by another replica first.
    pub view: Arc<View>,
}

/// A proposal on its way to an entry.
pub struct Waiting {
    pub item: Arc<EncodedEnvelope>,
    pub answer: oneshot::Sender<Result<Committed, ProposeError>>,
    /// It came from another replica, which took this one for the leader: it is not passed on once more.
    pub forwarded: bool,
}

pub struct Batcher {
    pub raft: Raft,
    pub forwarder: Arc<LeaderLinks>,
    pub clock: Clock,
    pub board: Arc<Board>,
    pub queue: mpsc::Receiver<Waiting>,
    /// While the lead is handed over nothing more enters the log here: the successor has to have all of it.
    pub handing_over: Arc<AtomicBool>,
    /// Ends the batcher, by its value or by being dropped.
    pub closing: watch::Receiver<bool>,
}

impl Batcher {
    /// Runs until closing, and then until what was queued before is answered.
    pub async fn run(mut self) {
        let permits = Arc::new(Semaphore::new(IN_FLIGHT as usize));
        let forwards = Arc::new(Semaphore::new(FORWARDED as usize));
        let mut gathered = VecDeque::new();
        loop {
            let leads = self.raft.metrics().borrow().state.is_leader();
            let kind = if leads { &permits } else { &forwards };
            let Ok(permit) = Arc::clone(kind).acquire_owned().await else { return };
            if !self.gather(&mut gathered).await {
                drop(permit);
                break;
            }
            let group = cut(&mut gathered);
            let (leads, leader) = {
                let metrics = self.raft.metrics();
                let metrics = metrics.borrow();
                (metrics.state.is_leader(), metrics.current_leader)
            };
            if leads && self.handing_over.load(Ordering::Acquire) {
                group
                    .into_iter()
                    .for_each(|waiting| drop(waiting.answer.send(Err(ProposeError::Unavailable))));
                continue;
            }
            match leader.filter(|_| !leads) {
                Some(leader) => self.forward(ReplicaId(leader), group, permit),
                None => {
                    // Effective time is the larger of this and the last one: an entry that is under way needs no look here.
                    let at = (self.clock)().max(self.board.view().state.at);
                    self.submit(at, group, permit).await;
                }
            }
        }
        drop(permits.acquire_many(IN_FLIGHT).await);
        drop(forwards.acquire_many(FORWARDED).await);
    }

    /// Sends a group to the leader. What it answers is read from the registry, once this replica has applied it too.
    fn forward(&self, leader: ReplicaId, group: Vec<Waiting>, permit: OwnedSemaphorePermit) {
        let (forwarder, board) = (Arc::clone(&self.forwarder), Arc::clone(&self.board));
        tokio::spawn(async move {
            let (refused, group): (Vec<_>, Vec<_>) = group.into_iter().partition(|waiting| waiting.forwarded);
            refused.into_iter().for_each(|waiting| drop(waiting.answer.send(Err(ProposeError::Unavailable))));
            let commands =
                group.iter().map(|waiting| serde_bytes::ByteBuf::from(waiting.item.encoded.clone()));
            let proposed = async {
                let (index, fates) = forwarder.propose(leader, commands.collect()).await?;
                Ok((board.reached(index).await, fates))
            };
            let proposed =
                tokio::time::timeout(DEADLINE, proposed).await.unwrap_or(Err(ProposalFate::Unknown));
            drop(permit);
            for (at, waiting) in group.into_iter().enumerate() {
                let result = match &proposed {
                    Ok((view, fates)) => match fates.get(at) {
                        Some(ProposalFate::Applied) => {
                            let recorded = view.state.recent.get(&waiting.item.envelope.id);
                            let answer = recorded.map(|recorded| recorded.answer.clone());
                            answer
                                .map(|answer| Committed { answer, view: Arc::clone(view) })
                                .ok_or(ProposeError::OutcomeUnknown)
                        }
                        Some(ProposalFate::NotTaken) => Err(ProposeError::Unavailable),
                        Some(ProposalFate::Unknown) | None => Err(ProposeError::OutcomeUnknown),
                    },
                    Err(ProposalFate::NotTaken) => Err(ProposeError::Unavailable),
                    Err(ProposalFate::Unknown | ProposalFate::Applied) => Err(ProposeError::OutcomeUnknown),
                };
                // Whoever gave up waiting asks again, and gets the same answer.
                let _ = waiting.answer.send(result);
            }
        });
    }

    /// Waits for proposals and takes all that are there; false when none will come any more.
    async fn gather(&mut self, gathered: &mut VecDeque<Waiting>) -> bool {
        let mut arrived = Vec::new();
        while gathered.len() < COMMANDS {
            let room = COMMANDS - gathered.len();
            if gathered.is_empty() {
                tokio::select! {
                    biased;
                    count = self.queue.recv_many(&mut arrived, room) => if count == 0 { return false },
                    _ = self.closing.wait_for(|closing| *closing), if !self.queue.is_closed() => {
                        self.queue.close();
                    }
                }
            } else {
                while let Some(next) = (arrived.len() < room).then(|| self.queue.try_recv().ok()).flatten() {
                    arrived.push(next);
                }
                if arrived.is_empty() {
                    break;
                }
            }
            // Whoever gave up waiting has proposed it again, or never will.
            gathered.extend(arrived.drain(..).filter(|waiting| !waiting.answer.is_closed()));
        }
        true
    }

    async fn submit(&self, at: Timestamp, group: Vec<Waiting>, permit: OwnedSemaphorePermit) {
        let (items, waiters): (Vec<_>, Vec<_>) =
            group.into_iter().map(|waiting| (waiting.item, waiting.answer)).unzip();
        let written = self.raft.client_write_ff(Batch::new(at, items)).await;
        let Ok(written) = written else {
            return waiters.into_iter().for_each(|waiter| drop(waiter.send(Err(ProposeError::Unavailable))));
        };
        let board = Arc::clone(&self.board);
        tokio::spawn(async move {
            let applied = async {
                match written.await {
                    Ok(Ok(response)) => Ok((response.data, board.reached(response.log_id.index).await)),
                    // Only a leader appends: this was turned away before it reached the log.
                    Ok(Err(_)) => Err(ProposeError::Unavailable),
                    // Replication stopped on the way.
                    Err(_) => Err(ProposeError::OutcomeUnknown),
                }
            };
            // openraft 0.9 does not always answer what a deposed leader took: do not wait for ever.
            let result = tokio::time::timeout(DEADLINE, applied).await;
            let result = result.unwrap_or(Err(ProposeError::OutcomeUnknown));
            drop(permit);
            hand_out(result, waiters);
        });
    }
}

/// The next entry's commands: in order, within the bounds, at least one.
fn cut(gathered: &mut VecDeque<Waiting>) -> Vec<Waiting> {
    let mut bytes = 0;
    let fitting = gathered.iter().take(COMMANDS).take_while(|waiting| {
        bytes += waiting.item.encoded.len();
        bytes <= BYTES
    });
    let count = fitting.count().max(1).min(gathered.len());
    gathered.drain(..count).collect()
}

fn hand_out(
    result: Result<(Vec<Answer>, Arc<View>), ProposeError>,
    waiters: Vec<oneshot::Sender<Result<Committed, ProposeError>>>,
) {
    match result {
        Ok((answers, view)) => {
            for (waiter, answer) in waiters.into_iter().zip(answers) {
                // Whoever gave up waiting asks again, and gets the same answer.
                let _ = waiter.send(Ok(Committed { answer, view: Arc::clone(&view) }));
            }
        }
        Err(error) => waiters.into_iter().for_each(|waiter| drop(waiter.send(Err(error)))),
    }
}
