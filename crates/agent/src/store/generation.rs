//! Generations: `identity/<number>/` holds one whole identity, `identity/current` points at the one in use.
//!
//! A generation is written under another name, synced, and only then named; `current` is switched by one
//! rename. At every moment a reader finds either the old identity or the new one, never parts of both.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::disk;

const CURRENT: &str = "current";
/// Begins the names of what is not finished.
const UNFINISHED: &str = ".new-";
const DIGITS: usize = 10;

/// One generation's number; higher is newer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Number(u64);

impl Number {
    fn parse(name: &str) -> Option<Self> {
        let plain = name.len() == DIGITS && name.bytes().all(|byte| byte.is_ascii_digit());
        if plain { name.parse().ok().map(Self) } else { None }
    }
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:0DIGITS$}", self.0)
    }
}

/// One file of a generation.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    pub name: &'static str,
    pub bytes: &'a [u8],
    pub mode: u32,
}

/// The directory `identity`.
#[derive(Debug, Clone)]
pub struct Generations(PathBuf);

impl Generations {
    pub fn under(dir: &Path) -> Self {
        Self(dir.join("identity"))
    }

    /// Where the identity in use is, for people and other programs.
    pub fn current_path(&self) -> PathBuf {
        self.0.join(CURRENT)
    }

    /// The agent's directory, in which it lies.
    pub fn dir(&self) -> &Path {
        self.0.parent().unwrap_or(&self.0)
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.0
    }

    pub fn path(&self, number: Number) -> PathBuf {
        self.0.join(number.to_string())
    }

    /// The generation in use. A link to anywhere but a generation counts as none.
    pub fn current(&self) -> io::Result<Option<Number>> {
        match fs::read_link(self.current_path()) {
            Ok(target) => Ok(target.to_str().and_then(Number::parse)),
            // Not there, or not a link.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidInput) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether a generation could be written and put to use. Asked before a token is spent for one.
    pub fn check(&self) -> io::Result<()> {
        disk::private_dir(&self.0)?;
        match fs::symlink_metadata(self.current_path()) {
            Ok(found) if !found.is_symlink() => {
                Err(io::Error::other(format!("{} is not a symbolic link", self.current_path().display())))
            }
            _ => Ok(()),
        }
    }

    /// Writes a generation without using it yet. `spare` is another that is not in use yet and stays.
    pub fn write(&self, parts: &[Part<'_>], spare: Option<Number>) -> io::Result<Number> {
        disk::private_dir(&self.0)?;
        self.tidy(spare)?;
        let last = self.numbers()?.into_iter().max().map_or(0, |number| number.0);
        let number = Number(last + 1);
        let unfinished = self.0.join(format!("{UNFINISHED}{number}"));
        disk::private_dir(&unfinished)?;
        for part in parts {
            disk::create(&unfinished.join(part.name), part.bytes, part.mode)?;
        }
        disk::sync_dir(&unfinished)?;
        fs::rename(&unfinished, self.path(number))?;
        disk::sync_dir(&self.0)?;
        Ok(number)
    }

    /// Puts a generation to use, then removes what is older than its predecessor, but not `spare`.
    pub fn switch(&self, number: Number, spare: Option<Number>) -> io::Result<()> {
        let fresh = self.0.join(format!("{UNFINISHED}{CURRENT}"));
        disk::remove(&fresh)?;
        symlink(number.to_string(), &fresh)?;
        fs::rename(&fresh, self.current_path())?;
        disk::sync_dir(&self.0)?;
        // It is in use; that something old could not be removed is no failure of the switch.
        if let Err(error) = self.tidy(spare) {
            tracing::warn!(%error, "old generations could not be removed");
        }
        Ok(())
    }

    /// Removes what a crash left behind, and all but the current generation, the one before it, and `spare`.
    pub fn tidy(&self, spare: Option<Number>) -> io::Result<()> {
        let current = self.current()?;
        let before = self.numbers()?.into_iter().filter(|number| Some(*number) < current).max();
        for name in self.names()? {
            let stale = match Number::parse(&name) {
                Some(number) => ![current, before, spare].contains(&Some(number)),
                None => name.starts_with(UNFINISHED),
            };
            if stale {
                disk::remove(&self.0.join(name))?;
            }
        }
        Ok(())
    }

    /// Every generation that was finished.
    pub fn numbers(&self) -> io::Result<Vec<Number>> {
        Ok(self.names()?.iter().filter_map(|name| Number::parse(name)).collect())
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut names = Vec::new();
        for entry in entries {
            names.extend(entry?.file_name().into_string().ok());
        }
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: [Part<'static>; 1] = [Part { name: "key.pem", bytes: b"key", mode: disk::SECRET }];

    fn listing(generations: &Generations) -> Vec<String> {
        let mut names = generations.names().unwrap();
        names.sort();
        names
    }

    #[test]
    fn the_current_generation_and_its_predecessor_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let generations = Generations::under(dir.path());
        for _ in 0..4 {
            generations.switch(generations.write(&PARTS, None).unwrap(), None).unwrap();
        }
        assert_eq!(listing(&generations), ["0000000003", "0000000004", "current"]);
        assert_eq!(generations.current().unwrap(), Some(Number(4)));
        assert_eq!(fs::read(generations.current_path().join("key.pem")).unwrap(), b"key");
    }

    #[test]
    fn what_a_crash_left_behind_is_ignored_and_cleaned() {
        let dir = tempfile::tempdir().unwrap();
        let generations = Generations::under(dir.path());
        generations.switch(generations.write(&PARTS, None).unwrap(), None).unwrap();
        // Killed before the switch, before the rename, and between the link and its rename.
        generations.write(&PARTS, None).unwrap();
        fs::create_dir(dir.path().join("identity/.new-0000000003")).unwrap();
        symlink("0000000002", dir.path().join("identity/.new-current")).unwrap();
        assert_eq!(generations.current().unwrap(), Some(Number(1)));
        let number = generations.write(&PARTS, None).unwrap();
        assert_eq!(listing(&generations), ["0000000001", "0000000002", "current"]);
        generations.switch(number, None).unwrap();
        assert_eq!(generations.current().unwrap(), Some(Number(2)));
    }

    #[test]
    fn a_generation_to_be_spared_outlives_others() {
        let dir = tempfile::tempdir().unwrap();
        let generations = Generations::under(dir.path());
        generations.switch(generations.write(&PARTS, None).unwrap(), None).unwrap();
        let spare = Some(generations.write(&PARTS, None).unwrap());
        for _ in 0..3 {
            generations.switch(generations.write(&PARTS, spare).unwrap(), spare).unwrap();
        }
        assert_eq!(listing(&generations), ["0000000002", "0000000004", "0000000005", "current"]);
        generations.switch(Number(2), None).unwrap();
        assert_eq!(listing(&generations), ["0000000002", "current"]);
    }

    #[test]
    fn a_link_to_elsewhere_is_no_generation() {
        let dir = tempfile::tempdir().unwrap();
        let generations = Generations::under(dir.path());
        disk::private_dir(&dir.path().join("identity")).unwrap();
        for target in ["/etc", "../other", "0000000001/..", "00000000001", "１000000000"] {
            symlink(target, generations.current_path()).unwrap();
            assert_eq!(generations.current().unwrap(), None, "{target}");
            generations.check().unwrap();
            fs::remove_file(generations.current_path()).unwrap();
        }
        fs::create_dir(generations.current_path()).unwrap();
        assert_eq!(generations.current().unwrap(), None);
        assert!(generations.check().is_err());
    }

    #[test]
    fn a_planted_directory_link_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        symlink(elsewhere.path(), dir.path().join("identity")).unwrap();
        assert!(Generations::under(dir.path()).check().is_err());
        assert!(Generations::under(dir.path()).write(&PARTS, None).is_err());
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }
}
