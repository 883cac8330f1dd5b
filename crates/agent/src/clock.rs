//! The only place that asks this host for the time.

use std::time::{SystemTime, UNIX_EPOCH};

use lifecycle::names::Timestamp;

/// A clock before 1970 reads as 1970: nothing is valid then, which is the right answer.
#[expect(clippy::disallowed_methods, reason = "this is the room that asks the clock")]
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
