//! Configuration documents and how they changed.

use crate::names::{Checksum, Timestamp};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A document as it was given: the text of a JSON object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigDocument {
    pub text: Arc<str>,
    /// SHA-256 of the text, computed where it came in.
    pub checksum: Checksum,
}

/// The longest text of a document.
pub const DOCUMENT_MAX: usize = 262_144;

/// A document took the place of the one before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigChange {
    /// Counts the changes of all configuration in the domain.
    pub sequence: u64,
    /// Counts the documents of this place.
    pub version: u64,
    pub at: Timestamp,
    pub document: ConfigDocument,
}

/// How many changes are kept for those who missed some, and how many bytes of them: the newest document is kept always.
/// Whoever was away for longer misses documents that newer ones have replaced, and never the newest.
const KEPT: usize = 64;
const KEPT_BYTES: usize = 1024 * 1024;

/// The documents of one place: a vCluster, the domain's defaults, a node. The newest is last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Documents {
    changes: Vec<Arc<ConfigChange>>,
}

impl Documents {
    pub fn current(&self) -> Option<&Arc<ConfigChange>> {
        self.changes.last()
    }

    /// Of the newest document; 0 before the first.
    pub fn version(&self) -> u64 {
        self.current().map_or(0, |change| change.version)
    }

    /// Of the newest change; 0 before the first.
    pub fn sequence(&self) -> u64 {
        self.current().map_or(0, |change| change.sequence)
    }

    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// What is dated after `to` is dated `to`.
    pub(in crate::registry) fn redate(&mut self, to: Timestamp) {
        for change in self.changes.iter_mut().filter(|change| change.at > to) {
            Arc::make_mut(change).at = to;
        }
    }

    /// Those that are kept, oldest first.
    pub(in crate::registry) fn changes(&self) -> impl Iterator<Item = &Arc<ConfigChange>> {
        self.changes.iter()
    }

    pub(super) fn after(&self, sequence: u64) -> impl Iterator<Item = &Arc<ConfigChange>> {
        self.changes().filter(move |change| change.sequence > sequence)
    }

    pub(super) fn push(&mut self, change: ConfigChange) {
        self.changes.push(Arc::new(change));
        let mut bytes = 0;
        let fits = |change: &&Arc<ConfigChange>| {
            bytes += change.document.text.len();
            bytes <= KEPT_BYTES
        };
        let kept = self.changes.iter().rev().take(KEPT).take_while(fits).count().max(1);
        self.changes.drain(..self.changes.len() - kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(sequence: u64, bytes: usize) -> ConfigChange {
        let document = ConfigDocument { text: "x".repeat(bytes).into(), checksum: Checksum::new([0; 32]) };
        ConfigChange { sequence, version: sequence, at: Timestamp::from_secs(sequence), document }
    }

    #[test]
    fn few_changes_and_few_bytes_are_kept_and_the_newest_always() {
        let mut documents = Documents::default();
        (1..=100).for_each(|sequence| documents.push(change(sequence, 2)));
        assert_eq!((documents.after(0).count(), documents.version()), (KEPT, 100));
        (101..=110).for_each(|sequence| documents.push(change(sequence, DOCUMENT_MAX)));
        assert_eq!((documents.after(0).count(), documents.version()), (4, 110));
        documents.push(change(111, KEPT_BYTES + 1));
        assert_eq!((documents.after(0).count(), documents.version()), (1, 111));
    }
}
