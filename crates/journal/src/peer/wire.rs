//! Frames and messages: a length (four bytes, big-endian), then MessagePack with field names.

use crate::raft::{Entry, LogId, TypeConfig, Vote};
use crate::view::AuditHead;
use lifecycle::names::Timestamp;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest, VoteResponse};
use openraft::{BasicNode, SnapshotMeta};
use serde::de::{DeserializeOwned, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::io::{Error, ErrorKind};
use std::marker::PhantomData;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The largest frame: an append of 2 MiB and one more entry, which may hold the largest command.
const FRAME: usize = 24 * 1024 * 1024;
/// A frame before its sender has proven itself.
pub const GREETING: usize = 4096;

/// Commands in one message.
pub const COMMANDS: usize = 512;
/// Entries in one message: openraft sends no more than it is configured to (`max_payload_entries`).
const ENTRIES: usize = 256;
/// Lines of the audit trail in one answer.
pub const LINES: usize = 1000;

/// Why a replica is not talked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerRefusal {
    /// It is of another cluster, or was reached by mistake.
    OtherCluster,
    /// It comes from before a restore.
    OlderEpoch,
    /// It does not hold the key of this log.
    NoProof,
    /// It was removed from the cluster.
    Removed,
    /// Its certificate was denied, or is another replica's.
    Denied,
    /// Another process with the same identity is connected.
    Duplicate,
    /// Its log holds less than it had acknowledged.
    RolledBack,
    /// There are too many connections of it.
    Busy,
    /// The one that was asked runs on a copy of a directory, and talks to nobody.
    Unfit,
    /// No replica with its id has ever joined, by a registry that is up to date.
    Unknown,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerRequest {
    Append(#[serde(deserialize_with = "bounded_append")] AppendEntriesRequest<TypeConfig>),
    Vote(VoteRequest<u64>),
    /// So many bytes of a snapshot file follow.
    Snapshot {
        vote: Vote,
        meta: SnapshotMeta<u64, BasicNode>,
        length: u64,
    },
    /// Commands for the leader, each encoded as it was proposed.
    Propose {
        #[serde(deserialize_with = "bounded::<COMMANDS, _, _>")]
        commands: Vec<serde_bytes::ByteBuf>,
    },
    /// How far must a view have come to hold everything acknowledged until now?
    ReadIndex,
    /// Lines of the audit trail, in order.
    Lines {
        after: u64,
        until: u64,
    },
    /// What the sender says of itself; answered by the same of the receiver.
    Report(ReplicaReport),
    /// Stand for election.
    Elect,
    /// For whoever uses the journal.
    Ask {
        question: serde_bytes::ByteBuf,
    },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerReply {
    Append(AppendEntriesResponse<u64>),
    Vote(VoteResponse<u64>),
    Snapshot {
        vote: Vote,
    },
    /// Where the commands are applied, and what became of each.
    Proposed {
        index: u64,
        #[serde(deserialize_with = "bounded::<COMMANDS, _, _>")]
        fates: Vec<ProposalFate>,
    },
    ReadIndex {
        index: u64,
    },
    Lines {
        #[serde(deserialize_with = "bounded::<LINES, _, _>")]
        lines: Vec<String>,
    },
    /// And whether the audit trail of the sender is not that of the receiver.
    Report {
        report: ReplicaReport,
        audit_differs: bool,
    },
    Done,
    Answer {
        answer: serde_bytes::ByteBuf,
    },
    /// It does not lead.
    NotLeader,
    Failed {
        why: String,
    },
}

/// What became of a command that was forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProposalFate {
    Applied,
    NotTaken,
    Unknown,
}

/// What a replica says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaReport {
    pub applied: u64,
    /// The last entry of its log.
    pub last_log: u64,
    pub audit: AuditHead,
    pub now: Timestamp,
    /// What its machine's clock says, believed or not. None of a version that does not tell.
    #[serde(default)]
    pub wall: Option<Timestamp>,
    /// What the time is by CLOCK_BOOTTIME, from the moment on at which its clock was last taken to be right. None of a version that does
    /// not tell.
    #[serde(default)]
    pub steady: Option<Timestamp>,
    pub version: String,
    /// Whether its clock is believed.
    #[serde(default = "yes")]
    pub clock_believed: bool,
    /// Where it is reached. The registry may still have another address, which it cannot change before a leader reaches it.
    #[serde(default)]
    pub address: Option<String>,
}

/// A list of at most so many: what is in one may take many times the memory of its bytes, so it is not read further than that.
fn bounded<'de, const MOST: usize, T: Deserialize<'de>, D: Deserializer<'de>>(
    input: D,
) -> Result<Vec<T>, D::Error> {
    struct Bounded<T, const MOST: usize>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Bounded<T, MOST> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "a list of at most {MOST}")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
            let mut taken = Vec::new();
            while let Some(item) = items.next_element()? {
                if taken.len() == MOST {
                    return Err(A::Error::custom(format!("a list of more than {MOST}")));
                }
                taken.push(item);
            }
            Ok(taken)
        }
    }

    input.deserialize_seq(Bounded::<T, MOST>(PhantomData))
}

/// openraft's own form of it, with a bound on the entries.
fn bounded_append<'de, D: Deserializer<'de>>(input: D) -> Result<AppendEntriesRequest<TypeConfig>, D::Error> {
    #[derive(Deserialize)]
    struct Append {
        vote: Vote,
        prev_log_id: Option<LogId>,
        #[serde(deserialize_with = "bounded::<ENTRIES, _, _>")]
        entries: Vec<Entry>,
        leader_commit: Option<LogId>,
    }
    let Append { vote, prev_log_id, entries, leader_commit } = Append::deserialize(input)?;
    Ok(AppendEntriesRequest { vote, prev_log_id, entries, leader_commit })
}

fn yes() -> bool {
    true
}

pub async fn write<T: Serialize>(
    to: &mut (impl AsyncWrite + Unpin + ?Sized),
    message: &T,
) -> std::io::Result<()> {
    let mut frame = vec![0; 4];
    rmp_serde::encode::write_named(&mut frame, message).map_err(Error::other)?;
    let length = frame.len().saturating_sub(4);
    if length > FRAME {
        return Err(Error::other(format!("a message of {length} bytes is too large")));
    }
    for (to, from) in frame.iter_mut().zip(u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes()) {
        *to = from;
    }
    to.write_all(&frame).await?;
    to.flush().await
}

/// A frame of at most `limit` bytes. Memory is taken as bytes come, not as the length promises.
pub async fn read<T: DeserializeOwned>(
    from: &mut (impl AsyncRead + Unpin + ?Sized),
    limit: usize,
) -> std::io::Result<T> {
    let length = from.read_u32().await? as usize;
    if length > limit {
        return Err(Error::new(ErrorKind::InvalidData, format!("a frame of {length} bytes")));
    }
    let mut frame = Vec::with_capacity(length.min(64 * 1024));
    from.take(length as u64).read_to_end(&mut frame).await?;
    if frame.len() < length {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    rmp_serde::from_slice(&frame).map_err(|error| Error::new(ErrorKind::InvalidData, error))
}

pub async fn read_message<T: DeserializeOwned>(
    from: &mut (impl AsyncRead + Unpin + ?Sized),
) -> std::io::Result<T> {
    read(from, FRAME).await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a reader makes of these bytes, after which the connection ends.
    async fn check(bytes: &[u8], limit: usize) -> Result<PeerRequest, ErrorKind> {
        let mut bytes = bytes;
        read::<PeerRequest>(&mut bytes, limit).await.map_err(|error| error.kind())
    }

    fn frame(message: &impl Serialize) -> Vec<u8> {
        let body = rmp_serde::to_vec_named(message).expect("encodes");
        [&u32::try_from(body.len()).expect("short").to_be_bytes(), body.as_slice()].concat()
    }

    #[tokio::test]
    async fn what_a_newer_version_asks_ends_the_connection() {
        #[derive(Serialize)]
        #[serde(rename_all = "snake_case")]
        enum Newer {
            Defragment { until: u64 },
        }
        let sent = frame(&Newer::Defragment { until: 7 });
        assert_eq!(check(&sent, FRAME).await.expect_err("unknown"), ErrorKind::InvalidData);
    }

    #[tokio::test]
    async fn an_entry_with_a_command_of_a_newer_version_ends_the_connection() {
        let append = AppendEntriesRequest::<TypeConfig> {
            vote: Vote::new(1, 1),
            prev_log_id: None,
            entries: Vec::new(),
            leader_commit: None,
        };
        let known = rmp_serde::to_vec_named(&PeerRequest::Append(append)).expect("encodes");
        // The list of entries, with one that holds what nobody knows.
        let (name, empty) = (b"\xa7entries", 0x90);
        let at = known.windows(name.len()).position(|part| part == name).expect("has entries") + name.len();
        assert_eq!(known[at], empty);
        let unknown = rmp_serde::to_vec_named(&("newer", 7u64)).expect("encodes");
        let body = [&known[..at], &[0x91], unknown.as_slice(), &known[at + 1..]].concat();
        let sent = [&u32::try_from(body.len()).expect("short").to_be_bytes(), body.as_slice()].concat();
        assert_eq!(check(&sent, FRAME).await.expect_err("unknown"), ErrorKind::InvalidData);
    }

    #[tokio::test]
    async fn a_list_of_too_many_is_not_read_to_its_end() {
        let commands =
            |count: usize| PeerRequest::Propose { commands: vec![serde_bytes::ByteBuf::new(); count] };
        assert!(check(&frame(&commands(COMMANDS)), FRAME).await.is_ok());
        let error = check(&frame(&commands(COMMANDS + 1)), FRAME).await.expect_err("too many");
        assert_eq!(error, ErrorKind::InvalidData);
        let append = |count: u64| {
            let entry = |index| Entry {
                log_id: LogId::new(openraft::CommittedLeaderId::new(1, 1), index),
                payload: openraft::EntryPayload::Blank,
            };
            PeerRequest::Append(AppendEntriesRequest::<TypeConfig> {
                vote: Vote::new_committed(1, 1),
                prev_log_id: None,
                entries: (0..count).map(entry).collect(),
                leader_commit: None,
            })
        };
        assert!(check(&frame(&append(ENTRIES as u64)), FRAME).await.is_ok());
        let error = check(&frame(&append(ENTRIES as u64 + 1)), FRAME).await.expect_err("too many");
        assert_eq!(error, ErrorKind::InvalidData);
    }

    #[tokio::test]
    async fn a_frame_that_is_too_long_or_cut_off_is_refused() {
        let good = frame(&PeerRequest::ReadIndex);
        assert!(check(&good, GREETING).await.is_ok());
        assert_eq!(check(&good[..good.len() - 1], FRAME).await.expect_err("cut"), ErrorKind::UnexpectedEof);
        assert_eq!(check(&good[..2], FRAME).await.expect_err("cut"), ErrorKind::UnexpectedEof);
        let long = [&[0, 0, 0x10, 1], vec![0; 4097].as_slice()].concat();
        assert_eq!(check(&long, GREETING).await.expect_err("long"), ErrorKind::InvalidData);
        assert_eq!(check(&[0xff; 64], FRAME).await.expect_err("long"), ErrorKind::InvalidData);
    }
}
