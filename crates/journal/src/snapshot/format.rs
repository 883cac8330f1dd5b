//! What is in a snapshot file: a header, then two MessagePack values with field names, [`ImageMeta`] and the state.
//!
//! Written and read as a stream: the registry of a large fleet is some hundred megabytes, and a second copy
//! of it in memory would be the largest allocation of the program.

use super::lengths;
use crate::raft::{LogId, StoredMembership};
use crate::stored;
use crate::view::AuditHead;
use lifecycle::names::Timestamp;
use lifecycle::registry::State;
use openraft::SnapshotMeta;
use serde::{Deserialize, Serialize};
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};

const MAGIC: &[u8; 8] = b"enlistSN";
const VERSION: u8 = 1;
/// Magic, version, CRC-32 of the body, length of the body (both little-endian).
const HEADER: u64 = 8 + 1 + 4 + 8;
/// Meta and state.
const VALUES: u64 = 2;
/// Room enough for what a snapshot says about itself.
const META: u64 = 1 << 16;

/// What a snapshot says about itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ImageMeta {
    pub log_id: Option<LogId>,
    pub membership: StoredMembership,
    pub audit: AuditHead,
    /// The registry's effective time.
    pub at: Timestamp,
}

impl ImageMeta {
    pub fn index(&self) -> u64 {
        self.log_id.map_or(0, |id| id.index)
    }

    /// As openraft wants it.
    pub fn to_raft(&self) -> SnapshotMeta<u64, openraft::BasicNode> {
        let term = self.log_id.map_or(0, |id| id.leader_id.term);
        SnapshotMeta {
            last_log_id: self.log_id,
            last_membership: self.membership.clone(),
            snapshot_id: format!("{term}-{}", self.index()),
        }
    }
}

/// A snapshot in memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Image {
    pub meta: ImageMeta,
    pub state: State,
}

/// Why a snapshot cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    #[error("it is not a snapshot")]
    Magic,
    #[error("its form {version} is newer than this program")]
    Newer { version: u8 },
    #[error("its checksum does not match")]
    Checksum,
    #[error("the lengths in it do not add up")]
    Lengths,
    #[error("it cannot be decoded: {0}")]
    Undecodable(#[from] rmp_serde::decode::Error),
    #[error("it cannot be encoded: {0}")]
    Encode(#[from] rmp_serde::encode::Error),
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

pub fn encode(image: &Image, mut file: impl Write + Seek) -> Result<(), FormatError> {
    file.write_all(&[0; HEADER as usize])?;
    let mut body = Summed { inner: BufWriter::with_capacity(1 << 16, &mut file), crc: seed(), length: 0 };
    rmp_serde::encode::write_named(&mut body, &image.meta)?;
    rmp_serde::encode::write_named(&mut body, &image.state)?;
    body.flush()?;
    let (crc, length) = (body.crc.clone().finalize(), body.length);
    drop(body);
    file.seek(SeekFrom::Start(0))?;
    file.write_all(MAGIC)?;
    file.write_all(&[VERSION])?;
    file.write_all(&crc.to_le_bytes())?;
    file.write_all(&length.to_le_bytes())?;
    Ok(())
}

/// Reads three times: the checksum and the lengths first, so that nothing unchecked is decoded.
pub fn decode(mut file: impl Read + Seek) -> Result<Image, FormatError> {
    let (crc, length) = header(&mut file)?;
    let mut sum = Summed { inner: std::io::sink(), crc: seed(), length: 0 };
    std::io::copy(&mut BufReader::with_capacity(1 << 16, &mut file), &mut sum)?;
    if sum.length != length || sum.crc.finalize() != crc {
        return Err(FormatError::Checksum);
    }
    file.seek(SeekFrom::Start(HEADER))?;
    if !lengths::check(BufReader::with_capacity(1 << 16, &mut file), VALUES, length)? {
        return Err(FormatError::Lengths);
    }
    file.seek(SeekFrom::Start(HEADER))?;
    let mut body = BufReader::with_capacity(1 << 16, &mut file);
    let meta = stored::decode_stream(&mut body)?;
    let state = stored::decode_stream(&mut body)?;
    Ok(Image { meta, state })
}

/// Only what the snapshot says about itself; the body is not checked.
pub fn peek(mut file: impl Read) -> Result<ImageMeta, FormatError> {
    header(&mut file)?;
    let mut beginning = Vec::new();
    file.take(META).read_to_end(&mut beginning)?;
    Ok(stored::decode(&beginning)?)
}

fn header(mut file: impl Read) -> Result<(u32, u64), FormatError> {
    let (mut magic, mut version, mut crc, mut length) = ([0; 8], [0; 1], [0; 4], [0; 8]);
    let mut fill = |part: &mut [u8]| match file.read_exact(part) {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Err(FormatError::Magic),
        other => other.map_err(FormatError::Io),
    };
    fill(&mut magic)?;
    fill(&mut version)?;
    fill(&mut crc)?;
    fill(&mut length)?;
    let [version] = version;
    if &magic != MAGIC {
        Err(FormatError::Magic)
    } else if version > VERSION {
        Err(FormatError::Newer { version })
    } else {
        Ok((u32::from_le_bytes(crc), u64::from_le_bytes(length)))
    }
}

/// The version is under the checksum too.
fn seed() -> crc32fast::Hasher {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&[VERSION]);
    crc
}

/// Counts and sums what passes.
struct Summed<W> {
    inner: W,
    crc: crc32fast::Hasher,
    length: u64,
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.inner.write(bytes)?;
        if let Some(passed) = bytes.get(..written) {
            self.crc.update(passed);
        }
        self.length += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}
