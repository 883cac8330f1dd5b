//! The state machine as openraft sees it.

use super::builder::Builder;
use super::core::{ApplyError, Core};
use crate::audit::PutError;
use crate::log::LogStore;
use crate::raft::{Entry, LogId, StorageError, StoredMembership, TypeConfig};
use crate::snapshot::{Carrier, SnapshotDir};
use crate::thread::Thread;
use lifecycle::registry::Answer;
use openraft::storage::RaftStateMachine;
use openraft::{AnyError, BasicNode, OptionalSend, Snapshot, SnapshotMeta, StorageIOError};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Whether no more snapshots may be begun.
#[derive(Default)]
pub struct Closed(bool);

#[derive(Clone)]
pub struct Machine {
    pub(crate) thread: Thread<Core>,
    pub(crate) snapshots: SnapshotDir,
    /// The audit line that stopped a replay, for whoever opens the journal to name it.
    pub(crate) differs: Arc<Mutex<Option<u64>>>,
    /// Held while a snapshot is being made.
    pub(crate) building: Arc<tokio::sync::Mutex<Closed>>,
    /// Told before a snapshot of a peer takes the place of what is in it.
    pub(crate) log: Arc<OnceLock<LogStore>>,
}

impl Machine {
    /// The log that is beside this machine.
    pub fn installs_into(&self, log: LogStore) {
        // Set once at start.
        log.purges_behind(self.snapshots.clone());
        let _ = self.log.set(log);
    }

    /// The audit line, if any, that is not what the log produces.
    pub fn differing_line(&self) -> Option<u64> {
        *self.differs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a snapshot of everything applied, so that the next start has no commands to apply again; none if the newest one
    /// holds them all. Given up after `limit`: the log still has what it would have held. Nothing is applied any more.
    pub async fn keep(&self, limit: Duration) -> Result<(), String> {
        let building = self.building.lock().await;
        let newest = self.snapshots.indexes().map_err(|error| error.to_string())?.first().copied();
        let image = self.thread.call(move |core| core.image_beyond(newest)).await;
        let image = image.map_err(|gone| gone.to_string())?.map_err(|error| error.to_string())?;
        let Some(image) = image else { return Ok(()) };
        let (snapshots, abandoned) = (self.snapshots.clone(), Arc::new(AtomicBool::new(false)));
        let flag = Arc::clone(&abandoned);
        let mut writing = tokio::task::spawn_blocking(move || snapshots.write_unless(&image, &flag));
        let written = tokio::select! {
            written = &mut writing => written,
            () = tokio::time::sleep(limit) => {
                abandoned.store(true, Ordering::Relaxed);
                writing.await
            }
        };
        drop(building);
        written.map_err(|error| error.to_string())?.map(drop).map_err(|error| error.to_string())
    }

    /// Waits for a snapshot in the making, begins no other, and ends the thread.
    pub async fn close(&self) {
        self.building.lock().await.0 = true;
        self.thread.stop().await;
    }

    fn remember(&self, error: &ApplyError) {
        if let ApplyError::Audit(PutError::Differs { seq }) = error {
            *self.differs.lock().unwrap_or_else(PoisonError::into_inner) = Some(*seq);
        }
    }
}

impl RaftStateMachine<TypeConfig> for Machine {
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), StorageError> {
        let state = self.thread.call(|core| core.applied()).await;
        Ok(state.map_err(|gone| StorageIOError::read_state_machine(AnyError::new(&gone)))?)
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Vec<Answer>>, StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        let applied = self.thread.call(move |core| core.apply(entries)).await;
        match applied {
            Ok(Ok(answers)) => Ok(answers),
            Ok(Err(error)) => {
                self.remember(&error);
                Err(StorageIOError::write_state_machine(AnyError::new(&error)).into())
            }
            Err(gone) => Err(StorageIOError::write_state_machine(AnyError::new(&gone)).into()),
        }
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        let building = Arc::clone(&self.building).lock_owned().await;
        let image = match building.0 {
            true => Err(AnyError::error("the journal is shutting down")),
            false => match self.thread.call(|core| core.image()).await {
                Ok(Ok(image)) => Ok(image),
                Ok(Err(error)) => Err(AnyError::new(&error)),
                Err(gone) => Err(AnyError::new(&gone)),
            },
        };
        Builder { image: Some(image), snapshots: self.snapshots.clone(), building: Some(building) }
    }

    /// The file that the transport between replicas writes into.
    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Carrier>, StorageError> {
        Ok(Box::new(Carrier { path: self.snapshots.dir().join("incoming") }))
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<u64, BasicNode>,
        snapshot: Box<Carrier>,
    ) -> Result<(), StorageError> {
        let failed = |error: AnyError| StorageIOError::write_snapshot(Some(meta.signature()), error);
        let (snapshots, index) = (self.snapshots.clone(), meta.last_log_id.map_or(0, |id| id.index));
        if let Some(log) = self.log.get() {
            // From the moment when the snapshot is there until the log is purged, the log ends before it.
            log.installing(index).await.inspect_err(|_| log.installed(false))?;
        }
        let kept = tokio::task::spawn_blocking(move || {
            let image = snapshots.read(&snapshot.path, index)?;
            snapshots.write(&image)?;
            Ok::<_, crate::snapshot::SnapshotError>(image)
        })
        .await;
        if let Some(log) = self.log.get() {
            log.installed(matches!(kept, Ok(Ok(_))));
        }
        let image = kept
            .map_err(|error| failed(AnyError::new(&error)))?
            .map_err(|error| failed(AnyError::new(&error)))?;
        self.thread
            .call(move |core| core.install(image))
            .await
            .map_err(|gone| failed(AnyError::new(&gone)).into())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<TypeConfig>>, StorageError> {
        let newest = self
            .snapshots
            .newest()
            .map_err(|error| StorageIOError::read_snapshot(None, AnyError::new(&error)))?;
        Ok(newest.map(|(meta, path)| Snapshot { meta: meta.to_raft(), snapshot: Box::new(Carrier { path }) }))
    }
}
