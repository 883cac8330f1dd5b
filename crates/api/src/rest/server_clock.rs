//! The clock of a control plane, and how far it is believed.

use lifecycle::clock::ClockReading;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServerClock {
    /// What the machine's clock says.
    pub wall: String,
    /// The time that the control plane goes by.
    pub time: String,
    /// How far the machine's clock is ahead of the time that has passed since it was last taken to be right; negative if
    /// it is behind.
    pub offset_ms: i64,
    /// Whether the machine's clock is believed: within 60 seconds. While it is not, nothing is issued.
    pub believed: bool,
}

impl ServerClock {
    pub fn of(reading: &ClockReading) -> Self {
        Self {
            wall: reading.wall.to_string(),
            time: reading.time.to_string(),
            offset_ms: reading.offset_ms,
            believed: reading.is_believed(),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = AcceptClock)]
pub struct AcceptClockRequest {
    /// `clock`, where `confirmation_needed` asks for it: the message says what ends by the new time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
}
