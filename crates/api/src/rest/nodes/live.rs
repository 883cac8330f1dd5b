//! What is known of a node beyond the registry: what the replicas remember.

use lifecycle::names::Timestamp;
use lifecycle::registry::Report;
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
}
