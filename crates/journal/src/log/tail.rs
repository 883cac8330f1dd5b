//! The end of the log, in memory: bounded by bytes, never without what is not yet on disk.

use super::entry::weight;
use super::tables::LogMeta;
use crate::raft::{Entry, LogId};
use std::collections::VecDeque;

/// How much of the log is kept in memory once it is on disk.
const BYTES: usize = 8 * 1024 * 1024;

#[derive(Debug)]
pub struct Tail {
    /// Vote, committed and purged, as saved last.
    pub meta: LogMeta,
    /// The id of the last entry, in memory or not.
    pub last: Option<LogId>,
    /// Consecutive, the newest at the back.
    entries: VecDeque<Entry>,
    bytes: usize,
}

impl Tail {
    pub fn new(meta: LogMeta, last: Option<LogId>) -> Self {
        Self { meta, last, entries: VecDeque::new(), bytes: 0 }
    }

    pub fn append(&mut self, entries: &[Entry]) {
        for entry in entries {
            self.bytes += weight(entry);
            self.last = Some(entry.log_id);
            self.entries.push_back(entry.clone());
        }
    }

    /// Up to `index` all is on disk: what is too much may go.
    pub fn flushed(&mut self, index: u64) {
        while self.bytes > BYTES && self.entries.front().is_some_and(|entry| entry.log_id.index < index) {
            self.drop_front();
        }
    }

    fn drop_front(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.bytes = self.bytes.saturating_sub(weight(&entry));
        }
    }

    /// The first index in memory.
    pub fn first(&self) -> Option<u64> {
        self.entries.front().map(|entry| entry.log_id.index)
    }

    /// The part of `[start, end)` that is in memory.
    pub fn slice(&self, start: u64, end: u64) -> Vec<Entry> {
        let first = self.first().unwrap_or(u64::MAX);
        let skip = usize::try_from(start.saturating_sub(first)).unwrap_or(usize::MAX);
        self.entries.iter().skip(skip).take_while(|entry| entry.log_id.index < end).cloned().collect()
    }

    /// Forgets everything from `index`. What the last entry is now, the writer says.
    pub fn truncate(&mut self, index: u64) {
        while self.entries.back().is_some_and(|entry| entry.log_id.index >= index) {
            if let Some(entry) = self.entries.pop_back() {
                self.bytes = self.bytes.saturating_sub(weight(&entry));
            }
        }
    }

    pub fn purge(&mut self, upto: LogId) {
        while self.entries.front().is_some_and(|entry| entry.log_id.index <= upto.index) {
            self.drop_front();
        }
        self.meta.last_purged = Some(upto);
        self.last = self.last.max(Some(upto));
    }
}
