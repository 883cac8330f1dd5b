//! openraft's log, in SQLite.
//!
//! One thread writes (`writer`), in groups, and reports an append as flushed only when it is on disk.
//! What was appended lately stays in memory (`tail`), so that it can be read as soon as `append` returns and
//! needs no decoding on its way to the state machine.

mod entry;
mod storage;
mod tables;
mod tail;
mod writer;

pub use entry::{StoredEntry, StoredPayload, weight};
pub use storage::{LogStore, start};
pub use tables::{EntryMark, FILE, LogMeta, SCHEMA, TableError, Tables};
