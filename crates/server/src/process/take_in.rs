//! Taking in a data directory of the version before, whose log is not authenticated: once, at its first start.
//!
//! Everything new is written into `DIR/upgrade`. When that is whole, `VERSION` rises; from then on the new files go to their
//! places, and a start that finds `DIR/upgrade` goes on with that. Before, the directory is one of the older version, and
//! what was begun is thrown away. No copy is kept of the keys as the older version sealed them: with such a copy somebody
//! could write a directory of the older version around it and have that taken in.

use crate::ca::keys::{self, SERVER_CONTEXT, UnsealError};
use crate::ca::log_key;
use crate::process::clock;
use crate::process::datadir::{DataDir, DirError, StoreVersion, replace};
use crate::process::run::RunError;
use journal::{Journal, Options};
use pki::seal::Kek;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SERVER_KEY: &str = "server.key.sealed";

fn staging(dir: &DataDir) -> PathBuf {
    dir.path().join("upgrade")
}

/// Brings a directory to the version of this program. `keks` are the keys that may be the right one.
pub async fn take_in(dir: &DataDir, version: StoreVersion, keks: &[&Kek]) -> Result<(), RunError> {
    match version {
        StoreVersion::Older => {
            write_new(dir, keks).await?;
            dir.write_version()?;
            tracing::info!(
                "a data directory of an older version was taken in; its log is authenticated from now on"
            );
        }
        StoreVersion::Current => {}
    }
    Ok(put_in_place(dir)?)
}

async fn write_new(dir: &DataDir, keks: &[&Kek]) -> Result<(), RunError> {
    let staging = staging(dir);
    let at = io_error(&staging);
    remove_dir(&staging).and_then(|()| fs::create_dir(&staging)).map_err(at)?;
    let older = Journal::open(Options::unauthenticated(dir.path(), Arc::new(clock::now))).await?;
    let view = older.view();
    let sealed = keks.iter().map(|kek| Ok((*kek, keys::sealed_anew_from_older(&view.state, kek)?)));
    let (kek, sealed) = first_good(sealed).map_err(RunError::TakeIn)?;
    let key = log_key::make(&staging.join(log_key::FILE), kek)?;
    journal::take_in(older, &staging, key, |state| sealed.replace_sealed_keys(state)).await?;
    let server = journal::read_small(&dir.keys(SERVER_KEY)).ok();
    let opened = server.and_then(|sealed| {
        keks.iter().find_map(|kek| Some((*kek, kek.unseal_older(SERVER_CONTEXT, &sealed).ok()?)))
    });
    if let Some((kek, key)) = opened
        && let Ok(sealed) = kek.seal(SERVER_CONTEXT, &key)
    {
        replace(&staging.join(SERVER_KEY), &sealed, 0o600)?;
    }
    sync(&staging).map_err(io_error(&staging))?;
    Ok(sync(dir.path()).map_err(io_error(dir.path()))?)
}

/// The first that is good, or why the first is not.
fn first_good<T>(mut tried: impl Iterator<Item = Result<T, UnsealError>>) -> Result<T, UnsealError> {
    let first = tried.next().unwrap_or(Err(UnsealError::Missing("key-encryption key")));
    first.or_else(|error| tried.find_map(Result::ok).ok_or(error))
}

/// Each step can be done again after a crash.
fn put_in_place(dir: &DataDir) -> Result<(), DirError> {
    let staging = staging(dir);
    if !staging.exists() {
        return Ok(());
    }
    let moved = || -> io::Result<()> {
        for name in [log_key::FILE, SERVER_KEY] {
            move_over(&staging.join(name), &dir.keys(name))?;
        }
        let log = staging.join("log.db");
        if log.exists() {
            // They belong to the older log.
            for name in ["log.db-wal", "log.db-shm"] {
                remove_file(&dir.path().join(name))?;
            }
            move_over(&log, &dir.path().join("log.db"))?;
        }
        let snapshots = staging.join("snapshots");
        if snapshots.exists() {
            remove_dir(&dir.path().join("snapshots"))?;
            move_over(&snapshots, &dir.path().join("snapshots"))?;
        }
        move_over(&staging.join("checkpoint"), &dir.path().join("checkpoint"))?;
        sync(&dir.keys(""))?;
        sync(dir.path())?;
        remove_dir(&staging)
    };
    moved().map_err(io_error(&staging))
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> DirError {
    let path = path.to_owned();
    move |error| DirError::Io { path, error }
}

fn sync(dir: &Path) -> io::Result<()> {
    fs::File::open(dir)?.sync_all()
}

/// What is not there was moved before.
fn move_over(from: &Path, to: &Path) -> io::Result<()> {
    absent_is_done(fs::rename(from, to))
}

fn remove_file(path: &Path) -> io::Result<()> {
    absent_is_done(fs::remove_file(path))
}

fn remove_dir(path: &Path) -> io::Result<()> {
    absent_is_done(fs::remove_dir_all(path))
}

fn absent_is_done(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
