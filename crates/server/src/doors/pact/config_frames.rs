//! Messages with a document in them, as they go over the wire: a few bytes of their own, then the document's, which all streams
//! that send it share. The field with the document is the last of its message, which protobuf leaves to the sender.

use crate::edge::shared_frames::frame;
use api::doors::pact::stream::{
    ConfigChunk, ConfigComplete, ConfigUpdate, NodeDelta, OverlayChunk, config_chunk,
};
use api::grpc::WireTimestamp;
use bytes::{BufMut, Bytes, BytesMut};
use lifecycle::names::Timestamp;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};
use std::sync::Arc;

/// gRPC's prefix of a message: not compressed, and its length.
const PREFIX: usize = 5;
/// How much of a document is in one piece.
const PIECE: usize = 16 * 1024;

/// The numbers of the fields that hold documents.
const BASE_OVERLAY: u32 = 1;
const NODE_DELTA: u32 = 2;
const DATA: u32 = 3;
pub const VCLUSTER_CHANGE: u32 = 3;
pub const NODE_CHANGE: u32 = 4;

/// A whole message in two parts.
pub type FrameParts = [Bytes; 2];

/// The text of a document without a copy of it.
pub fn shared(text: &Arc<str>) -> Bytes {
    struct Text(Arc<str>);
    impl AsRef<[u8]> for Text {
        fn as_ref(&self) -> &[u8] {
            self.0.as_bytes()
        }
    }
    Bytes::from_owner(Text(text.clone()))
}

pub fn timestamp(at: Timestamp) -> WireTimestamp {
    let millis = at.millis();
    let seconds = i64::try_from(millis / 1000).unwrap_or(i64::MAX);
    WireTimestamp { seconds, nanos: i32::try_from(millis % 1000 * 1_000_000).unwrap_or_default() }
}

/// A change with its document in the field of this number.
pub fn update(sequence: u64, at: Timestamp, field: u32, document: Bytes) -> FrameParts {
    let head = ConfigUpdate { sequence, timestamp: Some(timestamp(at)), update: None };
    let mut own = BytesMut::with_capacity(64);
    let length = head.encoded_len() + field_len(field, document.len());
    prefix(&mut own, length);
    // A buffer that grows has room for everything.
    let _ = head.encode(&mut own);
    begin(&mut own, field, document.len());
    [own.freeze(), document]
}

/// The pieces of a base document, in order; each is made when it is asked for.
pub fn overlay(
    version: u64,
    vcluster_id: String,
    document: Bytes,
    checksum: String,
) -> impl Iterator<Item = FrameParts> {
    let total = document.len().div_ceil(PIECE).max(1);
    (0..total).map(move |index| {
        let from = index * PIECE;
        let data = document.slice(from..document.len().min(from + PIECE));
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let head = OverlayChunk {
            version,
            vcluster_id: vcluster_id.clone(),
            data: Vec::new(),
            chunk_index: number(index),
            total_chunks: number(total),
            checksum: checksum.clone(),
        };
        chunk(BASE_OVERLAY, &head, data)
    })
}

pub fn delta(node_id: String, version: u64, document: Bytes, checksum: String) -> FrameParts {
    chunk(NODE_DELTA, &NodeDelta { node_id, version, data: Vec::new(), checksum }, document)
}

pub fn complete(base_version: u64, node_version: u64, at: Timestamp) -> FrameParts {
    let complete = ConfigComplete { base_version, node_version, timestamp: Some(timestamp(at)) };
    let message = ConfigChunk { chunk: Some(config_chunk::Chunk::Complete(complete)) };
    [frame(&message), Bytes::new()]
}

/// A ConfigChunk whose member of this number is `head` with `data` in field [`DATA`].
fn chunk(member: u32, head: &impl Message, data: Bytes) -> FrameParts {
    let inner = head.encoded_len() + field_len(DATA, data.len());
    let mut own = BytesMut::with_capacity(256);
    prefix(&mut own, field_len(member, inner));
    begin(&mut own, member, inner);
    let _ = head.encode(&mut own);
    begin(&mut own, DATA, data.len());
    [own.freeze(), data]
}

fn prefix(own: &mut BytesMut, length: usize) {
    own.reserve(PREFIX);
    own.put_u8(0);
    own.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
}

fn begin(own: &mut BytesMut, field: u32, length: usize) {
    encode_key(field, WireType::LengthDelimited, own);
    encode_varint(length as u64, own);
}

fn field_len(field: u32, length: usize) -> usize {
    key_len(field) + encoded_len_varint(length as u64) + length
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::doors::pact::stream::config_update;

    fn whole(parts: FrameParts) -> Vec<u8> {
        let bytes = parts.concat();
        let (prefix, message) = bytes.split_at(PREFIX);
        assert_eq!(prefix, [&[0][..], &(message.len() as u32).to_be_bytes()].concat());
        message.to_vec()
    }

    #[test]
    fn a_message_in_two_parts_reads_as_one() {
        let at = Timestamp::from_millis(1_700_000_000_123);
        let document = Bytes::from_static(b"{\"a\":1}");
        let read = ConfigUpdate::decode(&whole(update(7, at, NODE_CHANGE, document.clone()))[..]);
        let expected = ConfigUpdate {
            sequence: 7,
            timestamp: Some(WireTimestamp { seconds: 1_700_000_000, nanos: 123_000_000 }),
            update: Some(config_update::Update::NodeChange(document.to_vec())),
        };
        assert_eq!(read, Ok(expected));
        let read = ConfigChunk::decode(&whole(delta("n".into(), 3, document.clone(), "sum".into()))[..]);
        let expected =
            NodeDelta { node_id: "n".into(), version: 3, data: document.to_vec(), checksum: "sum".into() };
        assert_eq!(read, Ok(ConfigChunk { chunk: Some(config_chunk::Chunk::NodeDelta(expected)) }));
    }

    #[test]
    fn the_pieces_of_a_document_make_it_up() {
        for length in [0, 1, PIECE, PIECE + 1, 5 * PIECE] {
            let document = Bytes::from(vec![b'x'; length]);
            let mut found = Vec::new();
            let pieces: Vec<FrameParts> = overlay(2, "v".into(), document.clone(), "sum".into()).collect();
            for (index, piece) in pieces.iter().enumerate() {
                let read = ConfigChunk::decode(&whole(piece.clone())[..]).map(|read| read.chunk);
                let Ok(Some(config_chunk::Chunk::BaseOverlay(read))) = read else { unreachable!() };
                assert_eq!((read.chunk_index, read.total_chunks), (index as u32, pieces.len() as u32));
                assert_eq!((read.version, read.vcluster_id, read.checksum), (2, "v".into(), "sum".into()));
                found.extend(read.data);
            }
            assert_eq!(found, document);
        }
    }
}
