//! What is known of a node beyond the registry: what the replicas remember.

use lifecycle::names::{Serial, Timestamp};
use lifecycle::registry::Report;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// As it is known now.
#[derive(Debug, Clone, Default)]
pub struct NodeLiveness {
    pub last_seen: Option<Timestamp>,
    pub connected: bool,
    /// What the host said last of itself, if a replica remembers it.
    pub report: Option<Arc<Report>>,
    /// The revision of the overlay that was sent to it, and how many peers that comes to.
    pub overlay_told: Option<(u64, u64)>,
    /// What it is connected by, if that is an SVID.
    pub svid: Option<Arc<SvidInUse>>,
}

/// An SVID by which a node has a live stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SvidInUse {
    pub spiffe_id: String,
    pub serial: Serial,
    pub not_after: Timestamp,
}
