//! Snapshots: the whole registry in one file, from which a replica starts without the older log.
//!
//! `format` says what is in a file, `directory` which files there are and that a file is either whole or not
//! there. The newest two are kept, and the log is purged only up to the older of them: should the newest be
//! damaged, the older one and the log still give everything back.

mod directory;
mod format;
mod lengths;

pub use directory::{FoundSnapshots, SnapshotDir, SnapshotError};
pub use format::{FormatError, Image, ImageMeta, decode, encode};

use std::path::PathBuf;

/// How openraft carries a snapshot about: the file that holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carrier {
    pub path: PathBuf,
}
