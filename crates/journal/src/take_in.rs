//! Taking in what an older version wrote without authentication: its state becomes the beginning of an authenticated log.
//!
//! Nothing of the older log is kept. It holds the keys as the older version sealed them, and with those at hand somebody
//! could write an older log of their own and have it taken in.

use crate::audit::LastCheckpoint;
use crate::framing::Framing;
use crate::journal::Journal;
use crate::log::{self, TableError, Tables};
use crate::log_key::LogKey;
use crate::open_error::OpenError;
use crate::raft::Vote;
use crate::snapshot::{Image, SnapshotDir};
use lifecycle::registry::State;
use std::fs::File;
use std::path::Path;

/// Writes an authenticated log and snapshot of everything that `older` has applied into the directory `into`, and closes
/// `older`, whose own directory stays as it is. `change` is done to the state on the way.
pub async fn take_in(
    older: Journal,
    into: &Path,
    key: LogKey,
    change: impl FnOnce(&mut State),
) -> Result<(), OpenError> {
    let start_error = |error: &dyn std::fmt::Display| OpenError::Start(error.to_string());
    let image = older.machine.thread.call(|core| core.image()).await;
    let mut image = image.map_err(|gone| start_error(&gone))?.map_err(|error| start_error(&error))?;
    let vote = older.log.vote();
    older.shutdown().await.map_err(|error| start_error(&error))?;
    change(&mut image.state);
    let into = into.to_owned();
    let written =
        tokio::task::spawn_blocking(move || write(&into, &Framing::Authenticated(key), &image, vote));
    written.await.map_err(|error| start_error(&error))?
}

fn write(into: &Path, framing: &Framing, image: &Image, vote: Option<Vote>) -> Result<(), OpenError> {
    let snapshots = SnapshotDir::of(into, framing.clone());
    snapshots.prepare().map_err(OpenError::io(into))?;
    let failed = |path: &Path, error: &dyn std::fmt::Display| {
        OpenError::io(path)(std::io::Error::other(error.to_string()))
    };
    snapshots.write(image).map_err(|error| failed(&error.path, &error.cause))?;
    let file = into.join(log::FILE);
    let connection = rusqlite::Connection::open(&file).map_err(OpenError::database(&file))?;
    begin_log(connection, framing, image, vote).map_err(|error| failed(&file, &error))?;
    File::open(&file).and_then(|log| log.sync_all()).map_err(OpenError::io(&file))?;
    let checkpoint =
        LastCheckpoint { audit: image.meta.audit, index: image.meta.index(), ..LastCheckpoint::default() };
    checkpoint.write(into, framing)
}

/// A log whose entries are all in the snapshot.
fn begin_log(
    connection: rusqlite::Connection,
    framing: &Framing,
    image: &Image,
    vote: Option<Vote>,
) -> Result<(), TableError> {
    let mut tables = Tables::open(connection, framing.clone())?;
    tables.begin()?;
    if let Some(vote) = &vote {
        tables.put_vote(vote)?;
    }
    if let Some(log_id) = &image.meta.log_id {
        tables.put_committed(log_id)?;
        tables.purge(log_id)?;
    }
    tables.put_audit_seq(image.meta.audit.seq)?;
    tables.commit()
}
