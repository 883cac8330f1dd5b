//! Whether this replica leads: what only one replica of a cluster may do asks for it first.

use crate::raft::Raft;

/// That this replica led when it asked the others. Only the journal makes one.
#[derive(Debug)]
pub struct Leadership {
    term: u64,
}

impl Leadership {
    /// Asks a quorum. None where another replica leads, or nobody can say.
    pub(crate) async fn ask(raft: &Raft) -> Option<Self> {
        raft.ensure_linearizable().await.ok()?;
        let metrics = raft.metrics();
        let term = metrics.borrow().current_term;
        Some(Self { term }).filter(|leadership| leadership.holds(raft))
    }

    /// Each leadership has its own.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// Whether it has not been lost since, as far as this replica knows.
    pub(crate) fn holds(&self, raft: &Raft) -> bool {
        let metrics = raft.metrics();
        let metrics = metrics.borrow();
        metrics.state.is_leader() && metrics.current_term == self.term
    }
}
