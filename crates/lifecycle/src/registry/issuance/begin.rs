//! The intent: a replica is about to ask an external issuer for a certificate.

use super::{INTENTS, Intent};
use crate::names::{IssuerId, KeyHash, NodeId, ReplicaId, Serial, SpiffeId, SpiffePath, Timestamp};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Envelope, Event, IssuerKind, Rejection, State};
use serde::{Deserialize, Serialize};

/// Whether the caller may have the certificate was asked before, and is asked again with the result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeginIssuance {
    pub replica: ReplicaId,
    pub issuer: IssuerId,
    /// Drawn by the replica; an issuer that lets it be chosen signs under it.
    pub serial: Serial,
    pub key: KeyHash,
    pub subject: SpiffeId,
    pub not_after: Timestamp,
}

pub(in crate::registry) fn begin(state: &State, begin: &BeginIssuance) -> Decision {
    let issuer = state.node_issuer(&begin.issuer).filter(|issuer| issuer.kind == IssuerKind::StepCa);
    let Some(issuer) = issuer else {
        return Rejection::IssuerNotFound { issuer: begin.issuer.clone() }.into();
    };
    let is_of_node = matches!(begin.subject.path, SpiffePath::Agent { .. });
    let taken = state.serial_is_taken(&begin.serial) || state.serial_is_expected(&begin.serial);
    let outlives = begin.not_after > issuer.not_after || begin.not_after <= state.at;
    if !is_of_node || taken || outlives {
        return Rejection::PreparedStale.into();
    }
    if state.intents.len() >= INTENTS {
        return Rejection::TooManyIssuances { max: INTENTS }.into();
    }
    Decision::granted(vec![Event::IssuanceBegun(Box::new(IssuanceBegun { begin: begin.clone() }))])
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuanceBegun {
    pub begin: BeginIssuance,
}

impl Happened for IssuanceBegun {
    const NAME: &'static str = "issuance.begun";

    fn fields(&self) -> AuditFields {
        vec![
            ("issuer", AuditField::text(&self.begin.issuer)),
            ("spiffe_id", AuditField::text(&self.begin.subject)),
            ("asked_serial", AuditField::text(&self.begin.serial)),
            ("not_after", AuditField::text(self.begin.not_after)),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, envelope: &Envelope) {
        let BeginIssuance { replica: _, issuer, serial, key, subject, not_after } = self.begin.clone();
        let intent = Intent { issuer, serial, key, subject, not_after, at: state.at };
        state.intents.insert(envelope.id, intent);
    }
}
