//! What makes an identity look copied, until an alert is raised about it.

use lifecycle::names::{NodeId, ReplicaId, Serial, Source, Timestamp};
use std::fmt;

/// An identity that seems to be in use twice.
pub struct Suspicion {
    pub node: NodeId,
    pub sign: CopySign,
    /// When the node was last heard here before that.
    pub heard: Option<Timestamp>,
}

pub enum CopySign {
    /// An earlier start of the agent came back; from where the newest spoke, as far as this replica knows.
    EarlierStart { from: Source, newest: Option<Source> },
    /// A certificate came back whose successor has long taken over.
    Superseded { serial: Serial, from: Option<Source>, spoke_from: Option<Source> },
    /// One certificate on two live streams; at which replicas, if not at one.
    TwoStreams { one: Source, other: Source, replicas: Option<(ReplicaId, ReplicaId)> },
}

impl CopySign {
    /// One stream here, the other there. Whichever of the two replicas finds it says the same, so that the alert is
    /// raised once.
    pub fn across(one: (ReplicaId, Source), other: (ReplicaId, Source)) -> Self {
        let (first, second) = if one.0 <= other.0 { (one, other) } else { (other, one) };
        CopySign::TwoStreams { one: first.1, other: second.1, replicas: Some((first.0, second.0)) }
    }

    /// The node itself was heard from there since.
    pub fn spoke_from(&mut self, source: Option<Source>) {
        match self {
            CopySign::EarlierStart { newest: spoke, .. } | CopySign::Superseded { spoke_from: spoke, .. } => {
                *spoke = source;
            }
            CopySign::TwoStreams { .. } => {}
        }
    }
}

impl fmt::Display for CopySign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CopySign::EarlierStart { from, newest } => {
                let newest = shown(*newest);
                write!(
                    f,
                    "an earlier start of its agent came back from {from}; the newest spoke from {newest}"
                )
            }
            CopySign::Superseded { serial, from, spoke_from } => {
                let (from, spoke_from) = (shown(*from), shown(*spoke_from));
                write!(
                    f,
                    "the superseded certificate {serial} came back from {from}; the node spoke from {spoke_from}"
                )
            }
            CopySign::TwoStreams { one, other, replicas: None } => {
                write!(f, "two live streams with one certificate, from {one} and {other}")
            }
            CopySign::TwoStreams { one, other, replicas: Some((first, second)) } => write!(
                f,
                "two live streams with one certificate, from {one} to replica {first} and from {other} to replica {second}"
            ),
        }
    }
}

fn shown(source: Option<Source>) -> String {
    source.map_or_else(|| "an unknown address".to_owned(), |source| source.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_replicas_that_find_the_same_say_the_same() {
        let source = |last: u8| Source::Address(std::net::IpAddr::from([192, 0, 2, last]));
        let (one, other) = ((ReplicaId(1), source(7)), (ReplicaId(3), source(5)));
        let found = CopySign::across(one, other).to_string();
        assert_eq!(found, CopySign::across(other, one).to_string());
        assert!(found.ends_with("from 192.0.2.7 to replica 1 and from 192.0.2.5 to replica 3"), "{found}");
    }
}
