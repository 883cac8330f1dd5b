//! The mark `revoked`: the control plane, having proven who it is, has said that this host's identity is no more.
//!
//! It names the certificate, so that a new identity is never taken for the one that was revoked.

use std::io;
use std::path::Path;

use lifecycle::names::Serial;

use super::disk;

const NAME: &str = "revoked";

pub fn set(dir: &Path, serial: &Serial) -> io::Result<()> {
    if is_set(dir, serial) {
        return Ok(());
    }
    disk::replace(&dir.join(NAME), format!("{serial}\n").as_bytes(), disk::SECRET)
}

pub fn is_set(dir: &Path, serial: &Serial) -> bool {
    disk::read(&dir.join(NAME)).is_ok_and(|bytes| bytes.trim_ascii() == serial.as_str().as_bytes())
}

/// Nothing is written if there is no mark, which is the rule.
pub fn clear(dir: &Path) -> io::Result<()> {
    if std::fs::symlink_metadata(dir.join(NAME)).is_err() {
        return Ok(());
    }
    disk::remove(&dir.join(NAME))?;
    disk::sync_dir(dir)
}
