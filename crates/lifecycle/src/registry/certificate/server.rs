//! The control plane's own certificate goes on record before it is presented.

use crate::names::{Fingerprint, IssuerId, NodeId, Serial, Timestamp};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Envelope, Event, Rejection, State};
use serde::{Deserialize, Serialize};

/// The control plane's own certificate, on record like every other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerCertificate {
    pub serial: Serial,
    pub fingerprint: Fingerprint,
    pub issuer: IssuerId,
    pub not_after: Timestamp,
}

pub(in crate::registry) fn decide(state: &State, certificate: &ServerCertificate) -> Decision {
    if state.server_certificate.as_ref() == Some(certificate) {
        return Decision::granted(Vec::new());
    }
    let issuer = state.active_issuer().filter(|issuer| issuer.id == certificate.issuer);
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
        vec![
            ("cert_serial", AuditField::text(&self.serial)),
            ("cert_fingerprint", AuditField::text(self.fingerprint.labelled())),
            ("issuer", AuditField::text(&self.issuer)),
            ("not_after", AuditField::text(self.not_after)),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.server_certificate = Some(self.clone());
    }
}
