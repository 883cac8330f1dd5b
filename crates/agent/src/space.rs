//! Free space on this host's disks, and a ballast file that is given up when a key must be written on a full disk.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

use crate::config::Upkeep;
use crate::store::disk;

/// Whether a write failed for want of room, by the disk or by a quota.
pub fn is_full(error: &io::Error) -> bool {
    let errno = error.raw_os_error();
    errno == Some(Errno::NOSPC.raw_os_error()) || errno == Some(Errno::DQUOT.raw_os_error())
}

/// Room at one of the places that the agent watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Free {
    /// `cert`, `diagnostic`, `task_retry` or `runtime`.
    pub name: &'static str,
    pub path: PathBuf,
    pub available_bytes: u64,
    /// Where the file system that holds it begins.
    pub mount: PathBuf,
}

/// Of the agent's own directory and those that the configuration names. One that cannot be looked at is left out, and one in
/// memory, whose room nobody knows.
pub fn free(dir: &Path, upkeep: &Upkeep) -> Vec<Free> {
    let watched = [
        ("cert", Some(dir)),
        ("diagnostic", Some(upkeep.diagnostic_path.as_path())),
        ("task_retry", upkeep.paths.task_retry.as_deref()),
        ("runtime", upkeep.paths.runtime.as_deref()),
    ];
    let look = |(name, path): (&'static str, Option<&Path>)| {
        let path = path?;
        let there = nearest(path).filter(|path| is_bounded(path))?;
        let mount = mount(&there).unwrap_or_else(|| there.clone());
        Some(Free { name, path: path.to_owned(), available_bytes: available(&there).ok()?, mount })
    };
    watched.into_iter().filter_map(look).collect()
}

/// Each file system once.
pub fn mounts(free: &[Free]) -> BTreeMap<String, u64> {
    free.iter().map(|free| (free.mount.display().to_string(), free.available_bytes)).collect()
}

/// What this user may still write there.
pub fn available(path: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(path)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Whether the file system says how large it is. A ramfs does not.
fn is_bounded(path: &Path) -> bool {
    rustix::fs::statvfs(path).is_ok_and(|found| found.f_blocks > 0)
}

/// The path itself, or the nearest directory above it that is there.
fn nearest(path: &Path) -> Option<PathBuf> {
    path.ancestors().find(|path| path.exists()).map(Path::to_owned)
}

/// The topmost directory that lies on the same file system.
fn mount(path: &Path) -> Option<PathBuf> {
    let path = fs::canonicalize(path).ok()?;
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev()).ok();
    let own = device(&path)?;
    path.ancestors().take_while(|above| device(above) == Some(own)).last().map(Path::to_owned)
}

/// Whether so little is left that records and figures give way to keys and certificates.
pub fn is_pressed(available: u64, ballast_bytes: u64) -> bool {
    available < ballast_bytes.saturating_mul(2)
}

/// Whether a new identity might not find room: key, certificates and the links around them, with some to spare.
pub fn is_short(available: u64) -> bool {
    available < 64 * 1024
}

/// `DIR/ballast`: room that is kept taken, so that it can be given up when a key must be written on a full disk.
#[derive(Debug)]
pub struct Ballast {
    path: PathBuf,
    bytes: u64,
    /// Given up, and not taken again since.
    spent: AtomicBool,
}

const NAME: &str = "ballast";
/// Among files of the workload: hidden, and named after whoever put it there.
const NAME_ELSEWHERE: &str = ".enlist-ballast";
/// Taken again only when there is this many times as much.
const PLENTY: u64 = 4;

impl Ballast {
    /// `bytes` of 0 is none at all.
    pub fn new(dir: &Path, bytes: u64) -> Self {
        Self { path: dir.join(NAME), bytes, spent: AtomicBool::new(false) }
    }

    /// In a directory of the workload, for what the workload must be able to write.
    pub fn elsewhere(dir: &Path, bytes: u64) -> Self {
        Self { path: dir.join(NAME_ELSEWHERE), bytes, spent: AtomicBool::new(false) }
    }

    /// Takes the room while there is plenty, and makes it free once there is hardly any left. Nobody tells this program
    /// that a write of another failed, so it looks at what is free.
    pub fn keep_for_others(&self, available: u64) -> io::Result<()> {
        if is_short(available) {
            self.give_up();
            return Ok(());
        }
        self.take()
    }

    /// Whether it was given up for a write and there has not been room for it since: the disk is as full as it was.
    pub fn is_spent(&self) -> bool {
        self.spent.load(Ordering::Relaxed) && !self.is_held()
    }

    pub fn is_held(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|found| found.is_file() && found.len() >= self.bytes)
    }

    /// Takes the room, if it is not taken and there is plenty. A smaller or larger one than wanted is made anew, and
    /// one that is no longer wanted goes.
    pub fn take(&self) -> io::Result<()> {
        let found = fs::symlink_metadata(&self.path);
        if found.as_ref().is_ok_and(|found| found.is_file() && found.len() == self.bytes && self.bytes > 0) {
            return Ok(());
        }
        if found.is_ok() {
            disk::remove(&self.path)?;
        }
        let Some(dir) = self.path.parent().filter(|_| self.bytes > 0) else { return Ok(()) };
        if available(dir)? < self.bytes.saturating_mul(PLENTY) {
            return Ok(());
        }
        let file = OpenOptions::new().write(true).create_new(true).mode(disk::SECRET).open(&self.path)?;
        fill(&file, self.bytes).inspect_err(|_| _ = fs::remove_file(&self.path))?;
        self.spent.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Makes its room free. False if there was none.
    pub fn give_up(&self) -> bool {
        let given = fs::remove_file(&self.path).is_ok();
        self.spent.fetch_or(given, Ordering::Relaxed);
        given
    }

    /// Does what must succeed; if the disk is full, gives up the ballast and does it once more.
    pub fn rescue<T>(&self, mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        match act() {
            Err(error) if is_full(&error) && self.give_up() => act(),
            other => other,
        }
    }
}

/// Really takes the room: a file of the right length may be all hole. Where the file system cannot do it at once, it
/// is written.
fn fill(mut file: &File, bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
        Ok(()) => return file.sync_all(),
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {}
        Err(error) => return Err(error.into()),
    }
    let block = [0x5a; 64 * 1024];
    let mut left = usize::try_from(bytes).unwrap_or(usize::MAX);
    while left > 0 {
        let part = block.get(..left.min(block.len())).unwrap_or(&block);
        file.write_all(part)?;
        left = left.saturating_sub(part.len());
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ballast_takes_real_room_and_gives_it_back() {
        let dir = tempfile::tempdir().unwrap();
        let ballast = Ballast::new(dir.path(), 200_000);
        ballast.take().unwrap();
        let found = fs::metadata(dir.path().join(NAME)).unwrap();
        assert_eq!((found.len(), found.mode() & 0o7777), (200_000, 0o600));
        assert!(found.blocks() * 512 >= 200_000, "it is all hole");
        ballast.take().unwrap();
        assert!(ballast.is_held() && ballast.give_up() && !ballast.give_up() && !ballast.is_held());
        ballast.take().unwrap();
        Ballast::new(dir.path(), 0).take().unwrap();
        assert!(!dir.path().join(NAME).exists(), "none is wanted any more");
    }

    #[test]
    fn a_full_disk_costs_the_ballast_and_not_the_write() {
        let dir = tempfile::tempdir().unwrap();
        let ballast = Ballast::new(dir.path(), 4096);
        ballast.take().unwrap();
        let write = || {
            let full = || io::Error::from(Errno::NOSPC);
            if dir.path().join(NAME).exists() { Err(full()) } else { Ok(7) }
        };
        assert!(!ballast.is_spent());
        assert_eq!(ballast.rescue(write).unwrap(), 7);
        assert!(ballast.is_spent());
        assert!(is_full(&ballast.rescue(|| Err::<(), _>(Errno::DQUOT.into())).unwrap_err()));
        ballast.take().unwrap();
        assert!(!ballast.is_spent());
        assert!(ballast.rescue(|| Err::<(), _>(Errno::ACCESS.into())).is_err());
        assert!(ballast.is_held(), "room was not what was missing");
    }

    #[test]
    fn what_is_kept_for_the_workload_is_given_up_when_its_disk_is_full() {
        let dir = tempfile::tempdir().unwrap();
        let ballast = Ballast::elsewhere(dir.path(), 4096);
        ballast.keep_for_others(1 << 30).unwrap();
        assert!(ballast.is_held() && !ballast.is_spent() && dir.path().join(NAME_ELSEWHERE).exists());
        ballast.keep_for_others(0).unwrap();
        assert!(!ballast.is_held() && ballast.is_spent());
        ballast.keep_for_others(1 << 30).unwrap();
        assert!(ballast.is_held() && !ballast.is_spent());
    }

    #[test]
    fn a_file_that_is_too_large_for_the_disk_is_not_tried() {
        let dir = tempfile::tempdir().unwrap();
        let ballast = Ballast::new(dir.path(), u64::MAX / 8);
        ballast.take().unwrap();
        assert!(!ballast.is_held());
    }

    #[test]
    fn every_watched_place_has_its_room_also_before_it_exists() {
        let dir = tempfile::tempdir().unwrap();
        let environment = crate::config::Environment::default();
        let config = crate::config::load(dir.path(), crate::config::Values::new(), &environment).unwrap();
        let mut upkeep = config.upkeep;
        upkeep.paths.runtime = Some(dir.path().join("not/yet"));
        let free = free(dir.path(), &upkeep);
        let names: Vec<&str> = free.iter().map(|free| free.name).collect();
        assert_eq!(names, ["cert", "diagnostic", "runtime"]);
        assert!(free.iter().all(|free| free.available_bytes > 0));
        assert_eq!(mounts(&free).len(), 1);
        assert!(is_pressed(1999, 1000) && !is_pressed(2000, 1000) && !is_pressed(0, 0));
    }
}
