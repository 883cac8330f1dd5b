//! What is in a snapshot file: a header, then two MessagePack values with field names, [`ImageMeta`] and the state.
//!
//! Written and read as a stream: the registry of a large fleet is some hundred megabytes, and a second copy
//! of it in memory would be the largest allocation of the program.

use super::lengths;
use crate::framing::{AUTHENTICATED, Framing};
use crate::log_key::{Authenticator, NO_CODE, RowCode, RowPlace};
use crate::raft::{LogId, StoredMembership};
use crate::stored;
use crate::view::AuditHead;
use lifecycle::names::Timestamp;
use lifecycle::registry::State;
use openraft::SnapshotMeta;
use serde::{Deserialize, Serialize};
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};

const MAGIC: &[u8; 8] = b"enlistSN";
/// Before snapshots were authenticated: a CRC-32 of version and body stands where the code stands now.
const CHECKSUMMED: u8 = 1;
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
    #[error(transparent)]
    Frame(#[from] stored::RowFault),
    #[error("the lengths in it do not add up")]
    Lengths,
    #[error("it cannot be decoded: {0}")]
    Undecodable(#[from] rmp_serde::decode::Error),
    #[error("it cannot be encoded: {0}")]
    Encode(#[from] rmp_serde::encode::Error),
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// What stands before the body: magic, version, the code (or checksum) of the body, its length (little-endian).
struct Header {
    version: u8,
    code: RowCode,
    length: u64,
}

/// Where a snapshot belongs: one of another index, in a file with this index's name, is not taken.
fn place(index: u64) -> RowPlace<'static> {
    RowPlace { kind: "snapshot", index, after: &NO_CODE }
}

pub fn encode(image: &Image, mut file: impl Write + Seek, framing: &Framing) -> Result<(), FormatError> {
    let sum = BodySum::new(framing, image.meta.index());
    let mut header = Header { version: sum.version(), code: NO_CODE, length: 0 };
    header.write(&mut file)?;
    let (sum, length) = {
        let mut body = Summed { inner: BufWriter::with_capacity(1 << 16, &mut file), sum, length: 0 };
        rmp_serde::encode::write_named(&mut body, &image.meta)?;
        rmp_serde::encode::write_named(&mut body, &image.state)?;
        body.flush()?;
        (body.sum, body.length)
    };
    (header.code, header.length) = (sum.finish(), length);
    file.seek(SeekFrom::Start(0))?;
    header.write(&mut file)
}

/// Reads three times: the code and the lengths first, so that nothing unchecked is decoded.
pub fn decode(mut file: impl Read + Seek, framing: &Framing, index: u64) -> Result<Image, FormatError> {
    let header = Header::read(&mut file)?;
    let start = header.size();
    let mut sum =
        Summed { inner: std::io::sink(), sum: BodySum::check(framing, index, header.version)?, length: 0 };
    std::io::copy(&mut BufReader::with_capacity(1 << 16, &mut file), &mut sum)?;
    if sum.length != header.length {
        return Err(FormatError::Checksum);
    }
    sum.sum.verify(&header.code)?;
    file.seek(SeekFrom::Start(start))?;
    if !lengths::check(BufReader::with_capacity(1 << 16, &mut file), VALUES, header.length)? {
        return Err(FormatError::Lengths);
    }
    file.seek(SeekFrom::Start(start))?;
    let mut body = BufReader::with_capacity(1 << 16, &mut file);
    let meta = stored::decode_stream(&mut body)?;
    let mut state: State = stored::decode_stream(&mut body)?;
    state.count_machines();
    Ok(Image { meta, state })
}

/// Only what the snapshot says about itself; the body is not checked.
pub fn peek(mut file: impl Read) -> Result<ImageMeta, FormatError> {
    Header::read(&mut file)?;
    let mut beginning = Vec::new();
    file.take(META).read_to_end(&mut beginning)?;
    Ok(stored::decode(&beginning)?)
}

impl Header {
    /// How many bytes of `code` are written.
    fn code_size(version: u8) -> usize {
        if version == CHECKSUMMED { 4 } else { 32 }
    }

    fn size(&self) -> u64 {
        (MAGIC.len() + 1 + Self::code_size(self.version) + 8) as u64
    }

    fn write(&self, mut file: impl Write) -> Result<(), FormatError> {
        file.write_all(MAGIC)?;
        file.write_all(&[self.version])?;
        file.write_all(self.code.get(..Self::code_size(self.version)).unwrap_or_default())?;
        file.write_all(&self.length.to_le_bytes())?;
        Ok(())
    }

    fn read(mut file: impl Read) -> Result<Self, FormatError> {
        let (mut magic, mut version, mut code, mut length) = ([0; 8], [0; 1], NO_CODE, [0; 8]);
        let mut fill = |part: &mut [u8]| match file.read_exact(part) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Err(FormatError::Magic),
            other => other.map_err(FormatError::Io),
        };
        fill(&mut magic)?;
        fill(&mut version)?;
        let [version] = version;
        if &magic != MAGIC {
            return Err(FormatError::Magic);
        }
        if version > AUTHENTICATED {
            return Err(FormatError::Newer { version });
        }
        fill(code.get_mut(..Self::code_size(version)).unwrap_or_default())?;
        fill(&mut length)?;
        Ok(Self { version, code, length: u64::from_le_bytes(length) })
    }
}

/// What vouches for a body.
enum BodySum {
    Checksum(crc32fast::Hasher),
    Code(Box<Authenticator>),
}

impl BodySum {
    fn new(framing: &Framing, index: u64) -> Self {
        match framing {
            Framing::Checksummed => {
                let mut crc = crc32fast::Hasher::new();
                // The version is under the checksum too.
                crc.update(&[CHECKSUMMED]);
                BodySum::Checksum(crc)
            }
            Framing::Authenticated(key) => BodySum::Code(Box::new(key.begin(&place(index)))),
        }
    }

    /// For a body that says it is of this version.
    fn check(framing: &Framing, index: u64, version: u8) -> Result<Self, stored::RowFault> {
        match (framing, version) {
            (Framing::Checksummed, AUTHENTICATED) => Err(stored::RowFault::Authenticated),
            (Framing::Authenticated(_), version) if version != AUTHENTICATED => {
                Err(stored::RowFault::Unauthenticated)
            }
            (Framing::Checksummed | Framing::Authenticated(_), _) => Ok(Self::new(framing, index)),
        }
    }

    fn version(&self) -> u8 {
        match self {
            BodySum::Checksum(_) => CHECKSUMMED,
            BodySum::Code(_) => AUTHENTICATED,
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            BodySum::Checksum(crc) => crc.update(bytes),
            BodySum::Code(code) => code.update(bytes),
        }
    }

    /// A checksum is the beginning of it.
    fn finish(self) -> RowCode {
        match self {
            BodySum::Checksum(crc) => {
                let mut code = NO_CODE;
                for (to, from) in code.iter_mut().zip(crc.finalize().to_le_bytes()) {
                    *to = from;
                }
                code
            }
            BodySum::Code(code) => code.finish(),
        }
    }

    fn verify(self, expected: &RowCode) -> Result<(), FormatError> {
        let (good, fault) = match self {
            BodySum::Code(code) => (code.verify(expected), stored::RowFault::Code.into()),
            sum @ BodySum::Checksum(_) => (sum.finish() == *expected, FormatError::Checksum),
        };
        if good { Ok(()) } else { Err(fault) }
    }
}

/// Counts and sums what passes.
struct Summed<W> {
    inner: W,
    sum: BodySum,
    length: u64,
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.inner.write(bytes)?;
        if let Some(passed) = bytes.get(..written) {
            self.sum.update(passed);
        }
        self.length += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}
