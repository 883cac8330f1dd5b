//! Where the key-encryption key comes from: a file that only its owner can read, or the environment.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use crate::seal::Kek;

/// Room for 64 hex digits and generous white space.
const MAX_BYTES: u64 = 1024;

#[derive(Debug, thiserror::Error)]
pub enum KekError {
    #[error("the key-encryption key comes from 'file:PATH' or 'env:NAME', not from '{0}'")]
    Source(String),
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("{} can be read by others (mode {mode:04o}); it must be 0600 or stricter", path.display())]
    Exposed { path: PathBuf, mode: u32 },
    #[error("environment variable {0} is not set")]
    Unset(String),
    #[error("{0} does not hold a key-encryption key: 64 hex digits, or 32 bytes in base64")]
    Malformed(KekSource),
    #[error("the system gave no random bytes")]
    Random,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KekSource {
    File(PathBuf),
    Env(String),
}

impl KekSource {
    pub fn parse(text: &str) -> Result<Self, KekError> {
        match text.split_once(':') {
            Some(("file", path)) if !path.is_empty() => Ok(Self::File(PathBuf::from(path))),
            Some(("env", name)) if !name.is_empty() && !name.contains(['=', '\0']) => {
                Ok(Self::Env(name.to_owned()))
            }
            _ => Err(KekError::Source(text.to_owned())),
        }
    }

    pub fn load(&self) -> Result<Kek, KekError> {
        let text = match self {
            Self::File(path) => read_private(path)?,
            Self::Env(name) => {
                Zeroizing::new(std::env::var(name).map_err(|_| KekError::Unset(name.clone()))?)
            }
        };
        decode(text.trim()).map(Kek::from_bytes).ok_or_else(|| KekError::Malformed(self.clone()))
    }

    /// Loads the key; a file that is not there yet is made. Two who try at once end up with the same key.
    pub fn load_or_create(&self) -> Result<Kek, KekError> {
        match (self, self.load()) {
            (Self::File(path), Err(KekError::File { error, .. }))
                if error.kind() == io::ErrorKind::NotFound =>
            {
                create_parent(path)?;
                create(path)?;
                self.load()
            }
            (_, loaded) => loaded,
        }
    }
}

impl std::fmt::Display for KekSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Env(name) => write!(f, "env:{name}"),
        }
    }
}

/// The mode is asked of the open file, not of the path, so it cannot be exchanged in between.
fn read_private(path: &Path) -> Result<Zeroizing<String>, KekError> {
    let failed = |error| KekError::File { path: path.to_owned(), error };
    let file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(KekError::Exposed { path: path.to_owned(), mode });
    }
    let mut text = Zeroizing::new(String::with_capacity(MAX_BYTES as usize));
    file.take(MAX_BYTES).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

fn decode(text: &str) -> Option<Zeroizing<[u8; 32]>> {
    let mut key = Zeroizing::new([0; 32]);
    if hex::decode_to_slice(text, key.as_mut_slice()).is_ok() {
        return Some(key);
    }
    let bytes = Zeroizing::new(STANDARD.decode(text).ok()?);
    *key = <[u8; 32]>::try_from(bytes.as_slice()).ok()?;
    Some(key)
}

/// A fresh machine has no /etc/enlist: made here, for its owner alone.
fn create_parent(path: &Path) -> Result<(), KekError> {
    match path.parent().filter(|parent| !parent.as_os_str().is_empty() && !parent.exists()) {
        None => Ok(()),
        Some(parent) => DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(parent)
            .map_err(|error| KekError::File { path: parent.to_owned(), error }),
    }
}

/// Written whole under another name and then linked to its own, which fails if someone was faster: a crash
/// leaves no half of a key, and no key is ever replaced.
fn create(path: &Path) -> Result<(), KekError> {
    let failed = |error| KekError::File { path: path.to_owned(), error };
    let mut bytes = Zeroizing::new([0; 40]);
    aws_lc_rs::rand::fill(bytes.as_mut_slice()).map_err(|_| KekError::Random)?;
    let (key, chance) = bytes.split_at(32);
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", hex::encode(chance)));
    let draft = PathBuf::from(name);
    let linked = write_private(&draft, key).and_then(|()| fs::hard_link(&draft, path));
    let removed = fs::remove_file(&draft);
    match linked {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        linked => linked.and(removed).map_err(failed)?,
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed)
}

fn write_private(path: &Path, key: &[u8]) -> io::Result<()> {
    let text = Zeroizing::new(hex::encode(key));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.write_all(b"\n")?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str, mode: u32) -> (tempfile::TempDir, KekSource) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kek");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let source = KekSource::parse(&format!("file:{}", path.display())).unwrap();
        (directory, source)
    }

    #[test]
    fn a_source_reads_back_as_written() {
        for text in ["file:/etc/enlist/kek", "file:kek", "env:ENLIST_KEK"] {
            assert_eq!(KekSource::parse(text).unwrap().to_string(), text);
        }
        for bad in ["", "kek", "file:", "env:", "vault:x", "env:A=B"] {
            assert!(matches!(KekSource::parse(bad), Err(KekError::Source(_))), "{bad}");
        }
    }

    #[test]
    fn hex_and_base64_are_the_same_key() {
        let (_one, hex) = written(&format!(" {}\n", "0A".repeat(32)), 0o600);
        let (_two, base64) = written(&STANDARD.encode([10; 32]), 0o400);
        assert_eq!(hex.load().unwrap().id(), base64.load().unwrap().id());
        for bad in ["", "0a", &"0a".repeat(31), &"0a".repeat(33), &"zz".repeat(32)] {
            let (_directory, source) = written(bad, 0o600);
            assert!(matches!(source.load(), Err(KekError::Malformed(_))), "{bad}");
        }
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        for mode in [0o640, 0o604, 0o620, 0o601] {
            let (_directory, source) = written(&"0a".repeat(32), mode);
            let error = source.load_or_create().unwrap_err();
            assert!(error.to_string().contains(&format!("mode {mode:04o}")), "{error}");
        }
    }

    #[test]
    fn a_missing_file_is_made_once_and_a_missing_variable_never() {
        let directory = tempfile::tempdir().unwrap();
        let source = KekSource::File(directory.path().join("kek"));
        assert!(matches!(source.load(), Err(KekError::File { .. })));
        let ids: Vec<String> = std::thread::scope(|scope| {
            let racers: Vec<_> =
                (0..4).map(|_| scope.spawn(|| source.load_or_create().unwrap().id())).collect();
            racers.into_iter().map(|racer| racer.join().unwrap()).collect()
        });
        assert!(ids.iter().all(|id| *id == source.load().unwrap().id()), "{ids:?}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        let unset = KekSource::Env("ENLIST_TEST_KEK_THAT_IS_NOT_SET".to_owned());
        assert!(matches!(unset.load_or_create(), Err(KekError::Unset(_))));
    }
}
