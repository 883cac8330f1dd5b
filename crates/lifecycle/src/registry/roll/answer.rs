//! The answer to a roll's requests: certificates for all of them, and with a new root the root and its cross-certificate.

use crate::names::{Fingerprint, IssuerId, NodeId, Timestamp};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{
    Envelope, Event, Issuer, IssuerState, NewIssuer, PendingRoll, Rejection, Root, RootList, RootState, State,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What came back from wherever the root key is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerRoll {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<NewRoot>,
    pub issuers: Vec<NewIssuer>,
}

/// A root, and the same root certified by the one before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewRoot {
    #[serde(with = "serde_bytes")]
    pub certificate: Vec<u8>,
    pub fingerprint: Fingerprint,
    pub not_after: Timestamp,
    #[serde(with = "serde_bytes")]
    pub cross_certificate: Vec<u8>,
    /// Its revocation list, if one came with it. It denies no issuer yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list: Option<RootList>,
}

/// All of it is trusted from now on, and signs once it is activated. Half an answer is none.
pub(in crate::registry) fn answer(state: &State, answer: &AnswerRoll) -> Decision {
    let known = |issuer: &NewIssuer| {
        state.issuers.get(&issuer.id).is_some_and(|known| known.fingerprint == issuer.fingerprint)
    };
    if !answer.issuers.is_empty() && answer.issuers.iter().all(known) {
        return Decision::granted(Vec::new());
    }
    let Some(pending) = &state.pending_roll else {
        return Rejection::NoRoll.into();
    };
    if let Err(why) = check(state, pending, answer) {
        return Rejection::IssuerInvalid { why: why.to_owned() }.into();
    }
    let same_key = |issuer: &NewIssuer| {
        // Rewrapped meanwhile, the key would stay behind under the old key-encryption key.
        pending.requests.iter().any(|request| {
            request.usage == issuer.usage
                && request.kind == issuer.kind
                && request.sealed_key == issuer.sealed_key
        })
    };
    if !answer.issuers.iter().all(same_key) {
        return Rejection::PreparedStale.into();
    }
    let root = answer.root.clone().map(Event::RootPrepared);
    let issuers = answer.issuers.iter().map(|issuer| Event::IssuerPrepared(Box::new(issuer.clone().into())));
    Decision::granted(root.into_iter().chain(issuers).collect())
}

fn check(state: &State, pending: &PendingRoll, answer: &AnswerRoll) -> Result<(), &'static str> {
    if answer.root.is_some() != pending.new_root {
        return Err("a new root comes with the certificates exactly if one was asked for");
    }
    let answered =
        |usage| answer.issuers.iter().filter(|issuer: &&NewIssuer| issuer.usage == usage).count() == 1;
    if answer.issuers.len() != pending.requests.len()
        || !pending.requests.iter().all(|request| answered(request.usage))
    {
        return Err("every request of the roll is answered by one certificate");
    }
    let (above, end) = match &answer.root {
        Some(root) => (root.fingerprint, root.not_after),
        None => {
            let root = state.active_root().ok_or("the domain has no root")?;
            (root.fingerprint, root.not_after)
        }
    };
    if end <= state.at || state.roots.iter().any(|root| answer.root.is_some() && root.fingerprint == above) {
        return Err("the root has ended, or the new one is a root of this domain already");
    }
    let ids: BTreeSet<&IssuerId> = answer.issuers.iter().map(|issuer| &issuer.id).collect();
    let subjects: BTreeSet<&str> = answer.issuers.iter().map(|issuer| issuer.subject.as_str()).collect();
    if ids.len() != answer.issuers.len() || subjects.len() != answer.issuers.len() {
        return Err("two issuers of the answer have the same id or the same name");
    }
    for issuer in &answer.issuers {
        let taken = |known: &Issuer| known.id == issuer.id || known.subject == issuer.subject;
        if state.issuers.values().any(taken) {
            return Err("another issuer of this domain has its id or its name");
        }
        if issuer.root != Some(above) || issuer.not_after > end || issuer.not_after <= state.at {
            return Err("an issuer is below the root that signed it, and ends no later");
        }
    }
    Ok(())
}

impl Happened for NewRoot {
    const NAME: &'static str = "ca.root_prepared";

    fn fields(&self) -> AuditFields {
        vec![
            ("root_fingerprint", AuditField::text(self.fingerprint.labelled())),
            ("not_after", AuditField::text(self.not_after)),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.bundle_version += 1;
        state.roots.push(Root {
            certificate: self.certificate.clone(),
            fingerprint: self.fingerprint,
            not_after: self.not_after,
            state: RootState::Prepared,
            cross_certificate: Some(self.cross_certificate.clone().into()),
            since_bundle: state.bundle_version,
            retired_at: None,
        });
        if let Some(list) = &self.list {
            state.lists.insert(self.fingerprint, list.clone());
        }
    }
}

/// An issuer of a roll is trusted from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerPrepared(NewIssuer);

impl From<NewIssuer> for IssuerPrepared {
    fn from(issuer: NewIssuer) -> Self {
        Self(issuer)
    }
}

impl Happened for IssuerPrepared {
    const NAME: &'static str = "ca.prepared";

    fn fields(&self) -> AuditFields {
        let Self(issuer) = self;
        vec![
            ("issuer", AuditField::text(&issuer.id)),
            ("issuer_fingerprint", AuditField::text(issuer.fingerprint.labelled())),
            ("subject", AuditField::text(&issuer.subject)),
            ("not_after", AuditField::text(issuer.not_after)),
            ("use", AuditField::text(issuer.usage)),
            ("kind", AuditField::text(issuer.kind.as_str())),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        let Self(issuer) = self;
        state.pending_roll = None;
        state.issuers.insert(issuer.id.clone(), Issuer::of(issuer, IssuerState::Prepared));
        state.bundle_version += 1;
    }
}
