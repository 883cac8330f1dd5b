//! What is known of a node beyond the registry: the memory of one process.

use lifecycle::names::Timestamp;
use lifecycle::registry::Report;
use std::sync::Arc;

/// As the process that answers knows it now.
#[derive(Debug, Clone, Default)]
pub struct NodeLiveness {
    pub last_seen: Option<Timestamp>,
    pub connected: bool,
    /// What the host said last of itself, if it was heard here.
    pub report: Option<Arc<Report>>,
}
