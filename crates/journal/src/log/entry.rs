//! The stored form of one entry.

use crate::batch::Batch;
use crate::framing::Framing;
use crate::log_key::{RowCode, RowPlace};
use crate::raft::{Entry, LogId};
use openraft::{BasicNode, CommittedLeaderId, EntryPayload, Membership};
use serde::{Deserialize, Serialize};

/// Decodes for ever: fields are only added.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredEntry {
    pub term: u64,
    pub leader: u64,
    pub index: u64,
    pub payload: StoredPayload,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoredPayload {
    /// What a new leader commits first.
    Blank,
    Commands(Batch),
    Membership(Membership<u64, BasicNode>),
}

impl StoredEntry {
    pub fn log_id(&self) -> LogId {
        LogId::new(CommittedLeaderId::new(self.term, self.leader), self.index)
    }
}

impl From<StoredEntry> for Entry {
    fn from(stored: StoredEntry) -> Self {
        let log_id = stored.log_id();
        let payload = match stored.payload {
            StoredPayload::Blank => EntryPayload::Blank,
            StoredPayload::Commands(batch) => EntryPayload::Normal(batch),
            StoredPayload::Membership(membership) => EntryPayload::Membership(membership),
        };
        Entry { log_id, payload }
    }
}

/// About how many bytes an entry takes. A small command counts for more than its bytes: it has to be applied again after a crash.
pub fn weight(entry: &Entry) -> usize {
    match &entry.payload {
        EntryPayload::Normal(batch) => {
            batch.items().iter().map(|item| item.encoded.len().max(512)).sum::<usize>() + 128
        }
        _ => 256,
    }
}

/// Where an entry stands: at its index, behind the one with this code.
pub fn place(index: u64, after: &RowCode) -> RowPlace<'_> {
    RowPlace { kind: "entry", index, after }
}

/// The row of an entry.
pub fn encode(
    entry: &Entry,
    framing: &Framing,
    after: &RowCode,
) -> Result<Vec<u8>, rmp_serde::encode::Error> {
    let place = place(entry.log_id.index, after);
    let payload = match &entry.payload {
        EntryPayload::Blank => StoredPayload::Blank,
        EntryPayload::Normal(batch) => return encode_commands(&entry.log_id, batch, framing, &place),
        EntryPayload::Membership(membership) => StoredPayload::Membership(membership.clone()),
    };
    let LogId { leader_id, index } = entry.log_id;
    let stored = StoredEntry { term: leader_id.term, leader: leader_id.node_id, index, payload };
    framing.seal(&stored, &place)
}

/// The same bytes as by serde, with the envelopes copied in as they were encoded when proposed.
fn encode_commands(
    log_id: &LogId,
    batch: &Batch,
    framing: &Framing,
    place: &RowPlace<'_>,
) -> Result<Vec<u8>, rmp_serde::encode::Error> {
    let total: usize = batch.items().iter().map(|item| item.encoded.len()).sum();
    let mut row = framing.begin(total + 128);
    let out = &mut row;
    map(out, 4);
    for (name, value) in
        [("term", log_id.leader_id.term), ("leader", log_id.leader_id.node_id), ("index", log_id.index)]
    {
        rmp_serde::encode::write(out, name)?;
        rmp_serde::encode::write(out, &value)?;
    }
    rmp_serde::encode::write(out, "payload")?;
    map(out, 1);
    rmp_serde::encode::write(out, "commands")?;
    map(out, 2);
    rmp_serde::encode::write(out, "at")?;
    rmp_serde::encode::write(out, &batch.at())?;
    rmp_serde::encode::write(out, "envelopes")?;
    array(out, batch.items().len());
    for item in batch.items() {
        out.extend_from_slice(&item.encoded);
    }
    framing.finish(&mut row, place);
    Ok(row)
}

/// MessagePack's header of a map of fewer than 16 pairs.
fn map(out: &mut Vec<u8>, pairs: u8) {
    out.push(0x80 | pairs);
}

/// MessagePack's header of an array, in its longest form.
fn array(out: &mut Vec<u8>, length: usize) {
    out.push(0xdd);
    out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::EncodedEnvelope;
    use crate::log_key::LogKey;
    use lifecycle::names::{RequestId, Source, Timestamp, Ulid};
    use lifecycle::registry::{Actor, Command, Envelope};
    use std::sync::Arc;

    #[test]
    fn commands_encoded_by_hand_decode_as_by_serde() {
        let envelope = |n: u8| Envelope {
            id: RequestId(Ulid::new(Timestamp::from_secs(5), [n; 10])),
            actor: Actor::Reconciler,
            source: Source::Internal,
            request_id: None,
            correlation_id: None,
            command: Command::Tidy,
        };
        for count in [1u8, 20] {
            let items = (0..count)
                .map(|n| Arc::new(EncodedEnvelope::encode(envelope(n)).expect("encodes")))
                .collect::<Vec<_>>();
            let batch = Batch::new(Timestamp::from_millis(1_800_000_000_123), items);
            let log_id = LogId::new(CommittedLeaderId::new(3, 1), 70_000);
            let entry = Entry { log_id, payload: EntryPayload::Normal(batch.clone()) };
            for framing in [Framing::Checksummed, Framing::Authenticated(LogKey::new(&[1; 32]))] {
                let row = encode(&entry, &framing, &[2; 32]).expect("encodes");
                let read: StoredEntry = framing.open(&row, &place(log_id.index, &[2; 32])).expect("decodes");
                assert_eq!(read.log_id(), log_id);
                assert_eq!(read.payload, StoredPayload::Commands(batch.clone()));
                assert_eq!(
                    weight(&Entry::from(read)),
                    weight(&entry),
                    "a follower counts what a leader counts"
                );
            }
        }
    }
}
