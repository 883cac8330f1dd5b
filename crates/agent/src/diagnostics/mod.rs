//! What went wrong on this host, written down on this host: for whoever stands before it when nothing else can be
//! reached. A ring of JSON lines with a fixed size; the oldest go first.
//!
//! Writing never stops anything: that it failed is an answer like any other. A line that a crash left unfinished is
//! skipped when read, and ended before the next one is written.

mod segments;

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};

use lifecycle::host::Class;
use lifecycle::names::{Span, Timestamp};
use serde::{Deserialize, Serialize};

use crate::space;
use segments::Segments;

/// Longest texts, in characters: what comes from outside has an end.
const EVIDENCE: usize = 600;
const REMEDY: usize = 300;
const ID: usize = 128;
/// The same trouble of the same undertaking is one line a minute.
const QUIET: Span = Span::from_minutes(1);
/// How many undertakings are remembered for that.
const SEEN: usize = 16;

/// One trouble, as scripts read it. There is no place for a secret in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// RFC 3339, UTC.
    pub at: String,
    /// The undertaking that it is part of.
    pub correlation_id: String,
    /// One of the eight words for what can be wrong with a host.
    pub class: String,
    /// What shows it, in a sentence.
    pub evidence: String,
    /// What a person can do.
    pub remedy: String,
    /// What the agent does next.
    pub next: String,
    /// How often it was seen since it was last written down.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub count: u64,
}

impl Record {
    pub fn new(at: Timestamp, class: Class, correlation_id: &str, evidence: &str, next: &str) -> Self {
        Self {
            at: at.to_string(),
            correlation_id: short(correlation_id, ID),
            class: class.to_string(),
            evidence: short(evidence, EVIDENCE),
            remedy: class.remedy().to_owned(),
            next: short(next, REMEDY),
            count: 1,
        }
    }

    /// With the words of whoever knows the cause better than its class does.
    pub fn with_remedy(self, remedy: &str) -> Self {
        if remedy.is_empty() { self } else { Self { remedy: short(remedy, REMEDY), ..self } }
    }
}

/// Why a record is not on disk.
#[derive(Debug)]
pub struct NotWritten(pub io::Error);

impl NotWritten {
    /// A word for the metrics.
    pub fn reason(&self) -> &'static str {
        match self.0.kind() {
            _ if space::is_full(&self.0) => "disk_full",
            io::ErrorKind::PermissionDenied => "permission_denied",
            io::ErrorKind::ReadOnlyFilesystem => "read_only",
            _ => "other",
        }
    }
}

impl std::fmt::Display for NotWritten {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "diagnostics could not be written: {}", self.0)
    }
}

#[derive(Debug)]
pub struct Ring {
    segments: Segments,
    seen: VecDeque<RecentRecord>,
}

/// A trouble that was written down, and how often it came again since.
#[derive(Debug)]
struct RecentRecord {
    class: String,
    correlation_id: String,
    at: Timestamp,
    again: u64,
}

impl Ring {
    /// Touches nothing yet. `bytes` is what all of it takes at most.
    pub fn open(path: &Path, bytes: u64) -> Self {
        Self { segments: Segments::new(path.to_owned(), bytes), seen: VecDeque::new() }
    }

    pub fn path(&self) -> &Path {
        self.segments.path()
    }

    /// Takes room for the next records, so that they can be written on a full disk.
    pub fn reserve(&self) -> Result<(), NotWritten> {
        self.segments.reserve().map_err(NotWritten)
    }

    /// Writes it down, unless the same trouble of the same undertaking was within the last minute; then it counts.
    pub fn write(&mut self, record: &Record) -> Result<(), NotWritten> {
        let at = Timestamp::parse(&record.at).unwrap_or(Timestamp::from_millis(0));
        let Some(count) = self.count(record, at) else { return Ok(()) };
        let mut record = Record { count, ..record.clone() };
        let mut line = encoded(&record)?;
        while line.len() > self.segments.longest() && !record.evidence.is_empty() {
            let half = record.evidence.chars().count() / 2;
            record.evidence = short(&record.evidence, half);
            line = encoded(&record)?;
        }
        self.segments.append(&line).map_err(NotWritten)
    }

    /// How often it happened since it was last written down, if it is to be written down now.
    fn count(&mut self, record: &Record, at: Timestamp) -> Option<u64> {
        let same = |seen: &&mut RecentRecord| {
            seen.class == record.class && seen.correlation_id == record.correlation_id
        };
        let Some(seen) = self.seen.iter_mut().find(same) else {
            let (class, correlation_id) = (record.class.clone(), record.correlation_id.clone());
            self.seen.push_back(RecentRecord { class, correlation_id, at, again: 0 });
            if self.seen.len() > SEEN {
                self.seen.pop_front();
            }
            return Some(1);
        };
        seen.again = seen.again.saturating_add(1);
        // A clock that was set back must not silence it for longer.
        if at >= seen.at && at.since(seen.at) < QUIET {
            return None;
        }
        seen.at = at;
        Some(std::mem::take(&mut seen.again))
    }

    /// Every whole record, oldest first.
    pub fn read(&self) -> Vec<Record> {
        let read = |bytes: Vec<u8>| -> Vec<Record> {
            bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
        };
        self.segments.contents().into_iter().flat_map(read).collect()
    }
}

/// Whether something could be written there, tried with a small file that is gone afterwards.
pub fn try_out(path: &Path) -> io::Result<()> {
    segments::prepare(path)?;
    let file: PathBuf = path.join(format!(".try-{}", std::process::id()));
    let tried = crate::store::disk::create(&file, &[b' '; 512], crate::store::disk::SECRET);
    let removed = crate::store::disk::remove(&file);
    tried.and(removed)
}

fn encoded(record: &Record) -> Result<Vec<u8>, NotWritten> {
    let mut line = serde_json::to_vec(record).map_err(|error| NotWritten(error.into()))?;
    line.push(b'\n');
    Ok(line)
}

/// One line without an end in sight is cut, and control characters are blanks.
fn short(text: &str, most: usize) -> String {
    let plain = |sign: char| if sign.is_control() { ' ' } else { sign };
    text.chars().take(most).map(plain).collect()
}

fn once() -> u64 {
    1
}

fn is_once(count: &u64) -> bool {
    *count == 1
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn record(second: u64, correlation_id: &str, evidence: &str) -> Record {
        let at = Timestamp::from_secs(second);
        Record::new(at, Class::EndpointUnreachable, correlation_id, evidence, "tries again in 4 s")
    }

    fn size(path: &Path) -> u64 {
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
    }

    #[test]
    fn the_ring_never_outgrows_its_size_and_keeps_the_newest() {
        for bytes in [4096, 5000, 65_536] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("diagnostics");
            let mut ring = Ring::open(&path, bytes);
            for n in 0..600 {
                let evidence = "\"é\\".repeat(n % 300);
                ring.write(&record(n as u64, &format!("id-{n}"), &evidence)).unwrap();
                assert!(size(&path) <= bytes, "{n}: {} of {bytes}", size(&path));
            }
            let kept = ring.read();
            assert!(kept.len() > 1, "{bytes}");
            assert_eq!(kept.last().unwrap().correlation_id, "id-599");
            let order: Vec<&String> = kept.iter().map(|record| &record.at).collect();
            assert!(order.is_sorted());
        }
    }

    #[test]
    fn every_line_has_the_promised_fields() {
        let dir = tempfile::tempdir().unwrap();
        let mut ring = Ring::open(dir.path(), 4096);
        ring.write(&record(7, "id", "no\nline break").with_remedy("plug it in")).unwrap();
        let line: serde_json::Value = ring
            .segments
            .contents()
            .first()
            .map(|bytes| serde_json::from_slice(bytes.trim_ascii()).unwrap())
            .unwrap();
        let expected = serde_json::json!({
            "at": "1970-01-01T00:00:07Z", "correlation_id": "id", "class": "endpoint_unreachable",
            "evidence": "no line break", "remedy": "plug it in", "next": "tries again in 4 s",
        });
        assert_eq!(line, expected);
    }

    #[test]
    fn the_same_trouble_within_a_minute_is_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let mut ring = Ring::open(dir.path(), 65_536);
        for second in 0..=60 {
            ring.write(&record(second, "a", "x")).unwrap();
        }
        ring.write(&record(61, "b", "x")).unwrap();
        let seen: Vec<(String, u64)> =
            ring.read().into_iter().map(|record| (record.correlation_id, record.count)).collect();
        assert_eq!(seen, [("a".to_owned(), 1), ("a".to_owned(), 60), ("b".to_owned(), 1)]);
    }

    #[test]
    fn room_is_taken_before_it_is_needed_and_is_no_record() {
        let dir = tempfile::tempdir().unwrap();
        let mut ring = Ring::open(dir.path(), 65_536);
        ring.reserve().unwrap();
        assert_eq!((size(dir.path()), ring.read().len()), (0, 0));
        ring.write(&record(1, "a", "x")).unwrap();
        ring.reserve().unwrap();
        assert_eq!(ring.read().len(), 1);
    }

    #[test]
    fn a_torn_line_is_skipped_and_does_not_spoil_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let mut ring = Ring::open(dir.path(), 65_536);
        ring.write(&record(1, "a", "x")).unwrap();
        let file = fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
        let mut torn = fs::read(&file).unwrap();
        torn.extend_from_slice(b"{\"at\":\"1970-01-0");
        fs::write(&file, torn).unwrap();
        Ring::open(dir.path(), 65_536).write(&record(2, "b", "x")).unwrap();
        let ids: Vec<String> = ring.read().into_iter().map(|record| record.correlation_id).collect();
        assert_eq!(ids, ["a", "b"]);
    }

    #[test]
    fn what_cannot_be_written_has_a_reason() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let failed = Ring::open(&file, 4096).write(&record(1, "a", "x")).unwrap_err();
        assert_eq!(failed.reason(), "other");
        let reason = |errno: rustix::io::Errno| NotWritten(errno.into()).reason();
        assert_eq!(reason(rustix::io::Errno::NOSPC), "disk_full");
        assert_eq!(reason(rustix::io::Errno::DQUOT), "disk_full");
        assert_eq!(reason(rustix::io::Errno::ACCESS), "permission_denied");
        assert_eq!(reason(rustix::io::Errno::ROFS), "read_only");
    }
}
