//! The files of the ring: a few with rising numbers, of which the highest is written to. What else lies beside them
//! is none of ours.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;

use crate::space;
use crate::store::disk;

/// The ring forgets a fourth of itself at a time.
const PARTS: u64 = 4;
const BEGINS: &str = "diagnostics-";
const ENDS: &str = ".jsonl";

#[derive(Debug)]
pub struct Segments {
    path: PathBuf,
    bytes: u64,
}

impl Segments {
    pub fn new(path: PathBuf, bytes: u64) -> Self {
        Self { path, bytes }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The longest line that has a place.
    pub fn longest(&self) -> usize {
        // One more may be needed to end a line that was torn.
        usize::try_from(self.bytes / PARTS).unwrap_or(usize::MAX).saturating_sub(1)
    }

    /// Takes the room for the part that is written to, while there is some: its length stays what it is. Where the
    /// file system cannot do that, nothing is lost.
    pub fn reserve(&self) -> io::Result<()> {
        prepare(&self.path)?;
        let newest = self.numbers()?.last().copied().unwrap_or(1);
        let file = open(&self.place(newest))?;
        if file.metadata()?.blocks().saturating_mul(512) >= self.bytes / PARTS {
            return Ok(());
        }
        match rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, self.bytes / PARTS) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(()),
            done => Ok(done?),
        }
    }

    /// Adds one line. On a full disk the oldest lines make room for it.
    pub fn append(&self, line: &[u8]) -> io::Result<()> {
        if line.len() > self.longest() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "longer than a part of the ring"));
        }
        prepare(&self.path)?;
        match self.try_append(line) {
            Err(error) if space::is_full(&error) && self.give_up_oldest()? => self.try_append(line),
            other => other,
        }
    }

    fn try_append(&self, line: &[u8]) -> io::Result<()> {
        let numbers = self.numbers()?;
        let newest = numbers.last().copied().unwrap_or(1);
        let file = open(&self.place(newest))?;
        let length = file.metadata()?.len();
        let new = u64::try_from(line.len()).unwrap_or(u64::MAX).saturating_add(1);
        if length.saturating_add(new) <= self.bytes / PARTS {
            return add(&file, length, line);
        }
        self.forget(&numbers, usize::try_from(PARTS).unwrap_or(1).saturating_sub(1))?;
        let file = open(&self.place(newest.saturating_add(1)))?;
        add(&file, file.metadata()?.len(), line)
    }

    /// All but the newest `keep`.
    fn forget(&self, numbers: &[u64], keep: usize) -> io::Result<()> {
        for number in numbers.iter().rev().skip(keep) {
            disk::remove(&self.place(*number))?;
        }
        Ok(())
    }

    /// False if there is nothing but the one written to.
    fn give_up_oldest(&self) -> io::Result<bool> {
        let numbers = self.numbers()?;
        if numbers.len() < 2 {
            return Ok(false);
        }
        self.forget(&numbers, numbers.len() - 1)?;
        Ok(true)
    }

    /// Oldest first.
    pub fn contents(&self) -> Vec<Vec<u8>> {
        let numbers = self.numbers().unwrap_or_default();
        numbers.into_iter().filter_map(|number| disk::read(&self.place(number)).ok()).collect()
    }

    fn numbers(&self) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        let entries = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(numbers),
            entries => entries?,
        };
        for entry in entries {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(BEGINS)?.strip_suffix(ENDS));
            numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn place(&self, number: u64) -> PathBuf {
        self.path.join(format!("{BEGINS}{number:010}{ENDS}"))
    }
}

/// The directory, made for this user alone if it is missing.
pub fn prepare(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::NotADirectory,
            format!("{} is not a directory", path.display()),
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().mode(0o700).recursive(true).create(path)
        }
        Err(error) => Err(error),
    }
}

/// A planted link or pipe is an error, and nothing is waited for.
fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut options = OpenOptions::new();
    let file =
        options.read(true).append(true).create(true).mode(disk::SECRET).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("not a regular file")) }
}

/// In one piece, behind a line break if the last line has none. What was written of it when there was no more room
/// is taken back.
fn add(mut file: &File, length: u64, line: &[u8]) -> io::Result<()> {
    let mut last = [b'\n'];
    if length > 0 {
        file.read_exact_at(&mut last, length - 1)?;
    }
    let whole = if last == [b'\n'] { line.to_vec() } else { [b"\n", line].concat() };
    file.write_all(&whole).inspect_err(|_| _ = file.set_len(length))
}
