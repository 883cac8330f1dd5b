//! A ramfs that is mounted nowhere: no path leads to it but through a descriptor, its pages are never swapped, and it is gone
//! with the last descriptor.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, fstatfs, openat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen,
};
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::store::disk;

const KIND: &str = "ramfs";
/// What fstatfs says of one.
const MAGIC: u64 = 0x8584_58f6;
/// Says whose it is.
const OWNER: &str = "owner.json";
const FORM: u32 = 1;

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StoreOwner {
    form: u32,
    /// The directory of the agent that made it.
    dir: PathBuf,
    made_at: String,
}

#[derive(Debug)]
pub struct MemoryFileSystem {
    root: File,
    path: PathBuf,
    made_at: String,
}

impl MemoryFileSystem {
    /// Needs the right to mount, for that moment.
    pub fn create(dir: &Path) -> io::Result<Self> {
        let context = fsopen(KIND, FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_set_string(&context, "mode", "0700")?;
        fsconfig_create(&context)?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
        let root = openat(&mount, ".", flags(), Mode::empty())?;
        let made = Self::at(File::from(root))?;
        let owner = StoreOwner { form: FORM, dir: dir.to_owned(), made_at: clock::now().to_string() };
        disk::create(&made.path.join(OWNER), &serde_json::to_vec(&owner)?, disk::SECRET)?;
        Ok(Self { made_at: owner.made_at, ..made })
    }

    /// One that this agent made before, behind a descriptor of this process; else why it is not.
    pub fn handed(descriptor: i32, dir: &Path) -> Result<Self, String> {
        let path = format!("/proc/self/fd/{descriptor}");
        let root = rustix::fs::open(&path, flags(), Mode::empty()).map_err(|error| match error {
            rustix::io::Errno::NOTDIR => "it is not a directory".to_owned(),
            error => error.to_string(),
        })?;
        let found = Self::at(File::from(root)).map_err(|error| error.to_string())?;
        if !is_ramfs(&found.root).unwrap_or(false) {
            return Err("it is not in memory".to_owned());
        }
        let root = found.root.metadata().map_err(|error| error.to_string())?;
        if root.uid() != rustix::process::geteuid().as_raw() || root.mode() & 0o077 != 0 {
            return Err("it is not this user's alone".to_owned());
        }
        let owner = disk::read(&found.path.join(OWNER)).map_err(|_| "it is none of an agent".to_owned())?;
        match serde_json::from_slice::<StoreOwner>(&owner) {
            Ok(owner) if owner.form != FORM => Err(format!("its form is {}, not {FORM}", owner.form)),
            Ok(owner) if owner.dir != dir => Err(format!("it is of the agent of {}", owner.dir.display())),
            Ok(owner) => Ok(Self { made_at: owner.made_at, ..found }),
            Err(_) => Err("it is none of an agent".to_owned()),
        }
    }

    fn at(root: File) -> io::Result<Self> {
        let path = PathBuf::from(format!("/proc/self/fd/{}", root.as_raw_fd()));
        // Without /proc every path into it would fail, one after the other.
        fs::metadata(&path).map_err(|error| io::Error::new(error.kind(), format!("/proc: {error}")))?;
        Ok(Self { root, path, made_at: String::new() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// As root sees it, in another process.
    pub fn path_for_others(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.root.as_raw_fd())
    }

    pub fn holds_identity(&self) -> bool {
        self.path.join("identity/current").symlink_metadata().is_ok()
    }

    /// Orders those of one agent.
    pub fn made_at(&self) -> &str {
        &self.made_at
    }
}

impl AsFd for MemoryFileSystem {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }
}

/// Whether what lies at a path is in memory, and never swapped.
pub fn is_in_memory(path: &Path) -> bool {
    File::open(path).is_ok_and(|found| is_ramfs(&found).unwrap_or(false))
}

fn is_ramfs(file: &File) -> io::Result<bool> {
    let kind = fstatfs(file)?.f_type;
    // The kernel's number has 32 bits; its type may be signed.
    Ok(kind.cast_unsigned() & 0xffff_ffff == MAGIC)
}

fn flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC
}
