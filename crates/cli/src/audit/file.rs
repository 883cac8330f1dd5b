//! Checking an exported file, in bounded memory, with nothing but the CA or its pin.
//!
//! The footer comes last but holds the certificate that checkpoints are signed with, so it is read first.

mod footer;
mod walk;

pub use footer::Anchor;

use api::rest::audit::{AuditFault, AuditVerify};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use walk::Walk;

/// An audit line is about a kilobyte, a footer some.
const LINE_BYTES: u64 = 256 * 1024;

/// The file's verdict. An error is only that the file cannot be read.
pub fn verify(path: &Path, anchor: &Anchor) -> io::Result<AuditVerify> {
    let mut file = File::open(path)?;
    let footer = footer::Checked::of(&last_line(&mut file)?, anchor);
    file.seek(SeekFrom::Start(0))?;
    let mut reader = BufReader::new(file);
    let mut walk = Walk::new(footer.as_ref().ok());
    let mut fault = None;
    while fault.is_none() {
        match next_line(&mut reader)? {
            Some(line) if journal::audit::Footer::read(&line).is_some() && reader.fill_buf()?.is_empty() => {
                break;
            }
            Some(line) => fault = walk.line(&line).err(),
            None => break,
        }
    }
    let fault = fault.or_else(|| match &footer {
        Ok(footer) => footer.end(walk.last, &walk.hash).err(),
        Err(what) => Some(AuditFault { seq: None, what: what.clone() }),
    });
    Ok(walk.verdict(fault))
}

/// The next line without its break. One that is too long or no text becomes one that cannot hold.
fn next_line(reader: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    reader.by_ref().take(LINE_BYTES).read_until(b'\n', &mut bytes)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    Ok(Some(String::from_utf8(bytes).unwrap_or_default()))
}

fn last_line(file: &mut File) -> io::Result<String> {
    let length = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(length.saturating_sub(LINE_BYTES)))?;
    let mut tail = Vec::new();
    file.by_ref().take(LINE_BYTES).read_to_end(&mut tail)?;
    let tail = tail.strip_suffix(b"\n").unwrap_or(&tail);
    let last = tail.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    Ok(String::from_utf8_lossy(last).into_owned())
}

#[cfg(test)]
mod tests;
