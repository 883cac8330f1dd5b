//! Recovery tokens of a node that is well: minted for it, and kept by it.
//!
//! What the node says it has kept is heard first, and only then is the next one minted: an answer that is lost
//! never leaves a host with nothing but a token that has ended.

use super::{RecoveryKind, RecoveryToken};
use crate::names::{Label, NodeId, SecretHash, Serial, Span, Timestamp, TokenId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::node::living;
use crate::registry::{Actor, Envelope, Event, Node, NodeState, Recovery, Rejection, State};
use serde::{Deserialize, Serialize};

/// A token that the replica has drawn: its value leaves the process only if this is granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mint {
    pub token: TokenId,
    pub hash: SecretHash,
}

/// What a node says of recovery with a request of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keeping {
    /// The token that is on its disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<TokenId>,
    /// The next one, if it wants one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mint: Option<Mint>,
    /// The recovery profile that the next one is for. Requests of before name none; they were asked when every node
    /// kept recovery tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Label>,
}

impl Keeping {
    /// Whether it says nothing, as every request did before there were recovery tokens.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// A host that asks in a loop gets one in this time, and the trail one line.
const BETWEEN: Span = Span::from_secs(10);

/// When a node is given a new token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::registry) enum Rotate {
    /// With every new certificate.
    Always,
    /// When the one that it has is half over, or it has none.
    WhenDue,
}

/// By the node itself, on its live stream.
pub(in crate::registry) fn decide(
    state: &State,
    envelope: &Envelope,
    id: &NodeId,
    keeping: &Keeping,
) -> Decision {
    let Actor::Node { serial, .. } = &envelope.actor else { return Rejection::Unauthenticated.into() };
    match living(state, id) {
        Err(rejection) => rejection.into(),
        Ok(node) if node.state == NodeState::Active => {
            Decision::granted(events(state, node, serial, keeping, Rotate::WhenDue))
        }
        Ok(_) => Decision::granted(Vec::new()),
    }
}

/// What follows from what a node says of its recovery token. The node is in contact, so it is confirmed. By a
/// certificate that another has superseded nothing is said: whoever holds that key only would be given more than it
/// ever was good for.
pub(in crate::registry) fn events(
    state: &State,
    node: &Node,
    serial: &Serial,
    keeping: &Keeping,
    rotate: Rotate,
) -> Vec<Event> {
    if state.verdict(serial, state.at).has_successor() {
        return Vec::new();
    }
    let eligible = keeping.profile.is_none() || node.keeps_recovery_tokens();
    let mint = keeping.mint.filter(|mint| eligible && may_mint(state, node, mint));
    let due = || is_due(node, keeping.kept, keeping.profile.as_ref(), state.at);
    let mint = mint.filter(|_| rotate == Rotate::Always || due());
    let minted = mint.map(|mint| {
        let (profile, life) = (keeping.profile.clone(), state.policy.recovery_ttl);
        let token = RecoveryToken::of(mint, RecoveryKind::Rotated, profile, state.at, life);
        Event::RecoveryTokenRotated(RecoveryTokenRotated { node: node.id.clone(), token })
    });
    keep(node, keeping.kept).into_iter().chain(minted).collect()
}

/// The node has its current token on disk, and has not said so before.
pub(in crate::registry) fn keep(node: &Node, kept: Option<TokenId>) -> Option<Event> {
    let current = node.recovery.current().filter(|current| Some(current.id) == kept && !current.is_kept())?;
    Some(Event::RecoveryTokenKept(RecoveryTokenKept { node: node.id.clone(), token: current.id }))
}

/// A node in quarantine is given none.
fn may_mint(state: &State, node: &Node, mint: &Mint) -> bool {
    let taken = state.recovery_by_hash.contains_key(&mint.hash)
        || state.token_by_hash.contains_key(&mint.hash)
        || node.recovery.token(mint.token).is_some();
    !node.quarantined && !node.state.is_gone() && !taken
}

/// Would a node that says it has kept this one be given another? Also where the recovery profile is another one now:
/// what the node has is not for it.
pub fn is_due(node: &Node, kept: Option<TokenId>, profile: Option<&Label>, at: Timestamp) -> bool {
    node.recovery.current().is_none_or(|current| {
        let has = Some(current.id) == kept;
        current.is_half_over(at)
            || !current.is_for(profile)
            || (!has && current.minted_at.plus(BETWEEN) <= at)
    })
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveryTokenRotated {
    pub node: NodeId,
    pub token: RecoveryToken,
}

impl Happened for RecoveryTokenRotated {
    const NAME: &'static str = "recovery_token.rotated";

    fn fields(&self) -> AuditFields {
        vec![
            ("node_id", AuditField::text(&self.node)),
            ("recovery_token_id", AuditField::text(self.token.id)),
            ("expires_at", AuditField::text(self.token.expires_at)),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.mint_recovery(&self.node, &self.token, Recovery::rotate);
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveryTokenKept {
    pub node: NodeId,
    pub token: TokenId,
}

impl Happened for RecoveryTokenKept {
    const NAME: &'static str = "recovery_token.kept";

    fn fields(&self) -> AuditFields {
        vec![("node_id", AuditField::text(&self.node)), ("recovery_token_id", AuditField::text(self.token))]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.change_recovery(&self.node, |recovery| recovery.keep(self.token));
    }
}
