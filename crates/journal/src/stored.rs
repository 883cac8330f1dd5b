//! The frame around everything that was stored before it was authenticated (version 1): version tag, checksum, MessagePack
//! with field names. `framing` has the one of today.
//!
//! Fields of stored forms are only added. A form that cannot be read as an older one gets a higher version,
//! so that an older program says "newer" instead of guessing.

use serde::Serialize;
use serde::de::DeserializeOwned;

pub const VERSION: u8 = 1;
/// One byte of version, four of CRC-32 (little-endian, over version and payload).
pub const FRAME: usize = 5;
const DEPTH: usize = 64;

/// Why a frame cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RowFault {
    #[error("it is too short")]
    Short,
    #[error("its form {version} is newer than this program")]
    Newer { version: u8 },
    #[error("its checksum does not match")]
    Checksum,
    #[error(
        "its authentication code does not match: it was damaged, or changed, moved or taken from another domain by \
         somebody without the log key"
    )]
    Code,
    #[error("it is not authenticated: it was written by somebody without the log key")]
    Unauthenticated,
    #[error("it is authenticated, but the directory claims to be of a version that did not do that")]
    Authenticated,
    #[error("it cannot be decoded: {0}")]
    Undecodable(String),
}

/// A frame with room for its checksum; the payload is written behind it, then [`finish`]ed.
pub fn begin(capacity: usize) -> Vec<u8> {
    let mut row = Vec::with_capacity(FRAME + capacity);
    row.extend_from_slice(&[VERSION, 0, 0, 0, 0]);
    row
}

pub fn finish(row: &mut [u8]) {
    if let Some((head, payload)) = row.split_first_chunk_mut::<FRAME>() {
        let [version, crc @ ..] = head;
        *crc = checksum(*version, payload).to_le_bytes();
    }
}

pub fn seal<T: Serialize>(value: &T) -> Result<Vec<u8>, rmp_serde::encode::Error> {
    let mut row = begin(256);
    rmp_serde::encode::write_named(&mut row, value)?;
    finish(&mut row);
    Ok(row)
}

pub fn open<T: DeserializeOwned>(row: &[u8]) -> Result<T, RowFault> {
    let ([version, crc @ ..], payload) = row.split_first_chunk::<FRAME>().ok_or(RowFault::Short)?;
    if *version > VERSION {
        return Err(RowFault::Newer { version: *version });
    }
    if u32::from_le_bytes(*crc) != checksum(*version, payload) {
        return Err(RowFault::Checksum);
    }
    decode(payload).map_err(|error| RowFault::Undecodable(error.to_string()))
}

/// Reads one MessagePack value. Nothing stored is nested deeply; what is deeper than that is refused before it
/// could exhaust the stack.
pub fn decode<T: DeserializeOwned>(from: &[u8]) -> Result<T, rmp_serde::decode::Error> {
    let mut reader = rmp_serde::Deserializer::from_read_ref(from);
    reader.set_max_depth(DEPTH);
    T::deserialize(&mut reader)
}

/// The same from a stream whose lengths were looked over: it makes room for what they claim.
pub fn decode_stream<T: DeserializeOwned>(from: impl std::io::Read) -> Result<T, rmp_serde::decode::Error> {
    let mut reader = rmp_serde::Deserializer::new(from);
    reader.set_max_depth(DEPTH);
    T::deserialize(&mut reader)
}

fn checksum(version: u8, payload: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&[version]);
    crc.update(payload);
    crc.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_bit_of_a_frame_is_noticed() {
        let row = seal(&("text", 7u64)).expect("encodes");
        assert_eq!(open::<(String, u64)>(&row), Ok(("text".to_owned(), 7)));
        for bit in 0..row.len() * 8 {
            let mut changed = row.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(open::<(String, u64)>(&changed).is_err(), "bit {bit}");
        }
        assert_eq!(open::<u64>(&row[..4]), Err(RowFault::Short));
    }

    #[test]
    fn a_newer_form_is_called_newer() {
        let mut row = seal(&7u64).expect("encodes");
        row[0] = VERSION + 1;
        assert_eq!(open::<u64>(&row), Err(RowFault::Newer { version: VERSION + 1 }));
    }

    #[test]
    fn what_is_nested_too_deeply_is_refused() {
        let nested = |depth| {
            let mut row = begin(depth + 1);
            row.resize(FRAME + depth, 0x91);
            row.push(0xc0);
            finish(&mut row);
            open::<serde::de::IgnoredAny>(&row).map(drop)
        };
        assert_eq!(nested(DEPTH - 2), Ok(()));
        assert!(matches!(nested(100_000), Err(RowFault::Undecodable(_))));
    }
}
