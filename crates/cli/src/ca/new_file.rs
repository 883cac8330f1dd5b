//! A file with CSRs, certificates or a list, for everybody to read: made new, whole or not at all.

use crate::error::{CommandError, Exit};
use crate::private_file;
use crate::reach;
use pki::pem;
use rustix::fs::{Access, OFlags, access};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

pub fn write(path: &Path, pem: &str) -> Result<(), CommandError> {
    write_new(path, pem, "choose another --out path")
}

/// The hint is for whoever finds a file there, or a link.
fn write_new(path: &Path, pem: &str, hint: &str) -> Result<(), CommandError> {
    let mut file = match OpenOptions::new().write(true).create_new(true).mode(0o644).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return Err(CommandError::exists(path, hint));
        }
        Err(error) => return Err(CommandError::file(path, &error)),
    };
    file.write_all(pem.as_bytes()).and_then(|()| file.sync_all()).map_err(|error| {
        let _ = std::fs::remove_file(path);
        CommandError::file(path, &error)
    })
}

/// Whether two paths name one file, also before it is made.
pub fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| -> Option<PathBuf> {
        Some(directory(path).canonicalize().ok()?.join(path.file_name()?))
    };
    one == other || real(one).is_some_and(|one| real(other) == Some(one))
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A place for the CSRs of a roll. It is looked at before the roll begins, which makes keys; what is put there meanwhile is neither
/// followed nor overwritten.
pub struct CsrFile<'a> {
    path: &'a Path,
    found: Found,
}

enum Found {
    Nothing,
    /// A pipe or a terminal, which holds nothing.
    Stream,
    /// CSRs, or an empty file.
    Requests(Vec<u8>),
}

impl<'a> CsrFile<'a> {
    /// Refuses a place that cannot be written, and a file with anything but CSRs: it may be a key.
    pub fn check(path: &'a Path, force: bool) -> Result<Self, CommandError> {
        let metadata = match path.symlink_metadata() {
            // `/dev/stdout` is a link to a pipe or a terminal.
            Ok(link) if link.is_symlink() => match path.metadata() {
                Ok(target) if !target.is_file() => target,
                Ok(_) | Err(_) => return Err(is_link(path)),
            },
            Ok(metadata) => metadata,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let writable = access(directory(path), Access::WRITE_OK | Access::EXEC_OK);
                writable.map_err(|error| CommandError::file(directory(path), &error.into()))?;
                return Ok(Self { path, found: Found::Nothing });
            }
            Err(error) => return Err(CommandError::file(path, &error)),
        };
        if metadata.is_dir() {
            return Err(CommandError::file(path, &ErrorKind::IsADirectory.into()));
        }
        access(path, Access::WRITE_OK).map_err(|error| CommandError::file(path, &error.into()))?;
        if !metadata.is_file() {
            return Ok(Self { path, found: Found::Stream });
        }
        let found = reach::read(path)?;
        if !holds_only_requests(&found) {
            return Err(holds_more(path, force));
        }
        Ok(Self { path, found: Found::Requests(found) })
    }

    /// Whether other CSRs lie there than these.
    pub fn holds_other(&self, request: Option<&str>) -> bool {
        match &self.found {
            Found::Requests(found) => Some(found.as_slice()) != request.map(str::as_bytes),
            Found::Nothing | Found::Stream => false,
        }
    }

    pub fn exists(&self) -> CommandError {
        CommandError::new(
            Exit::Usage,
            "file_exists",
            format!("{} exists already and does not hold the CSR of this roll", self.path.display()),
            "choose another path, or replace the CSR in this file with --force; a repeated command gives the same CSR",
        )
    }

    pub fn write(self, request: &str, force: bool) -> Result<(), CommandError> {
        match &self.found {
            Found::Nothing => write_new(self.path, request, WRITE_AGAIN),
            Found::Stream => self.write_to_stream(request),
            Found::Requests(_) if !self.holds_other(Some(request)) => Ok(()),
            Found::Requests(_) if force => self.replace(request),
            Found::Requests(_) => Err(self.exists()),
        }
    }

    fn write_to_stream(&self, request: &str) -> Result<(), CommandError> {
        let failed = |error: std::io::Error| CommandError::file(self.path, &error);
        let mut stream = OpenOptions::new().write(true).open(self.path).map_err(failed)?;
        if stream.metadata().map_err(failed)?.is_file() {
            return Err(CommandError::exists(self.path, WRITE_AGAIN));
        }
        stream.write_all(request.as_bytes()).map_err(failed)
    }

    /// Writes into the very file whose content was looked at.
    fn replace(&self, request: &str) -> Result<(), CommandError> {
        let failed = |error: std::io::Error| CommandError::file(self.path, &error);
        // Not blocking, for a pipe may have been put in its place.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let opened = OpenOptions::new().read(true).write(true).custom_flags(flags).open(self.path);
        let mut file = opened.map_err(failed)?;
        let mut found = Vec::new();
        let is_file = file.metadata().map_err(failed)?.is_file();
        if is_file {
            (&file).take(private_file::MAX_BYTES + 1).read_to_end(&mut found).map_err(failed)?;
        }
        if !is_file || !holds_only_requests(&found) {
            return Err(holds_more(self.path, true));
        }
        let written = file.set_len(0).and_then(|()| file.rewind());
        let written =
            written.and_then(|()| file.write_all(request.as_bytes())).and_then(|()| file.sync_all());
        written.map_err(|error| {
            // An empty file can be used again, half a CSR cannot.
            let _ = file.set_len(0);
            CommandError::file(self.path, &error)
        })
    }
}

const WRITE_AGAIN: &str = "it was put there after the command began; run the command again with another path: it writes the same CSR";

fn is_link(path: &Path) -> CommandError {
    let message = format!("{} is a symbolic link", path.display());
    CommandError::new(
        Exit::Usage,
        "file_exists",
        message,
        "give the path of the file itself, or choose another path",
    )
}

fn holds_more(path: &Path, force: bool) -> CommandError {
    let hint = if force {
        "choose another path: --force replaces CSRs and nothing else"
    } else {
        "choose another path"
    };
    let message = format!("{} exists already and is no file of CSRs", path.display());
    CommandError::new(Exit::Usage, "file_exists", message, hint)
}

/// Nothing at all, or CSRs in PEM and no other text beside them.
fn holds_only_requests(found: &[u8]) -> bool {
    let Ok(requests) = pem::certificate_requests(found) else { return found.is_empty() };
    let characters = |text: &str| text.split_ascii_whitespace().collect::<String>();
    let found = characters(&String::from_utf8_lossy(found)).replace("NEWCERTIFICATE", "CERTIFICATE");
    let requests: String = requests.iter().map(|der| pem::request_pem(der)).collect();
    found == characters(&requests)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lifecycle::names::{IssuerUse, TrustDomain};
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    fn request() -> String {
        let domain = TrustDomain::parse("test.example").unwrap();
        pki::roll::intermediate_request(&domain, IssuerUse::Node).unwrap().csr_pem
    }

    fn code(path: &Path, force: bool) -> String {
        CsrFile::check(path, force).err().map_or_else(String::new, |error| error.code().to_owned())
    }

    #[test]
    fn only_csrs_are_ever_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        for (text, expected) in [
            (String::new(), ""),
            (request(), ""),
            (request() + &request(), ""),
            (key.to_owned(), "file_exists"),
            (request() + key, "file_exists"),
            (request() + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "file_exists"),
            ("notes".to_owned(), "file_exists"),
            (request() + "password=hush\n", "file_exists"),
            ("password=hush\n".to_owned() + &request(), "file_exists"),
            (request().replace("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"), ""),
            (request().replace('\n', "\r\n"), ""),
        ] {
            std::fs::write(&path, &text).unwrap();
            for force in [true, false] {
                assert_eq!(code(&path, force), expected, "{text}");
            }
        }
    }

    #[test]
    fn links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (link, target) = (dir.path().join("next.csr"), dir.path().join("target"));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        for content in [None, Some(String::new()), Some(request())] {
            if let Some(content) = content {
                std::fs::write(&target, content).unwrap();
            }
            assert_eq!((code(&link, false), code(&link, true)), ("file_exists".into(), "file_exists".into()));
        }
        let device = dir.path().join("device");
        std::os::unix::fs::symlink("/dev/null", &device).unwrap();
        CsrFile::check(&device, false).unwrap().write(&request(), false).unwrap();
    }

    #[test]
    fn what_is_put_there_between_check_and_write_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let (path, victim) = (dir.path().join("next.csr"), dir.path().join("victim"));
        let check = |before: Option<String>, planted: &dyn Fn()| {
            let _ = std::fs::remove_file(&path);
            std::fs::write(&victim, "precious").unwrap();
            if let Some(before) = &before {
                std::fs::write(&path, before).unwrap();
            }
            let file = CsrFile::check(&path, true).unwrap();
            let _ = std::fs::remove_file(&path);
            planted();
            assert!(file.write(&request(), true).is_err());
            assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
        };
        for before in [None, Some(request())] {
            check(before.clone(), &|| std::os::unix::fs::symlink(&victim, &path).unwrap());
            check(before, &|| std::fs::write(&path, "precious").unwrap());
        }
        let stream = dir.path().join("stream");
        std::os::unix::fs::symlink("/dev/null", &stream).unwrap();
        let file = CsrFile::check(&stream, true).unwrap();
        std::fs::remove_file(&stream).unwrap();
        std::os::unix::fs::symlink(&victim, &stream).unwrap();
        assert_eq!(file.write(&request(), true).unwrap_err().code(), "file_exists");
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
    }

    #[test]
    fn a_place_that_cannot_be_written_is_known_before() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(code(&dir.path().join("none/next.csr"), false), "file");
        assert_eq!(code(dir.path(), true), "file");
        assert_eq!(code(&dir.path().join("next.csr"), false), "");
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o500)).unwrap();
        let closed = code(&dir.path().join("next.csr"), false);
        assert!(closed == "file" || rustix::process::geteuid().is_root());
        assert!(!dir.path().join("next.csr").exists(), "nothing is made by looking");
    }

    #[test]
    fn the_same_csrs_may_be_there_already() {
        let dir = tempfile::tempdir().unwrap();
        let (path, one, other) = (dir.path().join("next.csr"), request(), request());
        std::fs::write(&path, &one).unwrap();
        let file = CsrFile::check(&path, false).unwrap();
        assert!(!file.holds_other(Some(&one)) && file.holds_other(Some(&other)) && file.holds_other(None));
        assert_eq!(file.write(&other, false).unwrap_err().code(), "file_exists");
        CsrFile::check(&path, true).unwrap().write(&other, true).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), other);
    }

    #[test]
    fn one_file_has_many_names() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (dir.path().join("a"), dir.path().join("./a"));
        assert!(is_same(&one, &other) && is_same(&one, &one));
        assert!(!is_same(&one, &dir.path().join("b")) && is_same(Path::new("a"), Path::new("./a")));
    }
}
