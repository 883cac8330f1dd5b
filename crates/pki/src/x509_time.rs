//! Moments as the libraries write them.

use lifecycle::names::{Span, Timestamp};
use time::OffsetDateTime;
use x509_parser::time::ASN1Time;

/// How far a leaf reaches back before it was signed, for hosts whose clock is a little behind.
pub(crate) const LEAF_BACKDATE: Span = Span::from_secs(60);

/// To the whole second. A [`Timestamp`] never exceeds the year 9999, so this loses nothing.
pub(crate) fn date_time(at: Timestamp) -> OffsetDateTime {
    let secs = i64::try_from(at.secs()).unwrap_or(i64::MAX);
    OffsetDateTime::from_unix_timestamp(secs).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// A time before 1970 counts as 1970.
pub(crate) fn timestamp(time: ASN1Time) -> Timestamp {
    Timestamp::from_secs(u64::try_from(time.timestamp()).unwrap_or(0))
}

pub(crate) fn unix_time(at: Timestamp) -> rustls_pki_types::UnixTime {
    rustls_pki_types::UnixTime::since_unix_epoch(std::time::Duration::from_secs(at.secs()))
}
