//! One value under the sysfs root: read without following it anywhere it could block or never end.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// Longer than any serial, UUID or address; what is longer is no identity.
const LONGEST: usize = 256;

/// The text of a file, without the line break around it. `None` where there is no such file, which is normal; an error says
/// why what is there cannot be used.
pub(super) fn text(path: &Path) -> Result<Option<String>, String> {
    match bytes(path) {
        Ok(bytes) if bytes.len() > LONGEST => Err(format!("is longer than {LONGEST} bytes")),
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) if text.trim().contains(char::is_control) => Err("is not plain text".to_owned()),
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(_) => Err("is not UTF-8".to_owned()),
        },
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Links are followed, since sysfs is made of them; the kernel ends a loop. Only a regular file is opened, and without
/// blocking, in case a pipe has taken its place since.
fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    regular(&fs::metadata(path)?)?;
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    let file = OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path)?;
    regular(&file.metadata()?)?;
    let mut bytes = Vec::with_capacity(LONGEST + 1);
    file.take(LONGEST as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn regular(found: &fs::Metadata) -> io::Result<()> {
    if found.is_file() { Ok(()) } else { Err(io::Error::other("is not a regular file")) }
}
