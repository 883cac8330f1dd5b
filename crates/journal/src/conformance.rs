//! The stored forms and the stores behind openraft's traits: for openraft's suite and the golden samples.

pub use crate::batch::{Batch, EncodedEnvelope};
pub use crate::framing::Framing;
pub use crate::log::{LogStore, StoredEntry, StoredPayload};
pub use crate::log_key::RowPlace;
pub use crate::machine::Machine;
pub use crate::raft::TypeConfig;
pub use crate::snapshot::{
    FormatError, Image, ImageMeta, decode as decode_framed_snapshot, encode as encode_framed_snapshot,
};
pub use crate::stored::{RowFault, open, seal};

use crate::open_error::OpenError;
use crate::options::Options;
use std::io::{Read, Seek, Write};

/// The stores of an empty directory, without replication around them.
pub fn stores(options: &Options) -> Result<(LogStore, Machine), OpenError> {
    let signals = crate::machine::Signals::default();
    let (machine, _) = crate::machine::start(options, None, 0, &signals)?;
    let log = crate::log::start(options, signals.audit_seq, None)?;
    Ok((log, machine))
}

/// A snapshot as it was before snapshots were authenticated.
pub fn encode_snapshot(image: &Image, file: impl Write + Seek) -> Result<(), FormatError> {
    encode_framed_snapshot(image, file, &Framing::Checksummed)
}

/// The same, read.
pub fn decode_snapshot(file: impl Read + Seek) -> Result<Image, FormatError> {
    decode_framed_snapshot(file, &Framing::Checksummed, 0)
}
