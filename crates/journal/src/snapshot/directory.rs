//! The directory of snapshots: `DIR/snapshots/<index>.snap`, the newest two.

use super::format::{self, FormatError, Image, ImageMeta};
use crate::framing::Framing;
use crate::regular::{create_anew, open_regular};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const KEPT: usize = 2;
/// How long to wait for a descriptor between two tries.
const DESCRIPTOR_PAUSE: Duration = Duration::from_millis(100);

/// Why a snapshot cannot be kept or read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {cause}", .path.display())]
pub struct SnapshotError {
    pub path: PathBuf,
    pub cause: FormatError,
}

/// What is in the directory.
#[derive(Debug)]
pub struct FoundSnapshots {
    /// The newest snapshot that can be read.
    pub image: Option<Image>,
    /// Newer ones that cannot.
    pub damaged: Vec<SnapshotError>,
}

#[derive(Debug, Clone)]
pub struct SnapshotDir {
    dir: PathBuf,
    framing: Framing,
}

impl SnapshotDir {
    pub fn of(data: &Path, framing: Framing) -> Self {
        Self { dir: data.join("snapshots"), framing }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes the directory.
    pub fn prepare(&self) -> std::io::Result<()> {
        std::fs::create_dir_all(&self.dir)?;
        // What an earlier process did not receive to the end.
        for entry in std::fs::read_dir(&self.dir)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with("incoming") {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    pub fn path(&self, index: u64) -> PathBuf {
        self.dir.join(format!("{index:020}.snap"))
    }

    /// Where a snapshot from another replica is written until it is installed.
    pub fn incoming(&self, number: u64) -> PathBuf {
        self.dir.join(format!("incoming-{number}"))
    }

    /// The indexes of all snapshots, the newest first. A directory that is not there holds none.
    pub fn indexes(&self) -> std::io::Result<Vec<u64>> {
        let entries = match std::fs::read_dir(&self.dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let mut indexes = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            let index: Option<u64> = name.to_str().and_then(|name| name.strip_suffix(".snap")?.parse().ok());
            indexes.extend(index);
        }
        indexes.sort_unstable_by(|a, b| b.cmp(a));
        Ok(indexes)
    }

    /// Reads the newest good snapshot and names the damaged ones it passed on the way. Changes nothing.
    pub fn find(&self) -> Result<FoundSnapshots, SnapshotError> {
        let indexes = self.indexes().map_err(|error| self.fault(&self.dir, error.into()))?;
        let mut damaged = Vec::new();
        for index in indexes {
            match self.read(&self.path(index), index) {
                Ok(image) => return Ok(FoundSnapshots { image: Some(image), damaged }),
                Err(error) => damaged.push(error),
            }
        }
        Ok(FoundSnapshots { image: None, damaged })
    }

    /// The snapshot of this index.
    pub fn read(&self, path: &Path, index: u64) -> Result<Image, SnapshotError> {
        let file = open_regular(path).map_err(|error| self.fault(path, error.into()))?;
        format::decode(file, &self.framing, index).map_err(|cause| self.fault(path, cause))
    }

    /// What a snapshot says about itself.
    pub fn read_meta(&self, index: u64) -> Result<ImageMeta, SnapshotError> {
        let path = self.path(index);
        let file = open_regular(&path).map_err(|error| self.fault(&path, error.into()))?;
        format::peek(file).map_err(|cause| self.fault(&path, cause))
    }

    /// What the newest snapshot says about itself.
    pub fn newest(&self) -> Result<Option<(ImageMeta, PathBuf)>, SnapshotError> {
        let indexes = self.indexes().map_err(|error| self.fault(&self.dir, error.into()))?;
        let Some(path) = indexes.first().map(|index| self.path(*index)) else { return Ok(None) };
        let file = open_regular(&path).map_err(|error| self.fault(&path, error.into()))?;
        let meta = format::peek(file).map_err(|cause| self.fault(&path, cause))?;
        Ok(Some((meta, path)))
    }

    /// Writes a snapshot: whole and on disk when this returns, or not there at all.
    pub fn write(&self, image: &Image) -> Result<PathBuf, SnapshotError> {
        self.write_unless(image, &AtomicBool::new(false))
    }

    /// The same, given up as soon as `abandoned` is set: a stop does not wait for a registry of any size.
    pub fn write_unless(&self, image: &Image, abandoned: &AtomicBool) -> Result<PathBuf, SnapshotError> {
        let path = self.path(image.meta.index());
        let unfinished = path.with_extension("tmp");
        let put = || -> Result<(), FormatError> {
            let mut file = with_descriptors(abandoned, || create_anew(&unfinished))?;
            format::encode(image, Abandonable { file: &mut file, abandoned }, &self.framing)?;
            file.sync_all()?;
            std::fs::rename(&unfinished, &path)?;
            with_descriptors(abandoned, || File::open(&self.dir))?.sync_all()?;
            Ok(())
        };
        put().map_err(|cause| {
            // Nobody reads it; the error above is the one to tell.
            let _ = std::fs::remove_file(&unfinished);
            self.fault(&path, cause)
        })?;
        self.tidy().map_err(|error| self.fault(&self.dir, error.into()))?;
        Ok(path)
    }

    /// Takes a damaged snapshot out of the row and keeps it for whoever wants to look at it.
    pub fn set_aside(&self, path: &Path) -> std::io::Result<()> {
        std::fs::rename(path, path.with_extension("damaged"))
    }

    fn tidy(&self) -> std::io::Result<()> {
        for old in self.indexes()?.into_iter().skip(KEPT) {
            std::fs::remove_file(self.path(old))?;
        }
        Ok(())
    }

    fn fault(&self, path: &Path, cause: FormatError) -> SnapshotError {
        SnapshotError { path: path.to_owned(), cause }
    }
}

/// A file that takes no more once it is abandoned.
struct Abandonable<'a> {
    file: &'a mut File,
    abandoned: &'a AtomicBool,
}

impl Write for Abandonable<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.abandoned.load(Ordering::Relaxed) {
            return Err(std::io::Error::other("given up: there was no time left"));
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

impl Seek for Abandonable<'_> {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.file.seek(to)
    }
}
/// Opens, and waits where this process has no descriptor left for it: connections give theirs back soon, and a registry whose snapshot
/// fails serves no more.
fn with_descriptors(
    abandoned: &AtomicBool,
    open: impl Fn() -> std::io::Result<File>,
) -> std::io::Result<File> {
    loop {
        match open() {
            Err(error) if has_none_left(&error) && !abandoned.load(Ordering::Relaxed) => {
                std::thread::sleep(DESCRIPTOR_PAUSE);
            }
            opened => return opened,
        }
    }
}

/// EMFILE or ENFILE.
fn has_none_left(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(24 | 23))
}
