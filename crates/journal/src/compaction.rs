//! Log compaction: when enough bytes have gathered since the last snapshot, makes the next one and purges.
//!
//! The order matters: the audit store is synced before the snapshot is made, and what the older of the kept
//! snapshots does not hold stays in the log. A replica that lacks an entry which was purged gets a snapshot instead.

use crate::log::LogStore;
use crate::raft::Raft;
use crate::snapshot::SnapshotDir;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// A snapshot that takes longer than this is not waited for; the next one purges.
const PATIENCE: Duration = Duration::from_secs(600);

pub struct Compactor {
    pub raft: Raft,
    pub log: LogStore,
    pub snapshots: SnapshotDir,
    pub due: Arc<Notify>,
    /// Bytes of log since the last snapshot, and how many are too many.
    pub gathered: Arc<AtomicU64>,
    pub limit: u64,
    /// Bytes of log that stay, for replicas that lag.
    pub keep: u64,
    /// Ends the task, by its value or by being dropped.
    pub closing: watch::Receiver<bool>,
}

impl Compactor {
    pub async fn run(mut self) {
        let mut closing = self.closing.clone();
        // A snapshot that was made at a clean stop has not purged anything yet.
        if let Err(reason) = self.purge().await {
            tracing::warn!(%reason, "the log was not purged; it will be after the next snapshot");
        }
        loop {
            tokio::select! {
                _ = closing.wait_for(|closing| *closing) => return,
                () = self.due.notified() => {}
            }
            if let Err(reason) = self.compact().await {
                tracing::warn!(%reason, "no snapshot was made; the log grows until the next one");
            }
        }
    }

    async fn compact(&mut self) -> Result<(), String> {
        // Notified while the last snapshot was still beginning.
        if self.gathered.load(Ordering::Acquire) < self.limit {
            return Ok(());
        }
        let before = self.raft.metrics().borrow().snapshot;
        self.raft.trigger().snapshot().await.map_err(|error| error.to_string())?;
        let wait = self.raft.wait(Some(PATIENCE));
        let made = wait.metrics(|metrics| metrics.snapshot > before, "snapshot");
        tokio::select! {
            _ = self.closing.wait_for(|closing| *closing) => return Ok(()),
            made = made => drop(made.map_err(|error| error.to_string())?),
        }
        self.purge().await
    }

    /// What the older of the kept snapshots holds leaves the log, but for the last bytes that are to be kept.
    async fn purge(&self) -> Result<(), String> {
        let indexes = self.snapshots.indexes().map_err(|error| error.to_string())?;
        let Some(older) = indexes.get(1).copied() else { return Ok(()) };
        let upto = match self.keep {
            0 => Some(older),
            keep => self.log.before_last(keep).await?.map(|index| index.min(older)),
        };
        match upto {
            Some(upto) => self.raft.trigger().purge_log(upto).await.map_err(|error| error.to_string()),
            None => Ok(()),
        }
    }
}
