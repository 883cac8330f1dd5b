//! Certificates on record.

pub(super) mod denied;
pub(super) mod presented;
pub(super) mod record;
pub(super) mod renew;
pub(super) mod revocation_list;
pub(super) mod server;
pub(super) mod supersede;
pub(super) mod verdict;

use super::{ExternalIssuance, State};
use crate::names::{
    BootstrapName, Fingerprint, IssuerId, KeyHash, NodeId, OperatorName, ReplicaId, Serial, Span, SpiffeId,
    SpiffePath, Timestamp,
};
use serde::{Deserialize, Serialize};

/// How far a prepared certificate may be ahead of or behind the moment it is applied.
const AHEAD: Span = Span::from_secs(60);
const BEHIND: Span = Span::from_minutes(5);

/// A certificate as signed: public data, recorded whole before it is released.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issued {
    pub serial: Serial,
    pub fingerprint: Fingerprint,
    pub subject: SpiffeId,
    pub key: KeyHash,
    pub issuer: IssuerId,
    /// When it was signed; `not_before` lies a minute earlier, unless an external issuer chose it.
    pub signed_at: Timestamp,
    pub not_after: Timestamp,
    /// When its holder should renew, jitter not counted.
    pub renew_at: Timestamp,
    #[serde(with = "serde_bytes")]
    pub der: Vec<u8>,
    /// Of one that an issuer outside of the control plane signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<Box<ExternalIssuance>>,
}

impl Issued {
    /// What every prepared certificate must be when it goes on record: signed about now by the issuer that signs now for
    /// whom it is for, not yet over, not outliving its issuer, and under a serial of its own.
    pub(super) fn may_be_recorded(&self, state: &State) -> bool {
        let issuer = match self.subject.path {
            SpiffePath::Agent { .. } => state.node_issuer(&self.issuer),
            SpiffePath::Operator { .. } | SpiffePath::Bootstrap { .. } => {
                state.client_issuer().filter(|issuer| issuer.id == self.issuer)
            }
            SpiffePath::Replica { .. } => state.server_issuer().filter(|issuer| issuer.id == self.issuer),
        };
        self.signed_at <= state.at.plus(AHEAD)
            && self.signed_at.plus(BEHIND) >= state.at
            && self.not_after > state.at
            && !state.serial_is_taken(&self.serial)
            && issuer.is_some_and(|issuer| {
                self.not_after <= issuer.not_after && state.is_duly_signed(self, issuer)
            })
    }
}

/// Whom a certificate speaks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    Node(NodeId),
    Operator(OperatorName),
    /// Good between replicas only: it is accepted for neither a node nor an operator.
    Replica(ReplicaId),
    /// Of many hosts: it reads a configuration and enrolls, and nothing else.
    Bootstrap(BootstrapName),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CertificateStatus {
    Live,
    /// Its successor was seen in use: good until this moment.
    Superseded {
        until: Timestamp,
    },
    /// Never again accepted.
    Denied,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What is remembered of a certificate until it expires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate {
    pub owner: Owner,
    pub status: CertificateStatus,
    pub fingerprint: Fingerprint,
    pub key: KeyHash,
    pub issuer: IssuerId,
    pub issued_at: Timestamp,
    pub not_after: Timestamp,
    pub renew_at: Timestamp,
    /// Kept until the holder's first authenticated contact, so that a lost reply can be repeated.
    pub der: Option<serde_bytes::ByteBuf>,
    /// Since when it is denied, for the revocation list.
    #[serde(default)]
    pub denied_at: Option<Timestamp>,
    /// The trust bundle that was sent with it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bundle: u64,
    /// Made elsewhere: accepted because it is on record, not for what it says of itself.
    #[serde(default)]
    pub imported: bool,
}

impl Certificate {
    pub fn of(owner: Owner, issued: &Issued, at: Timestamp) -> Self {
        Self {
            owner,
            status: CertificateStatus::Live,
            fingerprint: issued.fingerprint,
            key: issued.key,
            issuer: issued.issuer.clone(),
            issued_at: at,
            not_after: issued.not_after,
            renew_at: issued.renew_at,
            der: Some(serde_bytes::ByteBuf::from(issued.der.clone())),
            denied_at: None,
            bundle: 0,
            imported: false,
        }
    }

    /// When it may no longer be used beside its successor, if it has one.
    pub(super) fn grace_end(&self) -> Option<Timestamp> {
        match self.status {
            CertificateStatus::Superseded { until } => Some(until),
            CertificateStatus::Live | CertificateStatus::Denied => None,
        }
    }

    /// Whether its holder has never shown it.
    pub fn is_unseen(&self) -> bool {
        self.der.is_some()
    }
}
