//! The edge: connections in, answers out, everything in between bounded in size, time and number.

pub mod authenticate;
pub mod body;
pub mod connections;
pub mod limits;
pub mod listener;
pub mod logged;
pub mod places;
pub mod refusals;
pub mod service;
pub mod socket;
pub mod stall;
pub mod tls;

use connections::Connections;
use limits::FailureLimits;
use places::Places;
use refusals::Refusals;

/// What the edge counts and bounds.
#[derive(Default)]
pub struct Edge {
    failures: FailureLimits,
    places: Places,
    connections: Connections,
    pub refusals: Refusals,
}
