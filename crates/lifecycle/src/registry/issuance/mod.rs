//! Certificates that an issuer outside of the control plane signs take two entries: the intent, and the command that records the
//! result. The intent makes no node and spends no token. What may have been signed for one that came to nothing is revoked there.

pub(super) mod begin;
pub(super) mod deliver;
pub(super) mod end;
pub(super) mod lapse;

use super::{Certificate, Issued, Issuer, RevocationReason, State};
use crate::names::{IssuerId, KeyHash, RequestId, Serial, Span, SpiffeId, Timestamp};
use crate::registry::{IssuerKind, StepCaIntermediate};
use serde::{Deserialize, Serialize};

/// How long an intent waits for its result.
pub const INTENT_LAPSE: Span = Span::from_secs(60);
/// How far an external issuer's `not_before`, which it chooses by its own clock, may be from the time of the entry.
pub const EXTERNAL_SKEW: Span = Span::from_minutes(5);
/// Intents that wait at once. Replicas ask for fewer certificates at a time than this by far.
const INTENTS: usize = 4096;

/// A certificate that a replica has asked an external issuer for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    pub issuer: IssuerId,
    /// The serial that the issuer was asked for. It may choose another.
    pub serial: Serial,
    pub key: KeyHash,
    pub subject: SpiffeId,
    pub not_after: Timestamp,
    pub at: Timestamp,
}

impl Intent {
    pub(super) fn has_lapsed(&self, at: Timestamp) -> bool {
        self.at.plus(INTENT_LAPSE) <= at
    }
}

/// A certificate that its issuer has yet to revoke.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndeliveredRevocation {
    pub issuer: IssuerId,
    /// Nobody needs to hear of it any more then.
    pub not_after: Timestamp,
    pub since: Timestamp,
    /// Whether it was replaced by another of the same node; else it was revoked, or never reached anybody.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub superseded: bool,
}

/// What comes with a certificate that an external issuer signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalIssuance {
    /// The command that recorded the intent.
    pub intent: RequestId,
    /// The issuer's own choice.
    pub not_before: Timestamp,
    /// Between the certificate and the issuer's root, the one that signed it first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<StepCaIntermediate>,
}

impl State {
    /// Whether a serial was asked for, or is to be revoked where it was signed.
    pub fn serial_is_expected(&self, serial: &Serial) -> bool {
        self.undelivered_revocations.contains_key(serial)
            || self.intents.values().any(|intent| intent.serial == *serial)
    }

    /// May this certificate be recorded, as far as it goes by who signed it?
    pub(super) fn is_duly_signed(&self, issued: &Issued, issuer: &Issuer) -> bool {
        match (issuer.kind, &issued.external) {
            (
                IssuerKind::Sealed | IssuerKind::Imported | IssuerKind::Ephemeral | IssuerKind::Pkcs11,
                None,
            ) => true,
            (IssuerKind::StepCa, Some(external)) => self.is_result(issued, issuer, external),
            (IssuerKind::StepCa, None)
            | (
                IssuerKind::Sealed | IssuerKind::Imported | IssuerKind::Ephemeral | IssuerKind::Pkcs11,
                Some(_),
            ) => false,
        }
    }

    fn is_result(&self, issued: &Issued, issuer: &Issuer, external: &ExternalIssuance) -> bool {
        let Some(intent) = self.intents.get(&external.intent) else { return false };
        let another =
            self.intents.iter().any(|(id, intent)| *id != external.intent && intent.serial == issued.serial);
        intent.issuer == issuer.id
            && intent.key == issued.key
            && intent.subject == issued.subject
            && intent.not_after == issued.not_after
            && !intent.has_lapsed(self.at)
            && !another
            && !self.undelivered_revocations.contains_key(&issued.serial)
            && external.not_before <= self.at.plus(EXTERNAL_SKEW)
            && external.not_before.plus(EXTERNAL_SKEW) >= self.at
            && issuer.step_ca.as_ref().is_some_and(|known| known.has_room_for(&external.chain, self.at))
    }

    /// The result of an intent is on record. Only folds call this.
    pub(super) fn record_external(&mut self, issued: &Issued) {
        if let Some(external) = &issued.external {
            self.intents.remove(&external.intent);
            self.learn_intermediates(&issued.issuer, &external.chain);
        }
    }

    /// What an external issuer signed is denied: it is to be revoked there too. Only folds call this.
    pub(super) fn owe_revocation(&mut self, serial: &Serial, denied: &Certificate, superseded: bool) {
        let external = self.issuers.get(&denied.issuer).is_some_and(|issuer| issuer.step_ca.is_some());
        if external && denied.not_after > self.at {
            let owed = UndeliveredRevocation {
                issuer: denied.issuer.clone(),
                not_after: denied.not_after,
                since: self.at,
                superseded,
            };
            self.undelivered_revocations.insert(serial.clone(), owed);
        }
    }

    /// The same of what may have been signed for an intent that came to nothing.
    fn owe_unrecorded(&mut self, intent: &Intent, serial: &Serial) {
        if !self.certificates.contains_key(serial) && intent.not_after > self.at {
            let owed = UndeliveredRevocation {
                issuer: intent.issuer.clone(),
                not_after: intent.not_after,
                since: self.at,
                superseded: false,
            };
            self.undelivered_revocations.insert(serial.clone(), owed);
        }
    }
}

impl UndeliveredRevocation {
    pub fn reason(&self) -> RevocationReason {
        if self.superseded { RevocationReason::Superseded } else { RevocationReason::Unspecified }
    }
}
