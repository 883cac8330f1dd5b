//! Opening what lies in a data directory: whoever could write there may have left a pipe, which would be waited for without
//! end, a link to somebody else's file, or one to a device that never ends.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::path::Path;

/// Keys, marks and versions are shorter.
const SMALL: u64 = 64 * 1024;

/// Opens a file that is one, and no link to one.
pub fn open_regular(path: &Path) -> io::Result<File> {
    if std::fs::symlink_metadata(path)?.is_file() {
        File::open(path)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a regular file"))
    }
}

/// The whole of a small one.
pub fn read_small(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(SMALL + 1).read_to_end(&mut bytes)?;
    match u64::try_from(bytes.len()) {
        Ok(length) if length <= SMALL => Ok(bytes),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "it is larger than 64 KiB")),
    }
}

/// A new file in the place of whatever was left there; a link is removed, not followed.
pub(crate) fn create_anew(path: &Path) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_are_opened_and_links_are_not_written_through() {
        let dir = tempfile::tempdir().expect("a directory");
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        std::fs::write(&file, "kept").expect("written");
        std::os::unix::fs::symlink(&file, &link).expect("linked");
        assert_eq!(read_small(&file).expect("read"), b"kept");
        assert!(read_small(&link).is_err() && read_small(dir.path()).is_err());
        drop(create_anew(&link).expect("created"));
        assert_eq!(read_small(&file).expect("read"), b"kept");
        std::fs::write(&file, vec![0; 65 * 1024]).expect("written");
        assert!(read_small(&file).is_err());
    }
}
