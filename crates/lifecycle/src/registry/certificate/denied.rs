//! A denied certificate that came back, with proof of its key: the host that it belonged to is still there, or a copy of it.
//! If the node was taken over by a stolen recovery token while its host was away, this is how its host is seen; if it was revoked
//! because its machine was stolen, this is how the machine is seen.

use crate::names::{NodeId, Serial, Source};
use crate::registry::apply::Decision;
use crate::registry::{AlertKind, Denial, Envelope, Owner, State, Verdict};
use serde::{Deserialize, Serialize};

/// What a replica counted at its handshakes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeniedSighting {
    pub node: NodeId,
    /// The certificate that came last, and where from.
    pub serial: Serial,
    pub source: Source,
    /// How often one came since this was last recorded.
    pub count: u64,
    /// Nodes that are revoked or decommissioned count too. The log holds commands without it, which answered for replaced certificates alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_gone_nodes: bool,
}

impl Verdict {
    /// Whether its use says something about its holder: that it does not know, or does not accept, that the certificate was replaced or
    /// its node revoked. Asked only once the peer has proven that it holds the key.
    pub fn is_reported_when_used(self) -> bool {
        match self {
            Verdict::Denied(Denial::Replaced | Denial::NodeRevoked | Denial::NodeDecommissioned) => true,
            Verdict::Denied(
                Denial::OperatorRemoved
                | Denial::ReplicaRemoved
                | Denial::IssuerRevoked
                | Denial::BootstrapRevoked,
            )
            | Verdict::Good
            | Verdict::Grace { .. }
            | Verdict::Superseded { .. }
            | Verdict::Expired
            | Verdict::Unknown => false,
        }
    }
}

/// Nothing, if the certificate is not a denied one of the node.
pub(in crate::registry) fn decide(state: &State, envelope: &Envelope, seen: &DeniedSighting) -> Decision {
    let owner = Owner::Node(seen.node.clone());
    let held = state.certificates.get(&seen.serial).filter(|held| held.owner == owner);
    let verdict = held.map(|held| state.verdict_on(held, state.at));
    let reported = verdict.is_some_and(|verdict| {
        verdict.is_reported_when_used()
            && (seen.of_gone_nodes || verdict == Verdict::Denied(Denial::Replaced))
    });
    if seen.count == 0 || !reported {
        return Decision::granted(Vec::new());
    }
    let gone = matches!(verdict, Some(Verdict::Denied(Denial::NodeRevoked | Denial::NodeDecommissioned)));
    let whose = if gone { " of a node that is gone" } else { "" };
    let detail = format!("the denied certificate {}{whose} came back from {}", seen.serial, seen.source);
    let kind = AlertKind::DeniedCertificateSeen;
    Decision::granted(vec![state.raising(envelope, kind, &seen.node, (detail, seen.count))])
}
