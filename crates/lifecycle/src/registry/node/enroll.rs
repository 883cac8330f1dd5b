//! Enrolling: a token, or what a machine is known by, becomes a node with an identity.
//!
//! [`admit`] asks whether the credential is good and what it is good for; the replica that received the
//! request asks it first, draws ids and signs accordingly. [`decide`] asks it again when the command is
//! applied, and then holds what was prepared against it: the registry has the last word.

use super::credential::{Attestor, Credential};
use super::place::{MachinePlace, PlaceRule, lives_by_svid, place};
use crate::names::{
    IdempotencyHash, KeyHash, Label, NodeId, ProfileName, SecretHash, Serial, Source, Span, SpiffeId,
    TenantId, TokenId,
};
use crate::registry::apply::Decision;
use crate::registry::event::{NodeActive, NodeEnrolled, TokenBurned};
use crate::registry::recovery::eligibility;
use crate::registry::{
    AlertKind, Door, Envelope, Event, Hardware, HardwareIdentity, Issued, KeyKind, Node, NodeState, Outcome,
    Rejection, State, Token, TokenState, Underlay, Wireguard,
};
use serde::{Deserialize, Serialize};
use std::net::Ipv6Addr;
use std::sync::Arc;

/// Redeems a token, or what a machine is known by, for an identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enroll {
    /// What proves that the caller may enroll. In the stored form it stands under the name that it had when tokens were
    /// the only kind.
    #[serde(rename = "token")]
    pub credential: Credential,
    /// Which key the request is for.
    pub key: KeyHash,
    pub key_kind: KeyKind,
    pub idempotency: Option<IdempotencyHash>,
    pub door: Door,
    /// A name the caller asks for, where its door allows asking.
    pub requested_node: Option<NodeId>,
    pub wireguard: Option<Wireguard>,
    pub underlay: Option<Underlay>,
    pub hardware: Option<Hardware>,
    pub hostname: Option<Label>,
    pub agent_version: Option<Label>,
    /// What the replica made ready. Without it nothing can be granted.
    pub prepared: Option<Prepared>,
    /// Whether taking the place of an active node raises `node_replaced`, and the suspicion of a copy stays. Commands of
    /// older versions raised nothing and ended the suspicion.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replacement_alerts: bool,
    /// Whether a WireGuard key that a node of another tenant has spares the token and, like a node id that another tenant
    /// has, raises `wireguard_key_conflict`; and whether it is recorded that the underlay address is the caller's own.
    /// Commands of older versions burned the token, and raised and recorded nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub conflict_alerts: bool,
    /// Where the node was last seen that has what is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder_seen_at: Option<Source>,
    /// What a machine with a token says of its hardware, for a policy that demands both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed: Option<HardwareIdentity>,
    /// Whether the host keeps its identity in memory alone: it is given no recovery tokens.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub memory_storage: bool,
    /// Whether a host that was heard within the grace period has its place whatever certificates it has, and the alert about an
    /// enrollment with a node's hardware is raised once while it is open. Commands of older versions asked for certificates alone,
    /// and raised the alert again every minute.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
}

impl Enroll {
    fn place_rule(&self) -> PlaceRule {
        if self.strict { PlaceRule::Contact } else { PlaceRule::Certificates }
    }
}

/// A certificate signed in memory, for the node and under the rules that [`admit`] named.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepared {
    pub node: NodeId,
    pub tenant: TenantId,
    pub profile: ProfileName,
    pub certificate: Issued,
}

/// Which node an enrollment is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeChoice {
    /// The token says so, or the hardware does.
    Pinned(NodeId),
    /// The caller asked, and the name is free.
    Requested(NodeId),
    /// The replica draws a new one.
    Free,
}

/// What a good credential is good for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    Fresh {
        tenant: TenantId,
        profile: ProfileName,
        node: NodeChoice,
    },
    /// The reply was lost: the same certificate again.
    Again {
        node: NodeId,
        serial: Serial,
    },
}

/// A refusal, and what else follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub rejection: Rejection,
    pub follows: RefusalEffect,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefusalEffect {
    Nothing,
    /// The token is spent on nobody.
    Burns(TokenId),
    /// Another node has what was asked for, and its operators are to hear of it.
    Raises(Box<ClaimConflict>),
}

/// Somebody asked for what another node has, or for what a node has that is there already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimConflict {
    pub holder: NodeId,
    over: Claimed,
}

/// What it was that somebody asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claimed {
    /// In another tenant.
    NodeId,
    /// In another tenant.
    WireguardKey,
    /// Of a node that is active.
    Hardware,
    /// Of several nodes at once.
    HardwareOfSeveral,
}

impl Claimed {
    fn alert(self) -> AlertKind {
        match self {
            Claimed::NodeId | Claimed::WireguardKey => AlertKind::WireguardKeyConflict,
            Claimed::Hardware => AlertKind::AlreadyActive,
            Claimed::HardwareOfSeveral => AlertKind::HardwareIdentityConflict,
        }
    }
}

impl Refusal {
    fn burning(rejection: Rejection, token: TokenId) -> Self {
        Self { rejection, follows: RefusalEffect::Burns(token) }
    }

    fn raising(rejection: Rejection, over: Claimed, holder: &NodeId) -> Self {
        let conflict = ClaimConflict { holder: holder.clone(), over };
        Self { rejection, follows: RefusalEffect::Raises(Box::new(conflict)) }
    }

    /// Whether it changes something, and so goes on record.
    pub fn is_recorded(&self, state: &State) -> bool {
        match &self.follows {
            RefusalEffect::Nothing => false,
            RefusalEffect::Burns(_) => true,
            RefusalEffect::Raises(conflict) => state
                .nodes
                .get(&conflict.holder)
                .is_some_and(|node| conflict_is_due(state, node, conflict.over, true)),
        }
    }
}

impl From<Rejection> for Refusal {
    fn from(rejection: Rejection) -> Self {
        Self { rejection, follows: RefusalEffect::Nothing }
    }
}

/// How many addresses an alert names.
const SHOWN_MACS: usize = 8;
/// An alert about a conflict is raised again at most this often: whoever has one token and time cannot grow the trail.
const CONFLICT_AGAIN: Span = Span::from_minutes(1);

/// Hardware is no secret, so that anybody can be in conflict over it: the alert is raised once, and what comes while it is open is
/// counted with the other refused attempts.
fn conflict_is_due(state: &State, holder: &Node, over: Claimed, strict: bool) -> bool {
    let open = state.open_alert(over.alert(), Some(&holder.id));
    open.is_none_or(|open| match over {
        Claimed::Hardware | Claimed::HardwareOfSeveral if strict => false,
        Claimed::Hardware | Claimed::HardwareOfSeveral | Claimed::NodeId | Claimed::WireguardKey => {
            open.quiet_since().plus(CONFLICT_AGAIN) <= state.at
        }
    })
}

/// The alert is on the holder, for its own tenant: it says from where, and not whose token it was. That is in the trail
/// of the other tenant.
fn conflict(state: &State, envelope: &Envelope, enroll: &Enroll, over: &ClaimConflict) -> Option<Event> {
    let due = |holder: &&Arc<Node>| conflict_is_due(state, holder, over.over, enroll.strict);
    let holder = state.nodes.get(&over.holder).filter(due)?;
    let seen = enroll.holder_seen_at.or(holder.enrolled_from);
    let seen = seen.map_or_else(|| "an unknown address".to_owned(), |at| at.to_string());
    let source = envelope.source;
    let of_other_tenant = |claimed: &str| {
        format!(
            "an enrollment from {source} with {claimed} of this node was refused; the node itself was last seen at {seen}"
        )
    };
    let detail = match over.over {
        Claimed::NodeId => of_other_tenant("the id"),
        Claimed::WireguardKey => of_other_tenant("the WireGuard key"),
        Claimed::Hardware => {
            format!(
                "a second enrollment with the hardware of this node: active_from={seen} attempt_from={source}"
            )
        }
        Claimed::HardwareOfSeveral => {
            let several = match &enroll.credential {
                Credential::Hardware(claimed) => Some(claimed),
                Credential::Token(_) | Credential::Recovery(_) => enroll.claimed.as_ref(),
            };
            let nodes = several.map(|claimed| state.nodes_with_hardware(claimed)).unwrap_or_default();
            let own = nodes.iter().filter(|node| node.tenant == holder.tenant);
            let named: Vec<&str> = own.map(|node| node.id.as_str()).collect();
            let macs = several.iter().flat_map(|claimed| &claimed.macs).map(ToString::to_string);
            let macs: Vec<String> = macs.take(SHOWN_MACS).collect();
            format!(
                "an enrollment with the hardware of several nodes: nodes={} macs={} attempt_from={source}",
                named.join(","),
                macs.join(",")
            )
        }
    };
    Some(state.raising(envelope, over.over.alert(), &holder.id, (detail, 1)))
}

/// Is the token good, as far as can be told without the request that comes with it? A used one may be, for
/// whoever asks again with the idempotency key that it was used with.
pub fn check_token<'a>(
    state: &'a State,
    token: &SecretHash,
    again: Option<&IdempotencyHash>,
) -> Result<&'a Token, Rejection> {
    let token = state.token_with_hash(token).ok_or(Rejection::TokenInvalid)?;
    let made = |node: &Option<NodeId>| node.as_ref().and_then(|node| state.nodes.get(node));
    match &token.state {
        TokenState::Used { node, .. }
            if again.is_some()
                && made(node).is_some_and(|node| {
                    node.token == Some(token.id) && node.idempotency.as_ref() == again
                }) =>
        {
            Ok(token)
        }
        TokenState::Used { .. } => Err(Rejection::TokenUsed),
        TokenState::Revoked { .. } => Err(Rejection::TokenRevoked),
        TokenState::Expired => Err(Rejection::TokenExpired),
        TokenState::Unused if token.is_expired(state.at) => Err(Rejection::TokenExpired),
        TokenState::Unused => Ok(token),
    }
}

/// Is the credential good, and for what?
pub fn admit(state: &State, enroll: &Enroll, source: &Source) -> Result<Admission, Refusal> {
    match &enroll.credential {
        Credential::Token(token) => admit_token(state, enroll, source, token),
        Credential::Hardware(claimed) => admit_hardware(state, enroll, source, claimed),
        // A recovery token is redeemed by `Recover`.
        Credential::Recovery(_) => Err(Rejection::AttestorNotAllowed.into()),
    }
}

fn admit_token(
    state: &State,
    enroll: &Enroll,
    source: &Source,
    token: &SecretHash,
) -> Result<Admission, Refusal> {
    let token = check_token(state, token, enroll.idempotency.as_ref())?;
    if let TokenState::Used { node, .. } = &token.state {
        return repeat(state, enroll, token, node.as_ref()).ok_or_else(|| Rejection::TokenUsed.into());
    }
    let machine = attested_machine(state, enroll, source, token)?;
    let profile = token.profile.clone().or_else(|| enroll.door.profile());
    let profile = profile.unwrap_or_else(|| state.policy.default_profile.clone());
    check_key_kind(state, enroll, &profile)?;
    let node = choose_node(state, enroll, token, machine)?;
    let holder =
        Claimant { node: token.node.as_ref().or(machine), tenant: &token.tenant, token: Some(token.id) };
    check_wireguard(state, enroll, &holder)?;
    check_limit(state)?;
    Ok(Admission::Fresh { tenant: token.tenant.clone(), profile, node })
}

/// Which registered machine it is that comes with a token, where policy asks for the hardware too, or has to.
fn attested_machine<'a>(
    state: &'a State,
    enroll: &Enroll,
    source: &Source,
    token: &Token,
) -> Result<Option<&'a NodeId>, Refusal> {
    let policy = &state.policy;
    let Some(claimed) = enroll.claimed.as_ref().filter(|_| policy.needs_hardware_beside_token()) else {
        policy.check_attested(&[Attestor::JoinToken])?;
        return Ok(None);
    };
    policy.check_attested(&[Attestor::JoinToken, Attestor::Hardware])?;
    let machine = known_machine(state, claimed, source)?;
    match &token.node {
        Some(pinned) if *pinned != machine.id => Err(Rejection::NodeNotEnrolled.into()),
        _ if machine.tenant != token.tenant => Err(Rejection::NodeNotEnrolled.into()),
        _ => Ok(Some(&machine.id)),
    }
}

/// The one node that a machine is registered as. One that is gone counts only where no other does: a machine that was registered
/// anew may share an interface with what it was before.
fn known_machine<'a>(
    state: &'a State,
    claimed: &HardwareIdentity,
    source: &Source,
) -> Result<&'a Arc<Node>, Refusal> {
    if !state.policy.hears_hardware_from(source) {
        return Err(Rejection::AttestorNotAllowed.into());
    }
    let (gone, living): (Vec<_>, Vec<_>) =
        state.nodes_with_hardware(claimed).into_iter().partition(|node| node.state.is_gone());
    match living[..] {
        [] => gone.first().copied().ok_or_else(|| Rejection::NodeNotEnrolled.into()),
        [node] => Ok(node),
        [first, ..] => {
            let rejection = Rejection::HardwareIdentityConflict { node: None };
            Err(Refusal::raising(rejection, Claimed::HardwareOfSeveral, &first.id))
        }
    }
}

/// Is there a machine to enroll by its hardware, as far as can be told without the request that comes with it? One that is
/// active may ask again with the idempotency key that it enrolled with.
pub fn check_hardware<'a>(
    state: &'a State,
    claimed: &HardwareIdentity,
    source: &Source,
    again: Option<&IdempotencyHash>,
) -> Result<&'a Arc<Node>, Refusal> {
    check_machine(state, claimed, source, again, PlaceRule::Contact)
}

fn check_machine<'a>(
    state: &'a State,
    claimed: &HardwareIdentity,
    source: &Source,
    again: Option<&IdempotencyHash>,
    rule: PlaceRule,
) -> Result<&'a Arc<Node>, Refusal> {
    state.policy.check_attested(&[Attestor::Hardware])?;
    let node = known_machine(state, claimed, source)?;
    let repeats = again.is_some() && node.token.is_none() && node.idempotency.as_ref() == again;
    match place(state, node, rule) {
        MachinePlace::Free => Ok(node),
        MachinePlace::Taken if node.state == NodeState::Active && repeats => Ok(node),
        MachinePlace::Taken => Err(already_active(&node.id)),
        MachinePlace::Gone => Err(Rejection::NodeRevoked { node: node.id.clone() }.into()),
    }
}

fn already_active(node: &NodeId) -> Refusal {
    Refusal::raising(Rejection::AlreadyActive { node: node.clone() }, Claimed::Hardware, node)
}

fn admit_hardware(
    state: &State,
    enroll: &Enroll,
    source: &Source,
    claimed: &HardwareIdentity,
) -> Result<Admission, Refusal> {
    let rule = enroll.place_rule();
    let node = check_machine(state, claimed, source, enroll.idempotency.as_ref(), rule)?;
    if let MachinePlace::Taken = place(state, node, rule) {
        return repeat_of(state, enroll, node).ok_or_else(|| already_active(&node.id));
    }
    let profile = node.registered_profile.clone().or_else(|| enroll.door.profile());
    let profile = profile.unwrap_or_else(|| state.policy.default_profile.clone());
    check_key_kind(state, enroll, &profile)?;
    let holder = Claimant { node: Some(&node.id), tenant: &node.tenant, token: None };
    check_wireguard(state, enroll, &holder)?;
    check_limit(state)?;
    let (tenant, node) = (node.tenant.clone(), NodeChoice::Pinned(node.id.clone()));
    Ok(Admission::Fresh { tenant, profile, node })
}

/// The same token, key and idempotency key, while nobody has used the certificate yet.
fn repeat(state: &State, enroll: &Enroll, token: &Token, node: Option<&NodeId>) -> Option<Admission> {
    let node = state.nodes.get(node?)?;
    let own =
        node.token == Some(token.id) && node.state == NodeState::Enrolled && !token.is_expired(state.at);
    if own { repeat_of(state, enroll, node) } else { None }
}

/// The same key and idempotency key as in the node's latest enrollment, while nobody has used its certificate yet.
fn repeat_of(state: &State, enroll: &Enroll, node: &Node) -> Option<Admission> {
    let (serial, certificate) = state.current_certificate(node)?;
    let same = enroll.idempotency.is_some()
        && node.idempotency == enroll.idempotency
        && certificate.key == enroll.key;
    let fresh = state.is_good(serial) && certificate.is_unseen();
    (same && fresh).then(|| Admission::Again { node: node.id.clone(), serial: serial.clone() })
}

fn check_key_kind(state: &State, enroll: &Enroll, profile: &ProfileName) -> Result<(), Rejection> {
    let rules = state.policy.profiles.get(profile);
    let rules = rules.ok_or_else(|| Rejection::ProfileNotFound { profile: profile.clone() })?;
    if rules.keys.contains(&enroll.key_kind) {
        Ok(())
    } else {
        Err(Rejection::KeyKindNotAllowed { kind: enroll.key_kind.as_str().to_owned() })
    }
}

/// The token's pin has the last word, then the machine that policy asked for, then the caller where its API lets it ask.
fn choose_node(
    state: &State,
    enroll: &Enroll,
    token: &Token,
    machine: Option<&NodeId>,
) -> Result<NodeChoice, Refusal> {
    if let Some(pinned) = &token.node {
        return match state.nodes.get(pinned) {
            Some(node) if node.state.is_gone() => {
                let rejection = Rejection::NodeRevoked { node: pinned.clone() };
                Err(Refusal::burning(rejection, token.id))
            }
            Some(node) if node.tenant != token.tenant => {
                Err(Rejection::NodeIdInUse { node: pinned.clone() }.into())
            }
            _ => Ok(NodeChoice::Pinned(pinned.clone())),
        };
    }
    if let Some(machine) = machine.and_then(|id| state.nodes.get(id)) {
        return match place(state, machine, enroll.place_rule()) {
            MachinePlace::Free => Ok(NodeChoice::Pinned(machine.id.clone())),
            MachinePlace::Taken => Err(already_active(&machine.id)),
            MachinePlace::Gone => {
                Err(Refusal::burning(Rejection::NodeRevoked { node: machine.id.clone() }, token.id))
            }
        };
    }
    match &enroll.requested_node {
        Some(wanted) if state.nodes.contains_key(wanted) || wanted.is_reserved() => {
            let rejection = Rejection::NodeIdInUse { node: wanted.clone() };
            Err(match enroll.conflict_alerts && is_foreign(state, wanted, &token.tenant) {
                true => Refusal::raising(rejection, Claimed::NodeId, wanted),
                false => rejection.into(),
            })
        }
        Some(wanted) => Ok(NodeChoice::Requested(wanted.clone())),
        None => Ok(NodeChoice::Free),
    }
}

/// A WireGuard key that another node has: somebody copied a disk, or lies. In the token's own tenant the token is burned. A
/// public key is no secret, so another tenant may have claimed it first: that costs nobody a token.
fn check_wireguard(state: &State, enroll: &Enroll, claimant: &Claimant<'_>) -> Result<(), Refusal> {
    let holder = enroll.wireguard.and_then(|wireguard| state.wireguard_keys.get(&wireguard.key));
    let Some(holder) = holder.filter(|holder| Some(*holder) != claimant.node) else { return Ok(()) };
    let rejection = Rejection::WireguardKeyInUse;
    Err(match (enroll.conflict_alerts && is_foreign(state, holder, claimant.tenant), claimant.token) {
        (true, _) => Refusal::raising(rejection, Claimed::WireguardKey, holder),
        (false, Some(token)) => Refusal::burning(rejection, token),
        (false, None) => rejection.into(),
    })
}

/// Whom a credential is good for.
struct Claimant<'a> {
    node: Option<&'a NodeId>,
    tenant: &'a TenantId,
    token: Option<TokenId>,
}

fn is_foreign(state: &State, node: &NodeId, tenant: &TenantId) -> bool {
    state.nodes.get(node).is_some_and(|node| node.tenant != *tenant)
}

fn check_limit(state: &State) -> Result<(), Rejection> {
    let (began, count) = state.minute;
    let limit = state.policy.enroll_max_per_minute;
    let over = limit > 0 && state.at.since(began) < Span::from_minutes(1) && count >= limit;
    if over { Err(Rejection::RateLimited) } else { Ok(()) }
}

pub(in crate::registry) fn decide(state: &State, envelope: &Envelope, enroll: &Enroll) -> Decision {
    match admit(state, enroll, &envelope.source) {
        Err(Refusal { rejection, follows }) => {
            let event = match follows {
                RefusalEffect::Nothing => None,
                RefusalEffect::Burns(token) => {
                    Some(Event::TokenBurned(TokenBurned { token, reason: rejection.code() }))
                }
                RefusalEffect::Raises(over) => conflict(state, envelope, enroll, &over),
            };
            let events = event.into_iter().collect();
            Decision { events, answer: Err(rejection) }
        }
        Ok(Admission::Again { node, serial }) => {
            let answer = Ok(Outcome::Enrolled { node, serial, replayed: true });
            Decision { events: Vec::new(), answer }
        }
        Ok(Admission::Fresh { tenant, profile, node }) => match &enroll.prepared {
            Some(prepared) if fits(state, enroll, prepared, &tenant, &profile, &node) => {
                grant(state, envelope, enroll, prepared)
            }
            Some(_) | None => Rejection::PreparedStale.into(),
        },
    }
}

/// Does what was prepared still match what may be granted?
fn fits(
    state: &State,
    enroll: &Enroll,
    prepared: &Prepared,
    tenant: &TenantId,
    profile: &ProfileName,
    node: &NodeChoice,
) -> bool {
    let named = match node {
        NodeChoice::Pinned(id) => prepared.node == *id,
        NodeChoice::Requested(id) => prepared.node == *id && !state.nodes.contains_key(id),
        NodeChoice::Free => !state.nodes.contains_key(&prepared.node),
    };
    let certificate = &prepared.certificate;
    let subject = state.domain.as_ref().map(|domain| SpiffeId::agent(&domain.name, tenant, &prepared.node));
    let rules = state.policy.profiles.get(profile);
    named
        && prepared.tenant == *tenant
        && prepared.profile == *profile
        && certificate.key == enroll.key
        && Some(&certificate.subject) == subject.as_ref()
        && certificate.may_be_recorded(state)
        && rules.is_some_and(|rules| certificate.not_after <= certificate.signed_at.plus(rules.lifetime))
}

/// Alerts that an enrollment ends: a new certificate, with all earlier ones denied, is the answer to them, or they
/// are about what the host said before it. The suspicion of a copy is not among them: whoever has a token would end it.
const ENDED_ALERTS: [AlertKind; 8] = [
    AlertKind::CertExpiring,
    AlertKind::RenewalFailing,
    AlertKind::ClockSkew,
    AlertKind::EndpointProfileDrift,
    AlertKind::DiskFull,
    AlertKind::NodeSilent,
    AlertKind::OverlayUnavailable,
    AlertKind::OverlayDrift,
];

fn grant(state: &State, envelope: &Envelope, enroll: &Enroll, prepared: &Prepared) -> Decision {
    let token = enroll.credential.token().and_then(|token| state.token_with_hash(token));
    let by_hardware = matches!(enroll.credential, Credential::Hardware(_));
    let known = state.nodes.get(&prepared.node);
    let address = match address_for(state, enroll, known.and_then(|node| node.address)) {
        Ok(address) => address,
        Err(rejection) => return rejection.into(),
    };
    let denied = known.map(|node| state.undenied(&node.serials)).unwrap_or_default();
    let event = Event::NodeEnrolled(Box::new(NodeEnrolled {
        node: prepared.node.clone(),
        tenant: prepared.tenant.clone(),
        profile: prepared.profile.clone(),
        token: token.map(|token| token.id),
        attestor: if by_hardware { Attestor::Hardware } else { Attestor::JoinToken },
        idempotency: enroll.idempotency,
        certificate: prepared.certificate.clone(),
        wireguard: enroll.wireguard,
        address,
        underlay: enroll.underlay,
        underlay_proven: enroll.conflict_alerts
            && enroll.underlay.is_some_and(|at| at.is_at(&envelope.source)),
        hardware: enroll.hardware.clone(),
        hostname: enroll.hostname.clone(),
        agent_version: enroll.agent_version.clone(),
        name: token.and_then(|token| token.name.clone()),
        labels: token.map(|token| token.labels.clone()).unwrap_or_default(),
        keeps_recovery_tokens: eligibility::at_enrollment(enroll, &prepared.profile),
        denied,
    }));
    let (node, serial) = (prepared.node.clone(), prepared.certificate.serial.clone());
    let is_there = |node: &&Arc<Node>| is_living(state, node) || enroll.strict && lives_by_svid(state, node);
    let taken = known.filter(|node| enroll.replacement_alerts && is_there(node)).zip(token);
    let replaced = taken.map(|(node, token)| {
        state.raising(envelope, AlertKind::NodeReplaced, &node.id, (replacement(envelope, token), 1))
    });
    let moved = known.filter(|_| by_hardware).and_then(|node| {
        let detail = came_from_elsewhere(envelope, node)?;
        Some(state.raising(envelope, AlertKind::NodeReplaced, &node.id, (detail, 1)))
    });
    // Nobody confirms an enrollment by hardware: the machine is there, and its silence will tell if it is not.
    let active = by_hardware.then(|| Event::NodeActive(NodeActive { node: node.clone(), by_svid: None }));
    let suspicion: &[AlertKind] = if enroll.replacement_alerts { &[] } else { &[AlertKind::CloneSuspected] };
    let ended = [suspicion, &ENDED_ALERTS].concat();
    let cleared = state.clearing(&ended, &node);
    let events = [event].into_iter().chain(active).chain(cleared).chain(replaced).chain(moved).collect();
    Decision { events, answer: Ok(Outcome::Enrolled { node, serial, replayed: false }) }
}

/// Active, with a certificate that is good until this enrollment denies it: there is a host that loses its place.
fn is_living(state: &State, node: &Node) -> bool {
    node.state == NodeState::Active && state.holds_good_certificate(node)
}

fn replacement(envelope: &Envelope, token: &Token) -> String {
    format!(
        "enrolled from {} with token {} of {} while it was active: its earlier certificates are denied",
        envelope.source, token.id, token.created_by
    )
}

/// A machine boots where it stands. One that comes back from another network was moved, or somebody else says its addresses.
fn came_from_elsewhere(envelope: &Envelope, node: &Node) -> Option<String> {
    let (source, before) = (envelope.source, node.enrolled_from?);
    let elsewhere = source.prefix() != before.prefix();
    elsewhere.then(|| {
        format!("enrolled by its hardware from {source}, which is another network than before: {before}")
    })
}

/// A host with a WireGuard key has an overlay address, and keeps the one it has. One without has none.
fn address_for(state: &State, enroll: &Enroll, has: Option<Ipv6Addr>) -> Result<Option<Ipv6Addr>, Rejection> {
    match (enroll.wireguard, has) {
        (None, _) => Ok(None),
        (Some(_), Some(address)) => Ok(Some(address)),
        (Some(_), None) => state
            .addresses
            .pick(state.at, state.policy.overlay_cooldown)
            .map(Some)
            .ok_or(Rejection::AddressesExhausted),
    }
}
