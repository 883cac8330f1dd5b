//! Whether somebody may take the place of a node: whether a host is there that another enrollment would put out.

use super::observe::is_silent;
use crate::names::Timestamp;
use crate::registry::{Denial, Node, NodeState, State, Verdict};

/// Whether a machine may take the place of the node that it is registered as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MachinePlace {
    Free,
    /// There is a host.
    Taken,
    Gone,
}

/// What shows that a host is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlaceRule {
    /// A good certificate and nothing else: the rule of commands of older versions.
    Certificates,
    /// A good certificate, or a sign of life within the grace period. A host that lives by an SVID has no certificate on record.
    Contact,
}

pub(super) fn place(state: &State, node: &Node, rule: PlaceRule) -> MachinePlace {
    match node.state {
        NodeState::Registered | NodeState::Inactive => MachinePlace::Free,
        NodeState::Enrolled | NodeState::Active => {
            let taken = match rule {
                PlaceRule::Certificates => state.holds_good_certificate(node),
                PlaceRule::Contact => state.holds_good_certificate(node) || is_heard(state, node),
            };
            if taken { MachinePlace::Taken } else { MachinePlace::Free }
        }
        NodeState::Revoked | NodeState::Decommissioned => MachinePlace::Gone,
    }
}

/// Heard within the grace period, whatever certificates it has. A node whose certificates were denied together with their issuer
/// cannot speak with them any more, so that what was heard of it before holds no place: its machine enrolls again at once.
fn is_heard(state: &State, node: &Node) -> bool {
    let by_certificate = node.state == NodeState::Active
        && is_recent(state, node.last_seen)
        && !node
            .serials
            .iter()
            .any(|serial| matches!(state.verdict(serial, state.at), Verdict::Denied(Denial::IssuerRevoked)));
    by_certificate || lives_by_svid(state, node)
}

/// Its host is there by an SVID: it was heard with one within the grace period, or with nothing else since it was active last, and
/// has not been found silent.
pub(in crate::registry) fn lives_by_svid(state: &State, node: &Node) -> bool {
    let last = node.svid_seen.is_some() && node.svid_seen >= node.last_seen;
    let followed = last && node.streamed && node.state == NodeState::Active;
    followed || is_recent(state, node.svid_seen)
}

fn is_recent(state: &State, seen: Option<Timestamp>) -> bool {
    seen.is_some_and(|seen| !is_silent(state, seen))
}
