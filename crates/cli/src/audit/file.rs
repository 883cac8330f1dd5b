//! Checking an exported file, in bounded memory, with nothing but the CA or its pin.
//!
//! The footer comes last but holds the certificate that checkpoints are signed with, so it is read first.

mod footer;
mod walk;

pub use footer::AuditAnchor;

use crate::progress::Progress;
use api::rest::audit::{AuditFault, AuditVerify};
use journal::audit::Footer;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use walk::ExportWalk;

/// An audit line is about a kilobyte, a footer some.
const LINE_BYTES: u64 = 256 * 1024;

pub struct ExportVerdict {
    pub report: AuditVerify,
    /// False for a file that never was an export: then nothing is known of any trail.
    pub is_export: bool,
    /// What to do, where the lines are not the matter.
    pub remedy: Option<&'static str>,
}

/// The file's verdict. An error is only that the file cannot be read.
pub fn verify(path: &Path, anchor: &AuditAnchor, mut progress: Progress) -> io::Result<ExportVerdict> {
    let mut file = File::open(path)?;
    if file.metadata()?.is_file() && file.metadata()?.len() == 0 {
        return Ok(no_export(
            ExportWalk::new(None),
            "the file is empty: it is not an export of an audit trail",
        ));
    }
    let footer = footer::VerifiedFooter::of(&last_line(&mut file)?, anchor);
    file.seek(SeekFrom::Start(0))?;
    let mut reader = BufReader::new(file);
    let mut walk = ExportWalk::new(footer.as_ref().ok());
    let (mut fault, mut cut_off) = (None, false);
    while fault.is_none() {
        match next_line(&mut reader)? {
            Some((line, _)) if walk.last == 0 && footer.is_err() && !walk::is_numbered(&line) => {
                return Ok(no_export(walk, "the file is not an export of an audit trail"));
            }
            Some((line, _)) if Footer::read(&line).is_some() && reader.fill_buf()?.is_empty() => break,
            Some((line, whole)) => {
                let seq = walk.last + 1;
                progress.at(|| format!("line {seq}"));
                fault = walk.line(&line).err().map(|found| if whole { found } else { cut(seq) });
                cut_off = fault.is_some() && !whole;
            }
            None => break,
        }
    }
    let (fault, remedy) = match (fault, &footer) {
        (Some(fault), _) => (Some(fault), cut_off.then_some(CUT_OFF)),
        (None, Ok(footer)) => (footer.end(walk.last, &walk.hash).err(), None),
        (None, Err(flaw)) => (Some(AuditFault { seq: None, what: flaw.what.clone() }), flaw.remedy),
    };
    Ok(ExportVerdict { report: walk.verdict(fault), is_export: true, remedy })
}

/// What to give instead of what is no export.
pub const EXPORT_WANTED: &str = "give a file that `enlist audit export` wrote";

/// What to do about an export that ends too early.
pub const CUT_OFF: &str = "the export was cut off: export the trail again, or copy the whole file";

fn no_export(walk: ExportWalk<'_>, what: &str) -> ExportVerdict {
    let fault = AuditFault { seq: None, what: what.to_owned() };
    ExportVerdict { report: walk.verdict(Some(fault)), is_export: false, remedy: Some(EXPORT_WANTED) }
}

/// A file that ends in the middle of a line was not changed but cut.
fn cut(seq: u64) -> AuditFault {
    AuditFault { seq: Some(seq), what: format!("truncated: the file ends in the middle of line {seq}") }
}

/// The next line without its break, and whether it had one. One that is too long or no text becomes one that cannot hold.
fn next_line(reader: &mut impl BufRead) -> io::Result<Option<(String, bool)>> {
    let mut bytes = Vec::new();
    reader.by_ref().take(LINE_BYTES).read_until(b'\n', &mut bytes)?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let whole = bytes.last() == Some(&b'\n');
    if whole {
        bytes.pop();
    }
    Ok(Some((String::from_utf8(bytes).unwrap_or_default(), whole)))
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
