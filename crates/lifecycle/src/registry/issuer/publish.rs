//! Publishing an ephemeral issuer: the CA that a replica made in its memory becomes an anchor for node certificates.
//!
//! The rules here read no certificate: that it is a CA of the right shape, and the one that the fields say, is checked
//! wherever it is read (`pki::ephemeral`).

use crate::names::{Fingerprint, IssuerId, IssuerUse, NodeId, ReplicaId, Span, Timestamp};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Envelope, Event, Issuer, IssuerKind, IssuerState, Rejection, State};
use serde::{Deserialize, Serialize};

/// How long a node's certificate may live where ephemeral issuers sign them.
pub const EPHEMERAL_LEAF: Span = Span::from_days(7);
/// How long an ephemeral issuer lives: replaced at half of it, it outlives whatever it signs.
pub const EPHEMERAL_LIFE: Span = Span::from_days(14);
/// How far the clock of the replica may be ahead.
const AHEAD: Span = Span::from_secs(60);
/// Ephemeral issuers that are trusted at once: those of all replicas, and of their starts within the life of a certificate.
const TRUSTED: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishIssuer {
    pub replica: ReplicaId,
    pub issuer: IssuerId,
    pub subject: String,
    #[serde(with = "serde_bytes")]
    pub certificate: Vec<u8>,
    pub fingerprint: Fingerprint,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

pub(in crate::registry) fn publish(state: &State, publish: &PublishIssuer) -> Decision {
    if !state.has_ephemeral_issuers() {
        return Rejection::NoEphemeralIssuers.into();
    }
    // A domain that is no cluster has no record of its replica.
    if !state.replicas.is_empty()
        && let Err(refused) = state.member(publish.replica)
    {
        return refused.into();
    }
    let current = state.ephemeral_issuer(publish.replica);
    if current.is_some_and(|known| known.id == publish.issuer && known.fingerprint == publish.fingerprint) {
        return Decision::granted(Vec::new());
    }
    if let Err(why) = check(state, publish) {
        return Rejection::IssuerInvalid { why: why.to_owned() }.into();
    }
    let before = current.map(|issuer| issuer.id.clone());
    let forgotten = unused(state, before.as_ref());
    let trusted = state.issuers.values().filter(|issuer| issuer.is_ephemeral() && issuer.state.is_trusted());
    if trusted.filter(|issuer| !forgotten.contains(&issuer.id)).count() >= TRUSTED {
        return Rejection::TooManyIssuers { max: TRUSTED }.into();
    }
    let event = IssuerPublished { publish: publish.clone(), before, forgotten };
    Decision::granted(vec![Event::IssuerPublished(Box::new(event))])
}

fn check(state: &State, publish: &PublishIssuer) -> Result<(), &'static str> {
    let taken = state.issuers.values().any(|known| {
        known.id == publish.issuer
            || known.fingerprint == publish.fingerprint
            || known.subject == publish.subject
    });
    if taken || state.roots.iter().any(|root| root.fingerprint == publish.fingerprint) {
        return Err("another CA of this domain has its id, its certificate or its name");
    }
    if publish.not_after <= state.at || publish.not_before > state.at.plus(AHEAD) {
        return Err("it is not valid now");
    }
    if publish.not_before.plus(EPHEMERAL_LIFE) < publish.not_after {
        return Err("it lives longer than an ephemeral issuer may");
    }
    Ok(())
}

/// Ephemeral issuers that sign no more, this one among them, under which no certificate is on record.
fn unused(state: &State, before: Option<&IssuerId>) -> Vec<IssuerId> {
    let over = |issuer: &&Issuer| issuer.is_ephemeral() && issuer.state != IssuerState::Active;
    let ended = state.issuers.values().filter(over).map(|issuer| &issuer.id).chain(before);
    state.without_certificates(ended, |_| true)
}

impl State {
    /// Those of these issuers under which no certificate is on record that counts.
    pub(in crate::registry) fn without_certificates<'a>(
        &self,
        issuers: impl Iterator<Item = &'a IssuerId>,
        counts: impl Fn(&crate::registry::Certificate) -> bool,
    ) -> Vec<IssuerId> {
        let mut bare: std::collections::BTreeSet<&IssuerId> = issuers.collect();
        for held in self.certificates.values().filter(|held| counts(held)) {
            if bare.is_empty() {
                break;
            }
            bare.remove(&held.issuer);
        }
        bare.into_iter().cloned().collect()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerPublished {
    pub publish: PublishIssuer,
    /// What signed on this replica until now.
    pub before: Option<IssuerId>,
    /// What signed on some replica and has left no certificate on record.
    pub forgotten: Vec<IssuerId>,
}

impl Happened for IssuerPublished {
    const NAME: &'static str = "ca.published";

    fn fields(&self) -> AuditFields {
        vec![
            ("replica_id", AuditField::text(self.publish.replica)),
            ("issuer", AuditField::text(&self.publish.issuer)),
            ("issuer_fingerprint", AuditField::text(self.publish.fingerprint.labelled())),
            ("subject", AuditField::text(&self.publish.subject)),
            ("not_after", AuditField::text(self.publish.not_after)),
            ("before", AuditField::maybe(self.before.as_ref())),
            ("forgotten", AuditField::texts(&self.forgotten)),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        if let Some(old) = self.before.as_ref().and_then(|id| state.issuers.get_mut(id)) {
            old.state = IssuerState::Retiring;
        }
        for issuer in &self.forgotten {
            state.issuers.remove(issuer);
        }
        let publish = &self.publish;
        let issuer = Issuer {
            id: publish.issuer.clone(),
            kind: IssuerKind::Ephemeral,
            state: IssuerState::Active,
            subject: publish.subject.clone(),
            certificate: publish.certificate.clone(),
            fingerprint: publish.fingerprint,
            not_after: publish.not_after,
            sealed_key: Vec::new(),
            revoked_at: None,
            replica: Some(publish.replica),
            usage: IssuerUse::Node,
            root: None,
            step_ca: None,
        };
        state.issuers.insert(publish.issuer.clone(), issuer);
        state.ephemeral_version += 1;
    }
}
