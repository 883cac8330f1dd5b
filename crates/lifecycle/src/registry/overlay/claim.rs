//! A host claims its place in the overlay, over its live stream and with a proof that it has the key: the control plane
//! has checked that before. What follows from it is decided here: nothing new, a host that joins, one that was ordered to
//! replace its key, or another endpoint.

use super::{Underlay, Wireguard, join, rekey};
use crate::names::{NodeId, Source, Span};
use crate::registry::apply::Decision;
use crate::registry::event::EndpointChanged;
use crate::registry::node::living;
use crate::registry::{AlertKind, Envelope, Event, Node, NodeState, Rejection, State};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimOverlay {
    pub node: NodeId,
    pub wireguard: Wireguard,
    /// Where it can be reached; none if it does not say, and then what is on record stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub underlay: Option<Underlay>,
    /// Where the node was last seen that has the key which is claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder_seen_at: Option<Source>,
    /// It came without a proof of the key on record, where that is another one. Logs of before do not say: those were granted without.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub former_unproven: bool,
}

/// An alert about the same key is raised again at most this often: a host that claims in a loop cannot grow the trail.
const CONFLICT_AGAIN: Span = Span::from_minutes(1);

pub(in crate::registry) fn decide(state: &State, envelope: &Envelope, claim: &ClaimOverlay) -> Decision {
    match check(state, envelope, claim) {
        Ok(node) => match &node.wireguard {
            Some(held) if held.key == claim.wireguard.key => {
                Decision::granted(moved(envelope, node, claim).into_iter().collect())
            }
            Some(_) => rekey::decide(envelope, node, claim),
            None => join::decide(state, envelope, node, claim),
        },
        Err(Rejection::WireguardKeyInUse) => Decision {
            events: conflict(state, envelope, claim).into_iter().collect(),
            answer: Err(Rejection::WireguardKeyInUse),
        },
        Err(rejection) => rejection.into(),
    }
}

/// What every claim must be: of a node that is there, with a key that no other node has, and with an endpoint that can be one.
fn check<'a>(state: &'a State, envelope: &Envelope, claim: &ClaimOverlay) -> Result<&'a Node, Rejection> {
    let node = living(state, &claim.node)?;
    if !matches!(node.state, NodeState::Active | NodeState::Inactive) {
        return Err(Rejection::PreparedStale);
    }
    if state.wireguard_keys.get(&claim.wireguard.key).is_some_and(|holder| *holder != node.id) {
        return Err(Rejection::WireguardKeyInUse);
    }
    if let Some(underlay) = claim.underlay.filter(|said| node.underlay != Some(*said)) {
        state.check_endpoint(&underlay, &envelope.source)?;
        state.check_not_anothers(&node.tenant, Some(&node.id), &underlay, &envelope.source)?;
    }
    Ok(node)
}

/// The endpoint, if the host says another than is on record.
pub(super) fn moved(envelope: &Envelope, node: &Node, claim: &ClaimOverlay) -> Option<Event> {
    let underlay = claim.underlay.filter(|said| node.underlay != Some(*said))?;
    let proven = underlay.is_at(&envelope.source);
    Some(Event::EndpointChanged(EndpointChanged { node: node.id.clone(), underlay, proven }))
}

/// The alert is on the holder, for its own tenant. It says from where, and not by which node: that may be another tenant's.
fn conflict(state: &State, envelope: &Envelope, claim: &ClaimOverlay) -> Option<Event> {
    let holder = state.nodes.get(state.wireguard_keys.get(&claim.wireguard.key)?)?;
    let kind = AlertKind::WireguardKeyConflict;
    let open = state.open_alert(kind, Some(&holder.id));
    if open.is_some_and(|open| open.quiet_since().plus(CONFLICT_AGAIN) > state.at) {
        return None;
    }
    let seen = claim.holder_seen_at.or(holder.enrolled_from);
    let seen = seen.map_or_else(|| "an unknown address".to_owned(), |at| at.to_string());
    let detail = format!(
        "another host claimed the WireGuard key of this node from {} and was refused; the node itself was last seen at {seen}",
        envelope.source
    );
    Some(state.raising(envelope, kind, &holder.id, (detail, 1)))
}
