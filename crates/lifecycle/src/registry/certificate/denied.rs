//! A denied certificate that came back, with proof of its key: the host that it belonged to is still there, or a copy of it.
//! If the node was taken over by a stolen recovery token while its host was away, this is how its host is seen.

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
}

impl Verdict {
    /// Whether its use says that its holder does not know, or does not accept, that it was replaced. Asked only once the
    /// peer has proven that it holds the key. Of a node that is gone, or whose issuer was revoked, it says nothing new.
    pub fn is_replaced(self) -> bool {
        match self {
            Verdict::Denied(Denial::Replaced) => true,
            Verdict::Denied(
                Denial::NodeRevoked
                | Denial::NodeDecommissioned
                | Denial::OperatorRemoved
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

/// Nothing, if the node has gone meanwhile or the certificate is not a denied one of it.
pub(in crate::registry) fn decide(state: &State, envelope: &Envelope, seen: &DeniedSighting) -> Decision {
    let owner = Owner::Node(seen.node.clone());
    let held = state.certificates.get(&seen.serial).filter(|held| held.owner == owner);
    if seen.count == 0 || !held.is_some_and(|held| state.verdict_on(held, state.at).is_replaced()) {
        return Decision::granted(Vec::new());
    }
    let detail = format!("the denied certificate {} came back from {}", seen.serial, seen.source);
    let kind = AlertKind::DeniedCertificateSeen;
    Decision::granted(vec![state.raising(envelope, kind, &seen.node, (detail, seen.count))])
}
