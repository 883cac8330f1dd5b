//! Recovering: a recovery token becomes a new certificate for the node that it was given to.
//!
//! [`recoverable`] is asked by the replica that received the request, before it signs, and again when the command
//! is applied. A refusal uses nothing up.

use super::{RecoveryKind, RecoveryState, RecoveryToken};
use crate::host::Class;
use crate::names::{
    KeyHash, Label, NodeId, ProfileName, SecretHash, Serial, Span, TenantId, Timestamp, TokenId,
};
use crate::registry::apply::Decision;
use crate::registry::certificate::renew;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::node::credential::Attestor;
use crate::registry::node::place::lives_by_svid;
use crate::registry::{
    AlertKind, Envelope, Event, Issued, KeyKind, Node, NodeState, Outcome, Owner, Prepared, Rejection, State,
};
use serde::{Deserialize, Serialize};

/// Asks for a certificate with a recovery token, without any other credential.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recover {
    pub token: SecretHash,
    pub key: KeyHash,
    pub key_kind: KeyKind,
    /// Whom the host believes itself to be.
    pub node: Option<NodeId>,
    /// Why it asks.
    pub class: Option<Class>,
    /// When the repair bundle that the token comes from says that it ends.
    pub bundle_ends: Option<Timestamp>,
    /// When this replica heard of the node last.
    pub heard: Option<Timestamp>,
    pub agent_version: Option<Label>,
    /// Under which recovery profile it asks; none where the agent is of before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Label>,
    /// Not of before, when the token of a node without recovery was as good as any, and the alert about a refusal was
    /// raised here, at most once a minute, so that what came in between was not counted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
    /// Whether a node that is there by an SVID is well. Commands of older versions asked for certificates alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub svid_counts: bool,
    /// What the replica made ready. Without it nothing can be granted.
    pub prepared: Option<Prepared>,
}

/// Twice what a host can fill by renewing, so that one that renewed in a loop still comes back.
const ON_RECORD: usize = 2 * renew::ON_RECORD;
/// An alert is raised again at most this often: whoever has a stolen token and time cannot grow the trail.
const AGAIN: Span = Span::from_minutes(1);
/// What a new certificate, with all earlier ones denied, is the answer to.
const ENDED_ALERTS: [AlertKind; 3] =
    [AlertKind::CertExpiring, AlertKind::RenewalFailing, AlertKind::NodeSilent];

/// What a recovery may come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recoverable {
    Fresh {
        node: NodeId,
        tenant: TenantId,
        profile: ProfileName,
    },
    /// The answer was lost: the same certificate again.
    Again {
        node: NodeId,
        serial: Serial,
    },
}

/// Is the token good, as far as can be told without the request that comes with it? A used one may be, for whoever
/// asks again with the key that it was used for. Under another recovery profile than its own it is no token.
pub fn check_recovery_token<'a>(
    state: &'a State,
    token: &SecretHash,
    claimed: Option<&NodeId>,
    profile: Option<&Label>,
) -> Result<(&'a Node, &'a RecoveryToken), Rejection> {
    let (node, token) = state.recovery_token_with_hash(token).ok_or(Rejection::TokenInvalid)?;
    if !token.is_for(profile) {
        return Err(match token.kind {
            RecoveryKind::Rotated => Rejection::TokenInvalid,
            RecoveryKind::Repair => Rejection::RepairBundleMismatch,
        });
    }
    if let Some(claimed) = claimed.filter(|claimed| **claimed != node.id) {
        return Err(Rejection::NotYourNode { node: claimed.clone() });
    }
    if node.state.is_gone() {
        return Err(Rejection::NodeRevoked { node: node.id.clone() });
    }
    match &token.state {
        RecoveryState::Used { serial, .. } if !is_unseen(state, node, serial) => Err(Rejection::TokenUsed),
        RecoveryState::Superseded => Err(Rejection::TokenSuperseded),
        RecoveryState::Revoked => Err(Rejection::TokenRevoked),
        _ if token.is_expired(state.at) => Err(Rejection::TokenExpired),
        RecoveryState::Used { .. } | RecoveryState::Valid { .. } => Ok((node, token)),
    }
}

/// Is the token good, and for what?
pub fn recoverable(state: &State, recover: &Recover) -> Result<Recoverable, Rejection> {
    let (node, token) =
        check_recovery_token(state, &recover.token, recover.node.as_ref(), recover.profile.as_ref())?;
    // Given while any certificate could ask for one: what the node's document bounds by the life of a certificate is not
    // to be had for longer.
    if recover.strict && token.kind == RecoveryKind::Rotated && node.is_without_recovery() {
        return Err(Rejection::TokenInvalid);
    }
    match &token.state {
        RecoveryState::Used { key, .. } if *key != recover.key => return Err(Rejection::TokenUsed),
        RecoveryState::Used { serial, .. } if state.is_good(serial) => {
            return Ok(Recoverable::Again { node: node.id.clone(), serial: serial.clone() });
        }
        // What it was used for ended before anybody showed it: whoever has that key is not stranded for it.
        RecoveryState::Used { .. }
        | RecoveryState::Valid { .. }
        | RecoveryState::Superseded
        | RecoveryState::Revoked => {}
    }
    if node.serials.len() >= ON_RECORD {
        return Err(Rejection::TooManyCertificates { node: node.id.clone() });
    }
    check_circumstances(state, recover, node, token)?;
    check_key(state, recover, node)?;
    let (tenant, profile) = (node.tenant.clone(), node.profile.clone());
    Ok(Recoverable::Fresh { node: node.id.clone(), tenant, profile })
}

/// Whether the host asks only because it finds nobody, and a certificate that it has shown is good: it needs no other one,
/// only to be told where the control plane is, and its token stays unused. Asked before anything is committed.
pub fn needs_only_addresses(state: &State, recover: &Recover) -> bool {
    let found = state.recovery_token_with_hash(&recover.token);
    let node = found.filter(|(_, token)| token.kind == RecoveryKind::Rotated).map(|(node, _)| node);
    recover.class == Some(Class::EndpointUnreachable) && node.is_some_and(|node| has_shown_good(state, node))
}

/// Its holder never showed it, and nothing but its own end keeps it from that.
pub(super) fn is_unseen(state: &State, node: &Node, serial: &Serial) -> bool {
    let held = state.certificates.get(serial);
    node.current_serial() == Some(serial)
        && !state.is_denied(serial)
        && held.is_some_and(|certificate| certificate.is_unseen())
}

/// May this token be used on this node, as it is now?
fn check_circumstances(
    state: &State,
    recover: &Recover,
    node: &Node,
    token: &RecoveryToken,
) -> Result<(), Rejection> {
    state.policy.check_attestor(Attestor::RecoveryToken)?;
    match token.kind {
        RecoveryKind::Rotated if node.quarantined => {
            Err(Rejection::NodeQuarantined { node: node.id.clone() })
        }
        RecoveryKind::Rotated if is_well(state, recover, node) => {
            Err(Rejection::RecoveryNotNeeded { node: node.id.clone() })
        }
        // An operator has decided that the node needs it; that the bundle was not changed is to be shown.
        RecoveryKind::Repair if recover.bundle_ends != Some(token.expires_at) => {
            Err(Rejection::RepairBundleMismatch)
        }
        RecoveryKind::Rotated | RecoveryKind::Repair => Ok(()),
    }
}

/// Active, heard of a short while ago, and with a certificate that it has shown and that is good, or there by an SVID.
fn is_well(state: &State, recover: &Recover, node: &Node) -> bool {
    let heard = node.last_seen.max(recover.heard.map(|heard| heard.min(state.at)));
    node.state == NodeState::Active
        && heard.is_some_and(|heard| heard.plus(state.policy.liveness_grace) > state.at)
        && (has_shown_good(state, node) || recover.svid_counts && lives_by_svid(state, node))
}

fn has_shown_good(state: &State, node: &Node) -> bool {
    let shown = |serial: &&Serial| state.certificates.get(*serial).is_some_and(|held| !held.is_unseen());
    node.serials.iter().filter(shown).any(|serial| state.is_good(serial))
}

/// A key of the profile's kinds. One that the node had before may serve again; another's may not.
fn check_key(state: &State, recover: &Recover, node: &Node) -> Result<(), Rejection> {
    let rules = state.policy.profiles.get(&node.profile);
    let rules = rules.ok_or_else(|| Rejection::ProfileNotFound { profile: node.profile.clone() })?;
    if !rules.keys.contains(&recover.key_kind) {
        return Err(Rejection::KeyKindNotAllowed { kind: recover.key_kind.as_str().to_owned() });
    }
    let holder = state.certified_keys.get(&recover.key).and_then(|serial| state.certificates.get(serial));
    match holder {
        Some(certificate) if certificate.owner != Owner::Node(node.id.clone()) => Err(Rejection::KeyInUse),
        _ => Ok(()),
    }
}

pub(in crate::registry) fn decide(state: &State, envelope: &Envelope, recover: &Recover) -> Decision {
    match recoverable(state, recover) {
        Err(Rejection::RecoveryNotNeeded { node }) if !recover.strict => not_needed(state, envelope, node),
        Err(rejection) => rejection.into(),
        Ok(Recoverable::Again { node, serial }) => {
            let answer = Ok(Outcome::Recovered { node, serial, replayed: true });
            Decision { events: Vec::new(), answer }
        }
        Ok(Recoverable::Fresh { .. }) => grant(state, recover),
    }
}

/// Somebody else may have the token: an operator is told. Of a command of before.
fn not_needed(state: &State, envelope: &Envelope, node: NodeId) -> Decision {
    let kind = AlertKind::RecoveryNotNeeded;
    let open = state.open_alert(kind, Some(&node));
    let due = open.is_none_or(|open| open.quiet_since().plus(AGAIN) <= state.at);
    let alert = due.then(|| state.raising(envelope, kind, &node, (used_while_well(envelope), 1)));
    Decision { events: alert.into_iter().collect(), answer: Err(Rejection::RecoveryNotNeeded { node }) }
}

/// What the alert about a token that was not needed says.
pub(in crate::registry) fn used_while_well(envelope: &Envelope) -> String {
    format!("its recovery token came from {} while the node was well", envelope.source)
}

fn grant(state: &State, recover: &Recover) -> Decision {
    let known = state.recovery_token_with_hash(&recover.token);
    let (Some((node, token)), Some(prepared)) = (known, &recover.prepared) else {
        return Rejection::PreparedStale.into();
    };
    let ours = prepared.node == node.id && prepared.tenant == node.tenant && prepared.profile == node.profile;
    if !ours || !renew::fits(state, recover.key, node, &prepared.certificate) {
        return Rejection::PreparedStale.into();
    }
    let requested = Event::RecoveryRequested(RecoveryRequested {
        node: node.id.clone(),
        token: token.id,
        class: recover.class,
        repair: token.kind == RecoveryKind::Repair,
    });
    let issued = Event::RecoveryIssued(Box::new(RecoveryIssued {
        node: node.id.clone(),
        token: token.id,
        certificate: prepared.certificate.clone(),
        agent_version: recover.agent_version.clone(),
        denied: state.undenied(&node.serials),
    }));
    let serial = prepared.certificate.serial.clone();
    let answer = Ok(Outcome::Recovered { node: node.id.clone(), serial, replayed: false });
    let events = [requested, issued].into_iter().chain(state.clearing(&ENDED_ALERTS, &node.id)).collect();
    Decision { events, answer }
}

/// What it leads to is an event of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveryRequested {
    pub node: NodeId,
    pub token: TokenId,
    pub class: Option<Class>,
    pub repair: bool,
}

impl Happened for RecoveryRequested {
    const NAME: &'static str = "recovery.requested";

    fn fields(&self) -> AuditFields {
        vec![
            ("node_id", AuditField::text(&self.node)),
            ("recovery_token_id", AuditField::text(self.token)),
            ("class", AuditField::maybe(self.class)),
            ("repair", AuditField::Flag(self.repair)),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, _state: &mut State, _envelope: &Envelope) {}
}

/// A recovery token became a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveryIssued {
    pub node: NodeId,
    pub token: TokenId,
    pub certificate: Issued,
    pub agent_version: Option<Label>,
    /// Everything that the node had before.
    pub denied: Vec<Serial>,
}

impl Happened for RecoveryIssued {
    const NAME: &'static str = "recovery.issued";

    fn fields(&self) -> AuditFields {
        vec![
            ("node_id", AuditField::text(&self.node)),
            ("recovery_token_id", AuditField::text(self.token)),
            ("cert_serial", AuditField::text(&self.certificate.serial)),
            ("mtls_cert_fingerprint", AuditField::text(self.certificate.fingerprint.labelled())),
            ("issuer", AuditField::text(&self.certificate.issuer)),
            ("not_after", AuditField::text(self.certificate.not_after)),
            ("denied_serials", AuditField::texts(&self.denied)),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        Some(&self.node)
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        // All that the node had before is denied; it begins again as after an enrollment, and stays who it is.
        let (at, bundle) = (state.at, state.bundle_version);
        let issued = &self.certificate;
        state.deny(&self.denied);
        state.record_certificate(&self.node, issued);
        state.change_node(&self.node, |node| {
            (node.state, node.state_since) = (NodeState::Enrolled, at);
            node.serials.push(issued.serial.clone());
            // The answer holds it.
            node.bundle = bundle;
            node.rotation = None;
            // The answer to its enrollment cannot be asked for again.
            node.idempotency = None;
            if let Some(version) = &self.agent_version {
                node.agent_version = Some(version.clone());
            }
        });
        state.change_recovery(&self.node, |recovery| {
            let used = RecoveryState::Used { at, serial: issued.serial.clone(), key: issued.key };
            recovery.spend(self.token, used);
            recovery.underway = true;
        });
    }
}

/// The node was seen with the certificate that it recovered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveryResolved {
    pub node: NodeId,
    pub serial: Serial,
}

impl Happened for RecoveryResolved {
    const NAME: &'static str = "recovery.resolved";

    fn fields(&self) -> AuditFields {
        vec![("node_id", AuditField::text(&self.node)), ("cert_serial", AuditField::text(&self.serial))]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.change_recovery(&self.node, |recovery| recovery.underway = false);
    }
}
