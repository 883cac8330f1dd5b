//! The control plane's own certificate goes on record before it is presented.

use crate::registry::apply::Decision;
use crate::registry::{Event, Rejection, ServerCertificate, State};

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
