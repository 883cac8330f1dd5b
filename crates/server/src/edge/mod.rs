//! The edge: connections in, answers out, everything in between bounded in size, time and number.

pub mod answers;
pub mod authenticate;
pub mod body;
pub mod capacity;
pub mod connections;
pub mod control_frames;
pub mod fed;
pub mod first_contact;
pub mod handshake_turns;
pub mod hardware_guesses;
pub mod keepalive;
pub mod limits;
pub mod listener;
pub mod logged;
pub mod node_peer;
pub mod phase;
pub mod plain;
pub mod refusals;
pub mod refused_renewals;
pub mod repeated_failures;
pub mod service;
pub mod shared_frames;
pub mod sharer;
pub mod shares;
pub mod socket;
pub mod stall;
pub mod stream_messages;
pub mod tls;
pub mod turns;
pub mod unread;

use capacity::Capacity;
use connections::Connections;
use hardware_guesses::HardwareGuesses;
use limits::FailureLimits;
use refusals::RefusedAttempts;
use refused_renewals::RefusedRenewals;
use repeated_failures::RepeatedFailures;

/// What the edge counts and bounds.
pub struct Edge {
    failures: FailureLimits,
    pub capacity: Capacity,
    connections: Connections,
    pub refusals: RefusedAttempts,
    pub refused_renewals: RefusedRenewals,
    pub repeated_failures: RepeatedFailures,
    pub hardware_guesses: HardwareGuesses,
    /// Whether gRPC server reflection is served.
    pub reflection: bool,
}

impl Edge {
    /// With so many descriptors for connections.
    pub fn new(descriptors: usize, reflection: bool) -> Self {
        Self {
            failures: FailureLimits::default(),
            capacity: Capacity::new(descriptors),
            connections: Connections::default(),
            refusals: RefusedAttempts::default(),
            refused_renewals: RefusedRenewals::default(),
            repeated_failures: RepeatedFailures::default(),
            hardware_guesses: HardwareGuesses::default(),
            reflection,
        }
    }
}
