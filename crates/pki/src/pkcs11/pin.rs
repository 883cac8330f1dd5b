//! Where the PIN comes from, and that a wrong one is tried once.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::seal::Kek;

const MAX_BYTES: u64 = 1024;
/// What the memory of a refused PIN is sealed as.
const CONTEXT: &str = "pkcs11/refused-pin";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a PIN comes from 'file:PATH' or 'env:NAME', not from '{0}'")]
pub struct PinSourceError(String);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PinSource {
    File(PathBuf),
    Env(String),
}

impl PinSource {
    pub fn parse(text: &str) -> Result<Self, PinSourceError> {
        match text.split_once(':') {
            Some(("file", path)) if !path.is_empty() => Ok(Self::File(PathBuf::from(path))),
            Some(("env", name)) if !name.is_empty() && !name.contains(['=', '\0']) => {
                Ok(Self::Env(name.to_owned()))
            }
            // It may be the PIN itself, which no message may show.
            Some((scheme @ ("file" | "env"), _)) => Err(PinSourceError(format!("{scheme}:"))),
            _ => Err(PinSourceError("(not shown)".to_owned())),
        }
    }

    pub(super) fn load(&self) -> Result<LoadedPin, String> {
        match self {
            Self::Env(name) => {
                let value =
                    std::env::var(name).map_err(|_| format!("environment variable {name} is not set"))?;
                LoadedPin::new(Zeroizing::new(value), &[])
                    .ok_or_else(|| format!("environment variable {name} is empty"))
            }
            Self::File(path) => {
                let failed = |error: std::io::Error| format!("{}: {error}", path.display());
                // Asked before it is opened: opening a pipe would wait for a writer.
                if !std::fs::metadata(path).map_err(failed)?.is_file() {
                    return Err(format!("{}: not a regular file", path.display()));
                }
                let file = File::open(path).map_err(failed)?;
                let about = file.metadata().map_err(failed)?;
                let mode = about.permissions().mode() & 0o7777;
                if mode & 0o077 != 0 {
                    let path = path.display();
                    return Err(format!(
                        "{path} can be read by others (mode {mode:04o}); it must be 0600 or stricter"
                    ));
                }
                let mut text = Zeroizing::new(String::with_capacity(MAX_BYTES as usize));
                file.take(MAX_BYTES).read_to_string(&mut text).map_err(failed)?;
                let changed = [about.mtime().to_be_bytes(), about.mtime_nsec().to_be_bytes()].concat();
                LoadedPin::new(text, &changed).ok_or_else(|| format!("{} is empty", path.display()))
            }
        }
    }
}

impl std::fmt::Display for PinSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Env(name) => write!(f, "env:{name}"),
        }
    }
}

/// A PIN, and a mark by which it is known again together with when its source was changed.
pub(super) struct LoadedPin {
    pub text: Zeroizing<String>,
    pub mark: [u8; 32],
}

impl LoadedPin {
    fn new(text: Zeroizing<String>, changed: &[u8]) -> Option<Self> {
        let pin = Zeroizing::new(text.trim_end_matches(['\r', '\n']).to_owned());
        let mark = crate::digest::sha256(&Zeroizing::new([changed, &[0], pin.as_bytes()].concat()));
        (!pin.is_empty()).then_some(Self { text: pin, mark })
    }
}

/// Remembers which PIN was refused. In a file, also over a restart: sealed, because whoever reads a plain hash of a PIN can
/// find the PIN by trying all.
#[derive(Default)]
pub struct PinMemory {
    file: Option<(PathBuf, Arc<Kek>)>,
    refused: Option<([u8; 32], String)>,
}

impl PinMemory {
    /// A file that cannot be read or opened with this key counts as none.
    pub fn in_file(path: PathBuf, kek: Arc<Kek>) -> Self {
        let opened = std::fs::read(&path).ok().and_then(|sealed| kek.unseal(CONTEXT, &sealed).ok());
        let refused = opened.and_then(|held| {
            let (mark, why) = held.split_at_checked(32)?;
            Some((<[u8; 32]>::try_from(mark).ok()?, String::from_utf8_lossy(why).into_owned()))
        });
        Self { file: Some((path, kek)), refused }
    }

    /// Why this PIN was refused before.
    pub(super) fn refusal(&self, pin: &LoadedPin) -> Option<String> {
        self.refused.as_ref().filter(|(mark, _)| *mark == pin.mark).map(|(_, why)| why.clone())
    }

    pub(super) fn refuse(&mut self, pin: &LoadedPin, why: &str) {
        self.refused = Some((pin.mark, why.to_owned()));
        if let Some((path, kek)) = &self.file
            && let Ok(sealed) = kek.seal(CONTEXT, &[&pin.mark, why.as_bytes()].concat())
        {
            // Without the file it is remembered until the process ends.
            let _ = write(path, &sealed);
        }
    }

    pub(super) fn accept(&mut self) {
        if self.refused.take().is_some()
            && let Some((path, _)) = &self.file
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn write(path: &std::path::Path, sealed: &[u8]) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(sealed)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn written(text: &str, mode: u32) -> (tempfile::TempDir, PinSource) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pin");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        (directory, PinSource::File(path))
    }

    #[test]
    fn a_source_reads_back_as_written_and_a_pin_in_its_place_is_not_shown() {
        for text in ["file:/etc/enlist/pin", "env:HSM_PIN"] {
            assert_eq!(PinSource::parse(text).unwrap().to_string(), text);
        }
        for bad in ["", "123456", "file:", "env:A=B", "pin:123456"] {
            let error = PinSource::parse(bad).unwrap_err().to_string();
            assert!(!error.contains("123456"), "{error}");
        }
    }

    #[test]
    fn a_pin_is_one_line_that_nobody_else_can_read() {
        let (_one, source) = written("1234\n", 0o600);
        assert_eq!(*source.load().ok().unwrap().text, "1234");
        let (_two, source) = written("1234", 0o640);
        assert!(source.load().err().unwrap().contains("0640"));
        let (_three, source) = written("\n", 0o600);
        assert!(source.load().err().unwrap().contains("is empty"));
    }

    #[test]
    fn a_refused_pin_is_known_until_its_source_changes() {
        let (directory, source) = written("1234", 0o600);
        let kek = || Arc::new(Kek::from_bytes(Zeroizing::new([7; 32])));
        let file = directory.path().join("refused");
        let pin = source.load().ok().unwrap();
        PinMemory::in_file(file.clone(), kek()).refuse(&pin, "wrong");
        assert!(!fs::read(&file).unwrap().windows(32).any(|bytes| bytes == pin.mark));
        let mut memory = PinMemory::in_file(file.clone(), kek());
        assert_eq!(memory.refusal(&source.load().ok().unwrap()).as_deref(), Some("wrong"));
        // The same PIN, written again: the operator wants it tried.
        let PinSource::File(path) = &source else { unreachable!() };
        let later = std::time::Duration::from_secs(3600);
        let touched = fs::metadata(path).unwrap().modified().unwrap() + later;
        File::options().write(true).open(path).unwrap().set_modified(touched).unwrap();
        let again = source.load().ok().unwrap();
        assert_eq!(memory.refusal(&again), None);
        memory.accept();
        assert!(!file.exists() && memory.refusal(&pin).is_none());
    }
}
