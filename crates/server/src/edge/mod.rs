//! The edge: connections in, answers out, everything in between bounded in size, time and number.

pub mod authenticate;
pub mod body;
pub mod connections;
pub mod limits;
pub mod listener;
pub mod logged;
pub mod refusals;
pub mod refused_renewals;
pub mod service;
pub mod socket;
pub mod stall;
pub mod tls;
pub mod unauthenticated;
pub mod unread;

use connections::Connections;
use limits::FailureLimits;
use refusals::RefusedAttempts;
use refused_renewals::RefusedRenewals;
use unauthenticated::UnauthenticatedLimits;

/// What the edge counts and bounds.
#[derive(Default)]
pub struct Edge {
    failures: FailureLimits,
    unauthenticated: UnauthenticatedLimits,
    connections: Connections,
    pub refusals: RefusedAttempts,
    pub refused_renewals: RefusedRenewals,
}
