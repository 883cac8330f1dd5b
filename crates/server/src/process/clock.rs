//! The only room that asks for the time of day.

use lifecycle::names::Timestamp;
use std::time::{SystemTime, UNIX_EPOCH};

/// The wall clock. Before 1970 counts as 1970: the start-up check refuses such a clock anyway.
#[expect(clippy::disallowed_methods, reason = "this is the room where the clock is read")]
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
