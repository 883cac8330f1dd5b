//! `keys/log.key.sealed`: the key that authenticates the log, sealed like the others but outside of the log, because it is
//! needed before the log can be read.

use crate::process::chance;
use crate::process::datadir::{DataDir, DirError, replace};
use journal::LogKey;
use pki::seal::Kek;
use std::path::Path;
use zeroize::Zeroizing;

pub const FILE: &str = "log.key.sealed";
/// The same under the next key-encryption key, while that is being changed.
const NEXT: &str = "log.key.next";
const CONTEXT: &str = "log";

#[derive(Debug, thiserror::Error)]
pub enum LogKeyError {
    #[error("{} is missing: the log cannot be authenticated without it", .0.display())]
    Missing(std::path::PathBuf),
    #[error("the log key was not sealed with this key-encryption key, or was damaged")]
    Refused,
    #[error(
        "the log key that opens the log was not sealed with the key-encryption key that the domain's keys are sealed with: \
         somebody put a log of their own there"
    )]
    Foreign,
    #[error("the log key could not be made: {0}")]
    Make(String),
    #[error(transparent)]
    Dir(#[from] DirError),
}

/// Draws one and keeps it, sealed.
pub fn make(path: &Path, kek: &Kek) -> Result<LogKey, LogKeyError> {
    let key = chance::log_key().map_err(|error| LogKeyError::Make(error.to_string()))?;
    let sealed = kek.seal(CONTEXT, key.as_slice()).map_err(|error| LogKeyError::Make(error.to_string()))?;
    replace(path, &sealed, 0o600)?;
    Ok(LogKey::new(&key))
}

/// Opens it with whichever of these opens it.
pub fn load(dir: &DataDir, keks: &[&Kek]) -> Result<LogKey, LogKeyError> {
    let path = dir.keys(FILE);
    if !path.exists() {
        return Err(LogKeyError::Missing(path));
    }
    [FILE, NEXT]
        .iter()
        .find_map(|name| open(dir, name, keks))
        .map(|key| LogKey::new(&key))
        .ok_or(LogKeyError::Refused)
}

/// Whether the log was opened with the key that is sealed under `kek`. While the key-encryption key is being changed, a note in
/// the directory says where the next one lies, and whoever can write the directory can write that note: only the one that
/// opens the domain's keys vouches for the log.
pub fn check_sealed_with(dir: &DataDir, kek: &Kek, used: &LogKey) -> Result<(), LogKeyError> {
    match load(dir, &[kek]) {
        Ok(key) if key.is(used) => Ok(()),
        Ok(_) | Err(LogKeyError::Refused) => Err(LogKeyError::Foreign),
        Err(error) => Err(error),
    }
}

fn open(dir: &DataDir, name: &str, keks: &[&Kek]) -> Option<Zeroizing<[u8; 32]>> {
    let sealed = journal::read_small(&dir.keys(name)).ok()?;
    let key = keks.iter().find_map(|kek| kek.unseal(CONTEXT, &sealed).ok())?;
    key.as_slice().try_into().map(Zeroizing::new).ok()
}

/// Seals it under the next key as well, before anything else is: whichever of the two keys is the right one after a crash
/// opens the log.
pub fn prepare(dir: &DataDir, old: &Kek, next: &Kek) -> Result<(), LogKeyError> {
    let key = open(dir, FILE, &[old]).ok_or(LogKeyError::Refused)?;
    let sealed = next.seal(CONTEXT, key.as_slice()).map_err(|error| LogKeyError::Make(error.to_string()))?;
    Ok(replace(&dir.keys(NEXT), &sealed, 0o600)?)
}

/// The next key is the right one.
pub fn adopt(dir: &DataDir) -> Result<(), DirError> {
    let (from, to) = (dir.keys(NEXT), dir.keys(FILE));
    match journal::read_small(&from) {
        Ok(sealed) => replace(&to, &sealed, 0o600)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(DirError::Io { path: from, error }),
    }
    forget(dir)
}

/// The next key was none.
pub fn forget(dir: &DataDir) -> Result<(), DirError> {
    let path = dir.keys(NEXT);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(DirError::Io { path, error }),
        _ => Ok(()),
    }
}
