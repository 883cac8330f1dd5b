//! Rewrapping: every sealed key under another key-encryption key.

use crate::names::{IssuerId, NodeId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Envelope, Event, Rejection, State};
use serde::{Deserialize, Serialize};

/// Every sealed key under another key-encryption key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rewrap {
    pub issuers: Vec<(IssuerId, serde_bytes::ByteBuf)>,
    #[serde(with = "serde_bytes")]
    pub audit: Vec<u8>,
    pub roll: Option<serde_bytes::ByteBuf>,
    /// Of the requests of a roll whose certificates are awaited, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<serde_bytes::ByteBuf>,
}

/// Every key that is held, and no other: nothing may stay behind under the old key.
pub(in crate::registry) fn rewrap(state: &State, rewrap: &Rewrap) -> Decision {
    let held = state.issuers.values().filter(|issuer| !issuer.sealed_key.is_empty()).map(|issuer| &issuer.id);
    let pending = state.pending_roll.as_ref().map_or(0, |pending| pending.requests.len());
    let same = held.eq(rewrap.issuers.iter().map(|(id, _)| id))
        && state.roll.is_some() == rewrap.roll.is_some()
        && rewrap.pending.len() == pending;
    let sealed = rewrap.issuers.iter().map(|(_, sealed)| sealed).chain(&rewrap.roll).chain(&rewrap.pending);
    let whole = !rewrap.audit.is_empty() && sealed.into_iter().all(|sealed| !sealed.is_empty());
    if same && whole {
        Decision::granted(vec![Event::Rewrapped(rewrap.clone())])
    } else {
        Rejection::PreparedStale.into()
    }
}

impl Happened for Rewrap {
    const NAME: &'static str = "ca.rewrapped";

    fn fields(&self) -> AuditFields {
        vec![("issuers", AuditField::texts(&self.issuers.iter().map(|(id, _)| id).collect::<Vec<_>>()))]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        self.replace_sealed_keys(state);
    }
}

impl Rewrap {
    /// Puts the sealed keys in the place of those that the state holds. By itself, without a command, only for a state that
    /// becomes the beginning of another log.
    pub fn replace_sealed_keys(&self, state: &mut State) {
        for (id, sealed) in &self.issuers {
            if let Some(issuer) = state.issuers.get_mut(id) {
                issuer.sealed_key = sealed.to_vec();
            }
        }
        if let Some(signer) = &mut state.audit_signer {
            signer.sealed_key = self.audit.clone();
        }
        if let (Some(roll), Some(sealed)) = (&mut state.roll, &self.roll) {
            roll.sealed_key = sealed.to_vec();
        }
        if let Some(pending) = &mut state.pending_roll {
            for (request, sealed) in pending.requests.iter_mut().zip(&self.pending) {
                request.sealed_key = sealed.to_vec();
            }
        }
    }
}
