//! Renewing: a certificate for a new key, asked for with the one in use.
//!
//! Until the new certificate is seen, both are good, so a lost answer strands nobody: the same key again gets
//! the same certificate, another key replaces what was never seen. [`renewable`] is asked by the replica that
//! received the request, before it signs, and again when the command is applied.

use crate::names::{KeyHash, Label, NodeId, ProfileName, Serial, SpiffeId, TenantId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::node::contact;
use crate::registry::recovery::mint::{self, Rotate};
use crate::registry::{
    Actor, AlertKind, Certificate, CertificateStatus, Envelope, Event, Issued, Keeping, KeyKind, Node,
    NodeState, Outcome, Owner, Rejection, State, Verdict, by_svid,
};
use serde::{Deserialize, Serialize};

/// Asks for a certificate for a new key, with the one in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renew {
    pub node: NodeId,
    pub key: KeyHash,
    pub key_kind: KeyKind,
    pub agent_version: Option<Label>,
    /// What the replica made ready. Without it nothing can be granted.
    pub prepared: Option<Issued>,
    #[serde(default, skip_serializing_if = "Keeping::is_nothing")]
    pub keeping: Keeping,
}

/// Certificates of one node on record, from which those that have expired are tidied away: a host that renews in a loop does not grow the registry.
pub(in crate::registry) const ON_RECORD: usize = 256;
/// The same, where a node has them by an SVID: the rest is for renewals with a certificate of its own.
const ON_RECORD_BY_SVID: usize = ON_RECORD / 2;
/// Of these so many that nobody has shown.
const UNSEEN_BY_SVID: usize = 16;
/// Alerts that a newer certificate is the answer to.
const ENDED_ALERTS: [AlertKind; 2] = [AlertKind::CertExpiring, AlertKind::RenewalFailing];

/// What a renewal may come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renewal {
    Fresh {
        tenant: TenantId,
        profile: ProfileName,
    },
    /// The answer was lost: the same certificate again.
    Again {
        serial: Serial,
    },
}

/// May the node renew with this serial, for this key?
pub fn renewable(state: &State, with: &Serial, renew: &Renew) -> Result<Renewal, Rejection> {
    let node = state.nodes.get(&renew.node);
    let node = node.ok_or_else(|| Rejection::NodeNotFound { node: renew.node.clone() })?;
    if node.state.is_gone() {
        return Err(Rejection::NodeRevoked { node: node.id.clone() });
    }
    let held = state.certificates.get(with).filter(|held| held.owner == Owner::Node(node.id.clone()));
    match held.map_or(Verdict::Unknown, |held| state.verdict_on(held, state.at)) {
        Verdict::Good if node.state != NodeState::Registered => {}
        Verdict::Grace { .. } | Verdict::Superseded { .. } => return Err(Rejection::CertificateSuperseded),
        Verdict::Good | Verdict::Denied(_) | Verdict::Expired | Verdict::Unknown => {
            return Err(Rejection::Unauthenticated);
        }
    }
    granted(state, node, Some(with), renew)
}

/// May a node that comes by an SVID have a certificate of this domain for this key? SPIRE renews what it has issued; this is
/// the node's own, for when SPIRE is gone.
pub fn svid_renewable(state: &State, renew: &Renew) -> Result<Renewal, Rejection> {
    let node = by_svid(state, &renew.node)?;
    if !state.policy.spire_renew {
        return Err(Rejection::SvidRenewalOff);
    }
    granted(state, node, None, renew)
}

/// Whether there is a place for a certificate that is asked for by an SVID: whoever has a node's SVID for a while takes no place from the
/// node's own renewals. Only the replica that received the request asks this, before it signs.
pub fn has_place_by_svid(state: &State, node: &NodeId) -> Result<(), Rejection> {
    let on_record = state.nodes.get(node).map(|node| node.serials.as_slice()).unwrap_or_default();
    // Of what is denied nobody knows whether it was shown: renewals deny what was not.
    let is_unseen = |held: &&Certificate| held.is_unseen() || held.status == CertificateStatus::Denied;
    let held = on_record.iter().filter_map(|serial| state.certificates.get(serial)).map(AsRef::as_ref);
    let unseen = held.filter(is_unseen).count();
    match on_record.len() < ON_RECORD_BY_SVID && unseen < UNSEEN_BY_SVID {
        true => Ok(()),
        false => Err(Rejection::TooManyCertificates { node: node.clone() }),
    }
}

/// What it may be, once it is known that the node may ask.
fn granted(state: &State, node: &Node, with: Option<&Serial>, renew: &Renew) -> Result<Renewal, Rejection> {
    if let Some((serial, known)) = holder(state, node, renew) {
        let same = known.owner == Owner::Node(node.id.clone())
            && known.is_unseen()
            && state.is_good(serial)
            && Some(serial) != with;
        return if same { Ok(Renewal::Again { serial: serial.clone() }) } else { Err(Rejection::KeyInUse) };
    }
    let rules = state.policy.profiles.get(&node.profile);
    let rules = rules.ok_or_else(|| Rejection::ProfileNotFound { profile: node.profile.clone() })?;
    if !rules.keys.contains(&renew.key_kind) {
        return Err(Rejection::KeyKindNotAllowed { kind: renew.key_kind.as_str().to_owned() });
    }
    if node.serials.len() >= ON_RECORD {
        return Err(Rejection::TooManyCertificates { node: node.id.clone() });
    }
    Ok(Renewal::Fresh { tenant: node.tenant.clone(), profile: node.profile.clone() })
}

/// The certificate that holds the key already. The index knows only the latest of a key, which may have been
/// another node's and forgotten; the node's own are all looked at.
fn holder<'a>(state: &'a State, node: &'a Node, renew: &Renew) -> Option<(&'a Serial, &'a Certificate)> {
    let own = node.serials.iter().rev().chain(state.certified_keys.get(&renew.key));
    let mut held = own.filter_map(|serial| Some((serial, state.certificates.get(serial)?.as_ref())));
    held.find(|(_, certificate)| certificate.key == renew.key)
}

pub(in crate::registry) fn decide(state: &State, envelope: &Envelope, renew: &Renew) -> Decision {
    let (shown, renewal) = match &envelope.actor {
        Actor::Node { serial, .. } => {
            (ShownIdentityRef::Certificate(serial), renewable(state, serial, renew))
        }
        Actor::Svid { serial, spiffe_id, .. } => {
            (ShownIdentityRef::Svid(serial, spiffe_id), svid_renewable(state, renew))
        }
        Actor::Local { .. }
        | Actor::Operator { .. }
        | Actor::Key { .. }
        | Actor::Stranger
        | Actor::Reconciler
        | Actor::Replica { .. } => return Rejection::Unauthenticated.into(),
    };
    let renewal = match renewal {
        Ok(renewal) => renewal,
        Err(rejection) => return rejection.into(),
    };
    let Some(node) = state.nodes.get(&renew.node) else {
        return Rejection::NodeNotFound { node: renew.node.clone() }.into();
    };
    // Asking is an authenticated request like any other.
    let mut events = match shown {
        ShownIdentityRef::Certificate(with) => contact::events(state, node, with),
        ShownIdentityRef::Svid(_, spiffe_id) => contact::by_svid_events(state, node, spiffe_id),
    };
    match (renewal, &renew.prepared) {
        (Renewal::Again { serial }, _) => {
            events.extend(shown.minted(state, node, renew, Rotate::WhenDue));
            Decision { events, answer: Ok(Outcome::Renewed { serial, replayed: true }) }
        }
        (Renewal::Fresh { .. }, Some(certificate)) if fits(state, renew.key, node, certificate) => {
            events.push(Event::CertificateRenewed(CertificateRenewed {
                node: node.id.clone(),
                with: shown.serial().clone(),
                certificate: Box::new(certificate.clone()),
                agent_version: renew.agent_version.clone(),
                denied: unseen(state, node, shown),
            }));
            events.extend(state.clearing(&ENDED_ALERTS, &node.id));
            events.extend(shown.minted(state, node, renew, Rotate::Always));
            let serial = certificate.serial.clone();
            Decision { events, answer: Ok(Outcome::Renewed { serial, replayed: false }) }
        }
        (Renewal::Fresh { .. }, _) => Rejection::PreparedStale.into(),
    }
}

/// What the node asks with. The serial of an SVID is not ours: nothing is looked up by it.
#[derive(Clone, Copy)]
enum ShownIdentityRef<'a> {
    Certificate(&'a Serial),
    /// With its SPIFFE id.
    Svid(&'a Serial, &'a str),
}

impl<'a> ShownIdentityRef<'a> {
    fn serial(self) -> &'a Serial {
        match self {
            ShownIdentityRef::Certificate(serial) | ShownIdentityRef::Svid(serial, _) => serial,
        }
    }

    fn on_record(self) -> Option<&'a Serial> {
        match self {
            ShownIdentityRef::Certificate(serial) => Some(serial),
            ShownIdentityRef::Svid(..) => None,
        }
    }

    /// Recovery tokens are given over a certificate of this domain only.
    fn minted(self, state: &State, node: &Node, renew: &Renew, rotate: Rotate) -> Vec<Event> {
        match self {
            ShownIdentityRef::Certificate(with) => mint::events(state, node, with, &renew.keeping, rotate),
            ShownIdentityRef::Svid(..) => Vec::new(),
        }
    }
}

/// Does what was prepared still match what may be granted to the node for this key?
pub(in crate::registry) fn fits(state: &State, key: KeyHash, node: &Node, certificate: &Issued) -> bool {
    let subject = state.domain.as_ref().map(|domain| SpiffeId::agent(&domain.name, &node.tenant, &node.id));
    let rules = state.policy.profiles.get(&node.profile);
    certificate.key == key
        && Some(&certificate.subject) == subject.as_ref()
        && certificate.may_be_recorded(state)
        && rules.is_some_and(|rules| certificate.not_after <= certificate.signed_at.plus(rules.lifetime))
}

/// Certificates that were issued after this one and never shown: their holder lost them.
fn unseen(state: &State, node: &Node, shown: ShownIdentityRef<'_>) -> Vec<Serial> {
    let lost = |serial: &&Serial| {
        shown.on_record() != Some(*serial)
            && state.certificates.get(*serial).is_some_and(|certificate| {
                certificate.is_unseen() && certificate.status == CertificateStatus::Live
            })
    };
    node.serials.iter().filter(lost).cloned().collect()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateRenewed {
    pub node: NodeId,
    /// Asked for with this one.
    pub with: Serial,
    pub certificate: Box<Issued>,
    pub agent_version: Option<Label>,
    /// Issued before and never seen: its answer was lost.
    pub denied: Vec<Serial>,
}

impl Happened for CertificateRenewed {
    const NAME: &'static str = "certificate.renewed";

    fn fields(&self) -> AuditFields {
        vec![
            ("node_id", AuditField::text(&self.node)),
            ("cert_serial", AuditField::text(&self.certificate.serial)),
            ("mtls_cert_fingerprint", AuditField::text(self.certificate.fingerprint.labelled())),
            ("issuer", AuditField::text(&self.certificate.issuer)),
            ("not_after", AuditField::text(self.certificate.not_after)),
            ("with_serial", AuditField::text(&self.with)),
            ("denied_serials", AuditField::texts(&self.denied)),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.deny(&self.denied);
        state.record_certificate(&self.node, &self.certificate);
        let bundle = state.bundle_version;
        state.change_node(&self.node, |node| {
            node.serials.push(self.certificate.serial.clone());
            node.rotation = None;
            // The answer holds it.
            node.bundle = bundle;
            if let Some(version) = &self.agent_version {
                node.agent_version = Some(version.clone());
            }
        });
    }
}
