//! The control plane's own certificates, one of each replica, go on record before they are presented.

use crate::names::{Fingerprint, IssuerId, NodeId, ReplicaId, Serial, Timestamp};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Envelope, Event, Rejection, State};
use serde::{Deserialize, Serialize};

/// The certificate that a replica presents to clients, on record like every other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerCertificate {
    pub serial: Serial,
    pub fingerprint: Fingerprint,
    pub issuer: IssuerId,
    pub not_after: Timestamp,
    /// Which replica presents it. Commands of versions without replicas do not say it.
    #[serde(default = "ReplicaId::first", skip_serializing_if = "ReplicaId::is_first")]
    pub replica: ReplicaId,
}

impl ServerCertificate {
    /// Whether it is of this issuer and not over.
    pub(in crate::registry) fn is_presented_of(&self, issuer: &IssuerId, at: Timestamp) -> bool {
        self.issuer == *issuer && self.not_after > at
    }
}

impl State {
    /// What a replica presents to clients.
    pub fn server_certificate_of(&self, replica: ReplicaId) -> Option<&ServerCertificate> {
        if replica.is_first() {
            self.server_certificate.as_ref()
        } else {
            self.server_certificates.get(&replica)
        }
    }

    /// What all replicas present to clients.
    pub fn server_certificates(&self) -> impl Iterator<Item = &ServerCertificate> {
        self.server_certificate.iter().chain(self.server_certificates.values())
    }

    pub(in crate::registry) fn forget_server_certificate(&mut self, replica: ReplicaId) {
        if replica.is_first() {
            self.server_certificate = None;
        } else {
            self.server_certificates.remove(&replica);
        }
    }
}

pub(in crate::registry) fn decide(state: &State, certificate: &ServerCertificate) -> Decision {
    if state.server_certificate_of(certificate.replica) == Some(certificate) {
        return Decision::granted(Vec::new());
    }
    let alone = state.replicas.is_empty() && certificate.replica.is_first();
    if !alone && let Err(refused) = state.member(certificate.replica) {
        return refused.into();
    }
    let issuer = state.server_issuer().filter(|issuer| issuer.id == certificate.issuer);
    let fits = issuer.is_some_and(|issuer| certificate.not_after <= issuer.not_after)
        && !state.serial_is_taken(&certificate.serial);
    if !fits {
        return Rejection::PreparedStale.into();
    }
    Decision::granted(vec![Event::ServerCertificateIssued(certificate.clone())])
}

impl Happened for ServerCertificate {
    const NAME: &'static str = "server_certificate.issued";

    fn fields(&self) -> AuditFields {
        [
            ("cert_serial", AuditField::text(&self.serial)),
            ("cert_fingerprint", AuditField::text(self.fingerprint.labelled())),
            ("issuer", AuditField::text(&self.issuer)),
            ("not_after", AuditField::text(self.not_after)),
        ]
        .into_iter()
        // Lines of old logs are made again from their commands, which name no replica.
        .chain((!self.replica.is_first()).then(|| ("replica_id", AuditField::text(self.replica))))
        .collect()
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        if self.replica.is_first() {
            state.server_certificate = Some(self.clone());
        } else {
            state.server_certificates.insert(self.replica, self.clone());
        }
    }
}
