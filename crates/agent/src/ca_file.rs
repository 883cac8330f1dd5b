//! The CA file that an operator names, and beside it the revocation lists of its roots (`ca.pem`, `ca-crls.pem`), as operators' command
//! lines have them: a host that keeps nothing on disk has no other. Regular files of a bounded size, links followed.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use client::{RootLists, Trust, lists_beside};
use rustix::fs::OFlags;

/// More than any bundle.
const MAX_BYTES: u64 = 256 * 1024;

/// Why not, where the file or the lists beside it cannot be used.
pub fn trust(path: &Path) -> Result<Trust, String> {
    let pem = read(path).map_err(|error| error.to_string())?;
    let trust = Trust::from_ca_pem(&pem).map_err(|error| error.to_string())?;
    let file = lists_beside(path);
    let unusable = |why: &dyn std::fmt::Display| format!("the revocation lists in {}: {why}", file.display());
    match read(&file) {
        Ok(text) => {
            let lists = RootLists::read_whole(&text, trust.anchors()).map_err(|error| unusable(&error))?;
            Ok(trust.denying(lists.denied()))
        }
        // A link that leads nowhere is no absent file: there were lists once.
        Err(error) if error.kind() == io::ErrorKind::NotFound && file.symlink_metadata().is_err() => {
            Ok(trust)
        }
        Err(error) => Err(unusable(&error)),
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    // Not blocking, for a pipe in its place would make us wait for its other end.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!("more than {MAX_BYTES} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_that_cannot_be_read_do_not_count_as_none() {
        let domain = lifecycle::names::TrustDomain::parse("test.example").unwrap();
        let at = lifecycle::names::Timestamp::from_secs(1_800_000_000);
        let made = pki::hierarchy::create(&domain, at, [[1; 16], [2; 16], [3; 16]]).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let (ca, lists) = (dir.path().join("prod.pem"), dir.path().join("prod-crls.pem"));
        std::fs::write(&ca, pki::pem::certificate_pem(&made.root_der)).unwrap();
        assert!(trust(&ca).is_ok(), "there are none");
        std::os::unix::fs::symlink(dir.path().join("nowhere"), &lists).unwrap();
        assert!(trust(&ca).unwrap_err().contains("prod-crls.pem"));
        std::fs::remove_file(&lists).unwrap();
        std::fs::write(&lists, "garbage").unwrap();
        assert!(trust(&ca).unwrap_err().contains("prod-crls.pem"));
    }

    #[test]
    fn only_a_regular_file_of_a_bounded_size_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link, pipe) =
            (dir.path().join("ca.pem"), dir.path().join("link"), dir.path().join("pipe"));
        let check = |path: &Path| read(path).map(|bytes| bytes.len()).map_err(|error| error.to_string());
        std::fs::write(&file, vec![b'x'; 256 * 1024]).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!((check(&file), check(&link)), (Ok(256 * 1024), Ok(256 * 1024)));
        std::fs::write(&file, vec![b'x'; 256 * 1024 + 1]).unwrap();
        assert_eq!(check(&link), Err("more than 262144 bytes".to_owned()));
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        for other in [pipe.as_path(), dir.path(), Path::new("/dev/zero")] {
            assert_eq!(check(other), Err("not a regular file".to_owned()));
        }
    }
}
