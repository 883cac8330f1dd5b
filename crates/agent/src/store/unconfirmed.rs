//! The mark `unconfirmed`: this host has its identity, and has not confirmed it to the control plane yet.
//!
//! It names the certificate, so that a mark left by a crash is never taken for one about another identity.

use std::io;
use std::path::Path;

use lifecycle::names::Serial;

use super::disk;

const NAME: &str = "unconfirmed";

pub fn set(dir: &Path, serial: &Serial) -> io::Result<()> {
    disk::replace(&dir.join(NAME), format!("{serial}\n").as_bytes(), disk::SECRET)
}

pub fn is_set(dir: &Path, serial: &Serial) -> bool {
    disk::read(&dir.join(NAME)).is_ok_and(|bytes| bytes.trim_ascii() == serial.as_str().as_bytes())
}

pub fn clear(dir: &Path) -> io::Result<()> {
    disk::remove(&dir.join(NAME))?;
    disk::sync_dir(dir)
}
