//! `recovery/root-crls.pem`: each root of which this host has ever stored a revocation list, with the newest one. A generation may lose
//! its bundle or its lists, and a root may leave the bundle: what was denied once stays denied, to a recovery above all.

use std::io;
use std::path::{Path, PathBuf};

use client::RootLists;

use super::disk::{self, PUBLIC};
use super::recovery;

const NAME: &str = "root-crls.pem";

/// One that is lost or spoilt counts as none: the control plane sends the lists again.
pub fn read(dir: &Path) -> RootLists {
    let text = disk::read(&place(dir)).unwrap_or_default();
    RootLists::read(&text, &[]).unwrap_or_default()
}

/// Adds what is newer; on disk when this returns.
pub fn keep(dir: &Path, lists: &RootLists) -> io::Result<()> {
    let known = read(dir);
    let all = lists.and(&known);
    if all == known {
        return Ok(());
    }
    disk::private_dir(&recovery::place(dir))?;
    disk::replace(&place(dir), all.pem_with_roots().as_bytes(), PUBLIC)
}

fn place(dir: &Path) -> PathBuf {
    recovery::place(dir).join(NAME)
}
