//! Making a snapshot from a copy of the registry, which costs a pointer, while writes go on.

use crate::raft::{StorageError, TypeConfig};
use crate::snapshot::{Carrier, Image, SnapshotDir};
use openraft::{AnyError, RaftSnapshotBuilder, Snapshot, StorageIOError};
use tokio::sync::OwnedMutexGuard;

pub struct Builder {
    /// The copy, or why there is none; taken by the first build.
    pub(super) image: Option<Result<Image, AnyError>>,
    pub(super) snapshots: SnapshotDir,
    /// Held until the snapshot is on disk, for shutdown to wait for.
    pub(super) building: Option<OwnedMutexGuard<super::Closed>>,
}

impl RaftSnapshotBuilder<TypeConfig> for Builder {
    async fn build_snapshot(&mut self) -> Result<Snapshot<TypeConfig>, StorageError> {
        let failed = |error: AnyError| StorageIOError::write_snapshot(None, error);
        let used = || Err(AnyError::error("this builder has built its snapshot"));
        let image = self.image.take().unwrap_or_else(used).map_err(failed)?;
        let meta = image.meta.to_raft();
        let (snapshots, building) = (self.snapshots.clone(), self.building.take());
        let write = move || {
            let written = snapshots.write(&image);
            drop(building);
            written
        };
        let written = tokio::task::spawn_blocking(write).await;
        let path = written
            .map_err(|error| failed(AnyError::new(&error)))?
            .map_err(|error| failed(AnyError::new(&error)))?;
        Ok(Snapshot { meta, snapshot: Box::new(Carrier { path }) })
    }
}
