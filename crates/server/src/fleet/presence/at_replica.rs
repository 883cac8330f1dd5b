//! What one replica knows of nodes and tells the others. It travels between replicas: fields are only added.

use super::Stream;
use api::rest::nodes::NodeLiveness;
use lifecycle::names::{NodeId, Serial, Source, Span, Timestamp};
use lifecycle::registry::{NodeConnection, Report};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A node beyond the registry. Times are by the clock of the replica that says it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAtReplica {
    pub node: NodeId,
    pub last_seen: Option<Timestamp>,
    /// Where it was then.
    pub source: Option<Source>,
    /// Its oldest live stream.
    pub connection: Option<NodeConnection>,
    /// How long it may be silent by what it was told, while it is connected.
    pub may_be_silent: Option<Span>,
    /// What it last said of itself.
    pub report: Option<Arc<Report>>,
    /// The revision of the overlay that was sent to it, and how many peers that comes to.
    #[serde(default)]
    pub overlay_told: Option<(u64, u64)>,
}

/// Whether the latest report of a node is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportWanted {
    None,
    /// Only if something new in it is not in the registry yet: enough for whoever looks at many nodes.
    Unwritten,
    Latest,
}

impl NodeAtReplica {
    /// What two replicas know of one node.
    pub fn and(self, other: Self) -> Self {
        let newer = if self.last_seen < other.last_seen { other.source } else { self.source };
        let reports = self.report.into_iter().chain(other.report);
        let connections = self.connection.into_iter().chain(other.connection);
        Self {
            node: self.node,
            last_seen: self.last_seen.max(other.last_seen),
            source: newer.or(self.source).or(other.source),
            connection: connections.min_by_key(|connection| connection.since),
            may_be_silent: self.may_be_silent.max(other.may_be_silent),
            report: reports.max_by_key(|report| report.at),
            overlay_told: self.overlay_told.max(other.overlay_told),
        }
    }

    pub fn live(&self) -> NodeLiveness {
        NodeLiveness {
            last_seen: self.last_seen,
            connected: self.connection.is_some(),
            report: self.report.clone(),
            overlay_told: self.overlay_told,
        }
    }
}

/// A live stream of this replica.
#[derive(Debug, Clone)]
pub struct OwnStream {
    /// Streams are numbered as they are opened.
    pub number: u64,
    pub node: NodeId,
    pub serial: Serial,
    pub source: Source,
    pub open_for: Span,
    pub silent_for: Span,
}

impl OwnStream {
    pub(super) fn of(node: &NodeId, stream: &Stream, now: Timestamp) -> Self {
        Self {
            number: stream.id,
            node: node.clone(),
            serial: stream.serial.clone(),
            source: stream.source,
            open_for: now.since(stream.since),
            silent_for: stream.silence(now),
        }
    }
}

/// A live stream of another replica. Spans instead of times, because the clocks of two replicas differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldStream {
    pub node: NodeId,
    pub serial: Serial,
    pub source: Source,
    pub open_for: Span,
    /// How long nothing was read from its connection.
    pub silent_for: Span,
}

impl HeldStream {
    pub(super) fn of(node: &NodeId, stream: &Stream, now: Timestamp) -> Self {
        let OwnStream { node, serial, source, open_for, silent_for, .. } = OwnStream::of(node, stream, now);
        Self { node, serial, source, open_for, silent_for }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_replicas_know_is_joined_by_what_is_newer() {
        let source = |last: u8| Source::Address(std::net::IpAddr::from([192, 0, 2, last]));
        let at = Timestamp::from_secs;
        let one = NodeAtReplica {
            node: NodeId::parse("n1").expect("a name"),
            last_seen: Some(at(10)),
            source: Some(source(1)),
            connection: None,
            may_be_silent: None,
            report: Some(Arc::new(Report::blank(at(9)))),
            overlay_told: None,
        };
        let connection = Some(NodeConnection { since: at(12), from: source(2) });
        let other = NodeAtReplica {
            last_seen: Some(at(20)),
            source: Some(source(2)),
            connection,
            report: None,
            ..one.clone()
        };
        for joined in [one.clone().and(other.clone()), other.and(one)] {
            assert_eq!((joined.last_seen, joined.source), (Some(at(20)), Some(source(2))));
            assert!(joined.live().connected && joined.report.is_some());
        }
    }
}
