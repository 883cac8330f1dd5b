//! The first look at a directory: everything is read and checked, nothing is changed.

use crate::audit::{self, LastCheckpoint, chain};
use crate::framing::Framing;
use crate::lock::JournalLock;
use crate::log::{self, EntryMark, LogMeta, TableError, Tables};
use crate::log_key::LogKey;
use crate::open_error::OpenError;
use crate::readonly;
use crate::snapshot::{FormatError, FoundSnapshots, Image, SnapshotDir, SnapshotError};
use crate::stored::RowFault;
use crate::view::AuditHead;
use lifecycle::names::Timestamp;
use std::path::{Path, PathBuf};

/// What a directory holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryContents {
    /// The moment of the last entry that holds commands; of the snapshot, if none does.
    pub last_at: Option<Timestamp>,
    /// The last index of the log.
    pub last_index: u64,
    /// The last index that is known to be committed; a restart applies all up to `last_index`.
    pub committed: Option<u64>,
    /// The index of the snapshot from which it would start.
    pub snapshot: Option<u64>,
    /// The last audit line that the log or the snapshot knows of.
    pub audit_seq: u64,
}

/// Looks at a data directory without changing it. Without a key it is one that an older version wrote: checksums are all
/// that vouches for what it holds.
pub fn probe(dir: &Path, key: Option<&LogKey>) -> Result<DirectoryContents, OpenError> {
    probe_replica(dir, key, false)
}

/// The same of a replica that may have joined a cluster, and have nothing in its log yet.
pub fn probe_replica(dir: &Path, key: Option<&LogKey>, joined: bool) -> Result<DirectoryContents, OpenError> {
    let _lock = JournalLock::take_existing(dir)?;
    let framing = key.cloned().map_or(Framing::Checksummed, Framing::Authenticated);
    inspect(dir, &framing, joined).map(|inspected| inspected.probe)
}

/// A probe, with what is needed to go on from it.
pub struct Inspected {
    pub probe: DirectoryContents,
    pub image: Option<Image>,
    /// Damaged snapshots that a good one or the log makes up for.
    pub damaged: Vec<PathBuf>,
    pub checkpoint: LastCheckpoint,
}

/// The caller holds the directory's lock. The log of a replica that has `joined` a cluster may be empty: what is in it comes from
/// the others.
pub fn inspect(dir: &Path, framing: &Framing, joined: bool) -> Result<Inspected, OpenError> {
    let file = dir.join(log::FILE);
    if !file.exists() {
        return Err(OpenError::Missing { dir: dir.to_owned() });
    }
    let connection = readonly::open(&file).map_err(OpenError::database(&file))?;
    log::SCHEMA.check(&file, &connection)?;
    check_trail(&dir.join(audit::FILE))?;
    let tables = Tables::read_only(connection, framing.clone());
    let meta = tables.meta().map_err(|error| table_error(dir, &file, error))?;
    let walked = walk(dir, &file, &tables, &meta)?;
    let found = SnapshotDir::of(dir, framing.clone()).find().map_err(|error| snapshot_error(&error))?;
    let (image, damaged) = choose(&meta, found)?;
    let newest_audit_seq = image.as_ref().map_or(0, |image| image.meta.audit.seq);
    let newest = image.as_ref().map(|image| image.meta.index());
    let image = match image {
        // A peer gives the lines before it, and the log may end before it: there is no way back to an older one.
        Some(image) if meta.installing == Some(image.meta.index()) => Some(image),
        Some(image) => with_trail(dir, framing, &meta, image)?,
        None => None,
    };
    let snapshot = image.as_ref().map(|image| image.meta.index());
    let committed = meta.committed.map(|id| id.index);
    let last_index = walked.last.or(meta.last_purged.map(|id| id.index)).max(snapshot);
    let is_empty = last_index.is_none();
    let Some(last_index) = last_index.or(joined.then_some(0)) else {
        return Err(OpenError::Unfinished { dir: dir.to_owned() });
    };
    if let Some(index) = committed.filter(|index| *index > last_index) {
        let what = format!("the log ends at index {last_index}, but index {index} was committed");
        return Err(OpenError::damaged(&file, Some(last_index), what));
    }
    let checkpoint = match LastCheckpoint::read(dir, framing)? {
        Some(checkpoint) if is_empty => checkpoint,
        Some(checkpoint) => {
            check_end(&file, &meta, &walked, newest)?;
            checkpoint.check_log(&file, last_index)?;
            checkpoint.check_line(&dir.join(audit::FILE))?;
            checkpoint
        }
        None => LastCheckpoint::default(),
    };
    let at = image.as_ref().map(|image| image.meta.at);
    let audit_seq = newest_audit_seq.max(meta.audit_seq);
    let probe = DirectoryContents { last_at: walked.at.max(at), last_index, committed, snapshot, audit_seq };
    Ok(Inspected { probe, image, damaged, checkpoint })
}

/// A trail that is not there is written again.
fn check_trail(file: &Path) -> Result<(), OpenError> {
    if !file.exists() {
        return Ok(());
    }
    let connection = readonly::open(file).map_err(OpenError::database(file))?;
    audit::SCHEMA.check(file, &connection)?;
    // A store that cannot be read is for whoever opens it to name.
    let lowest = connection.query_row("SELECT min(seq) FROM lines", [], |row| row.get::<_, Option<i64>>(0));
    match lowest {
        Ok(Some(lowest)) if lowest < 1 => Err(OpenError::AuditDiffers { file: file.to_owned(), seq: 0 }),
        Ok(_) | Err(_) => Ok(()),
    }
}

struct Walked {
    last: Option<u64>,
    at: Option<Timestamp>,
}

/// The log ends where its head says, and not before the newest snapshot: nobody has cut off its end. That the entries up to
/// there are whole was seen on the way.
fn check_end(file: &Path, meta: &LogMeta, walked: &Walked, newest: Option<u64>) -> Result<(), OpenError> {
    let purged = meta.last_purged.map(|id| id.index);
    if meta.base.map(|base| base.index) != purged {
        return Err(OpenError::damaged(file, purged, "what says where the log begins does not agree"));
    }
    let last = walked.last.or(purged);
    match (meta.head, last) {
        (Some(EntryMark { index, .. }), Some(last)) if index == last => {}
        (Some(EntryMark { index, .. }), last) => {
            let what = format!("the log ends at index {}, but should at {index}", last.unwrap_or(0));
            return Err(OpenError::damaged(file, last, what));
        }
        (None, _) => return Err(OpenError::damaged(file, last, "what says where the log ends is missing")),
    }
    // Unless another replica's snapshot was taken over, and the log not yet purged.
    let newest = newest.filter(|newest| meta.installing != Some(*newest));
    match newest.filter(|newest| Some(*newest) > last) {
        Some(newest) => {
            let what =
                format!("the log ends at index {}, before the snapshot of index {newest}", last.unwrap_or(0));
            Err(OpenError::damaged(file, last, what))
        }
        None => Ok(()),
    }
}

/// Reads every entry: checksums, decodes, and misses none.
fn walk(dir: &Path, file: &Path, tables: &Tables, meta: &LogMeta) -> Result<Walked, OpenError> {
    let mut walked = Walked { last: None, at: None };
    let mut expected = meta.last_purged.map_or(0, |id| id.index + 1);
    let mut hole = None;
    let result = tables.walk(0, u64::MAX, |entry, _| {
        if entry.index != expected {
            hole = Some((expected, entry.index));
            return false;
        }
        expected += 1;
        walked.last = Some(entry.index);
        if let log::StoredPayload::Commands(batch) = &entry.payload {
            walked.at = Some(batch.at());
        }
        true
    });
    match result {
        // What follows a hole does not follow from what is before it.
        Err(TableError::Entry { index, fault: RowFault::Code }) if index != expected => {
            hole = Some((expected, index));
        }
        other => other.map_err(|error| table_error(dir, file, error))?,
    }
    match hole {
        Some((expected, found)) => {
            let what = format!("index {expected} should follow, but the next entry has index {found}");
            Err(OpenError::damaged(file, Some(expected), what))
        }
        None => {
            check_edges(file, tables, &walked).map_err(|error| table_error(dir, file, error))??;
            Ok(walked)
        }
    }
}

/// Nothing lies where a walk does not come: before the first index that there can be, or at the highest number.
fn check_edges(file: &Path, tables: &Tables, walked: &Walked) -> Result<Result<(), OpenError>, TableError> {
    let last = walked.last.and_then(|last| i64::try_from(last).ok());
    Ok(match tables.edges()? {
        Some((lowest, highest)) if lowest < 0 || Some(highest) != last => {
            let index = if lowest < 0 { lowest } else { highest };
            let what = format!("there is an entry at {index}, where none can be");
            Err(OpenError::damaged(file, walked.last, what))
        }
        Some(_) | None => Ok(()),
    })
}

/// The newest good snapshot, if what it does not hold is still in the log.
fn choose(meta: &LogMeta, found: FoundSnapshots) -> Result<(Option<Image>, Vec<PathBuf>), OpenError> {
    let purged = meta.last_purged.map(|id| id.index);
    let covered = match (&found.image, purged) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(image), Some(purged)) => image.meta.index() >= purged,
    };
    let newer = found.damaged.iter().find(|error| matches!(error.cause, FormatError::Newer { .. }));
    match newer.or(found.damaged.first()) {
        Some(error) if newer.is_some() || !covered => Err(snapshot_error(error)),
        None if !covered => {
            let what =
                format!("the log begins after index {}, and there is no snapshot", purged.unwrap_or(0));
            Err(OpenError::damaged(Path::new("snapshots"), purged, what))
        }
        _ => Ok((found.image, found.damaged.into_iter().map(|error| error.path).collect())),
    }
}

/// The snapshot to start from: an older one, or none, if the audit trail lacks lines that the log since then can write
/// again, or holds others. A snapshot is made at every clean stop, and lines that are lost afterwards must not be lost for good.
fn with_trail(
    dir: &Path,
    framing: &Framing,
    meta: &LogMeta,
    image: Image,
) -> Result<Option<Image>, OpenError> {
    let snapshots = SnapshotDir::of(dir, framing.clone());
    let indexes = snapshots.indexes().map_err(OpenError::io(snapshots.dir()))?;
    let purged = meta.last_purged.map(|id| id.index);
    let older = indexes.into_iter().filter(|index| *index < image.meta.index()).max();
    let older = older.filter(|index| purged.is_none_or(|purged| *index >= purged));
    let older = match older.map(|index| Ok((index, snapshots.read_meta(index)?))).transpose() {
        // What it says about itself is not authenticated yet; it is read as the one that its name says.
        Ok(Some((index, meta))) if meta.index() == index => Some(meta),
        Ok(Some(_)) => return Ok(Some(image)),
        // Without another one, the log must reach back to its beginning.
        Ok(None) if purged.is_none() => None,
        Ok(None) | Err(SnapshotError { .. }) => return Ok(Some(image)),
    };
    let held = older.as_ref().map_or_else(AuditHead::default, |meta| meta.audit);
    if is_whole(&dir.join(audit::FILE), held, image.meta.audit) {
        return Ok(Some(image));
    }
    match older.map(|meta| snapshots.read(&snapshots.path(meta.index()), meta.index())) {
        None => Ok(None),
        Some(Ok(older)) => Ok(Some(older)),
        Some(Err(_)) => Ok(Some(image)),
    }
}

/// Whether every line after `from` up to `to` is there and hangs on the one before: one that was changed is compared with
/// what the log produces, as one that is missing is produced by it. A store that cannot be read is for whoever opens it to
/// name.
fn is_whole(file: &Path, from: AuditHead, to: AuditHead) -> bool {
    if !file.exists() {
        return from.seq >= to.seq;
    }
    let walked = readonly::open(file).and_then(|connection| {
        let sql = "SELECT line FROM lines WHERE seq > ? AND seq <= ? ORDER BY seq";
        let mut select = connection.prepare(sql)?;
        let mut rows = select.query([from.seq, to.seq])?;
        let mut reached = from;
        while let Some(row) = rows.next()? {
            // What is no text at all was changed as well.
            let line = row.get_ref(0)?.as_str().unwrap_or_default();
            let Ok(head) = chain::check(line, reached.seq + 1, &reached.head) else { return Ok(reached) };
            reached = AuditHead { seq: reached.seq + 1, head };
        }
        Ok(reached)
    });
    walked.is_ok_and(|reached| reached == to)
}

fn snapshot_error(error: &SnapshotError) -> OpenError {
    match &error.cause {
        FormatError::Newer { version } => {
            OpenError::Newer { file: error.path.clone(), index: None, version: *version }
        }
        cause => OpenError::damaged(&error.path, None, cause.to_string()),
    }
}

fn table_error(dir: &Path, file: &Path, error: TableError) -> OpenError {
    match error {
        TableError::Database(error) if is_unfinished(&error) => OpenError::Unfinished { dir: dir.to_owned() },
        TableError::Database(error) => OpenError::database(file)(error),
        TableError::Entry { index, fault } => OpenError::row(file, Some(index), &fault),
        TableError::Meta { fault: fault @ RowFault::Newer { .. }, .. } => OpenError::row(file, None, &fault),
        other => OpenError::damaged(file, None, other.to_string()),
    }
}

/// A file without tables: initialising stopped before they were made.
fn is_unfinished(error: &rusqlite::Error) -> bool {
    error.to_string().contains("no such table")
}
