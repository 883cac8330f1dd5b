//! A configuration document as it is read from a file or from standard input. Whether it is one is for the control plane to say.

use crate::error::CommandError;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The control plane takes no larger body.
const MAX_BYTES: u64 = 512 * 1024;

pub fn read(path: &Path) -> Result<Vec<u8>, CommandError> {
    let unreadable = |error: &std::io::Error| CommandError::file(path, error);
    let input: Box<dyn Read> = if path.as_os_str() == "-" {
        Box::new(std::io::stdin())
    } else {
        Box::new(File::open(path).map_err(|error| unreadable(&error))?)
    };
    let mut bytes = Vec::new();
    input.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|error| unreadable(&error))?;
    if bytes.len() as u64 > MAX_BYTES {
        let message = format!("{} is larger than {MAX_BYTES} bytes", path.display());
        return Err(CommandError::usage(message, "a configuration document has at most 262,144 bytes"));
    }
    Ok(bytes)
}
