//! A server recognised by the digest of a certificate in its chain.
//!
//! A pinned CA is the only trust anchor: the chain must verify up to it, for server use and for the name asked
//! for. A pinned leaf is the server itself, so its name says nothing more; its dates and use still count. The
//! library ignores an anchor's own dates, path length and use, so they are checked here.

use crate::chain_verifier::ChainVerifier;
use crate::denied_issuers::{DeniedIssuers, PathJudge, denied_anchors};
use crate::trust::PinnedCa;
use pki::pin::Pin;
use pki::verify::is_issued_by;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::{CertificateError, OtherError};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::sync::Arc;
use webpki::{EndEntityCert, KeyUsage, VerifiedPath, anchor_from_trusted_cert};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

/// No certificate that the server presented has the pinned digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no certificate of the server matches the pin")]
pub(crate) struct PinNotFound;

#[derive(Debug)]
pub(crate) struct PinnedVerifier {
    pin: Pin,
    found: PinnedCa,
    denied: DeniedIssuers,
    algorithms: WebPkiSupportedAlgorithms,
}

impl PinnedVerifier {
    pub(crate) fn new(
        pin: Pin,
        found: PinnedCa,
        denied: DeniedIssuers,
        algorithms: WebPkiSupportedAlgorithms,
    ) -> Self {
        Self { pin, found, denied, algorithms }
    }

    fn chain_holds(
        &self,
        leaf: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        pinned: &CertificateDer<'_>,
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), CertificateError> {
        let path_length = authority(pinned, now)?;
        let anchors = [anchor_from_trusted_cert(pinned).map_err(refusal)?];
        let leaf = EndEntityCert::try_from(leaf).map_err(refusal)?;
        let denied_anchors = denied_anchors(std::slice::from_ref(pinned), &self.denied);
        let judge = PathJudge::new(&self.denied, &denied_anchors);
        let holds = |path: &VerifiedPath<'_>| {
            // A new root's cross-certificate is self-issued, and does not count (RFC 5280, 6.1.4).
            let counted = path.intermediate_certificates().filter(|ca| ca.subject() != ca.issuer()).count();
            match path_length {
                Some(most) if counted > most => Err(webpki::Error::PathLenConstraintViolated),
                _ => judge.judge(path),
            }
        };
        leaf.verify_for_usage(
            self.algorithms.all,
            &anchors,
            sent,
            now,
            KeyUsage::server_auth(),
            None,
            Some(&holds),
        )
        .map_err(|error| judge.reason(refusal(error)))?;
        leaf.verify_is_valid_for_subject_name(name).map_err(refusal)
    }
}

impl ChainVerifier for PinnedVerifier {
    fn verify_chain(
        &self,
        leaf: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        if self.pin.matches(leaf) {
            server(leaf, now)?;
            let denied = |ca: &CertificateDer<'_>| is_issued_by(leaf, ca) && self.denied.deny(ca);
            if self.denied.deny(leaf) || sent.iter().any(denied) {
                return Err(CertificateError::Revoked.into());
            }
        } else {
            let pinned = sent.iter().find(|certificate| self.pin.matches(certificate));
            let pinned = pinned.ok_or_else(|| CertificateError::Other(OtherError(Arc::new(PinNotFound))))?;
            self.chain_holds(leaf, sent, pinned, name, now)?;
            self.found.found(pinned);
        }
        Ok(())
    }
}

/// May this certificate speak as a server, now?
fn server(der: &CertificateDer<'_>, now: UnixTime) -> Result<(), CertificateError> {
    in_time_and_for_servers(&read(der)?, now)
}

/// May this certificate vouch for servers, now? Answers with its path length, if it has one.
fn authority(der: &CertificateDer<'_>, now: UnixTime) -> Result<Option<usize>, CertificateError> {
    let certificate = read(der)?;
    in_time_and_for_servers(&certificate, now)?;
    let constraints = certificate.basic_constraints().map_err(|_| CertificateError::BadEncoding)?;
    let constraints = constraints.filter(|constraints| constraints.value.ca);
    let constraints = constraints.ok_or(CertificateError::UnknownIssuer)?;
    let usage = certificate.key_usage().map_err(|_| CertificateError::BadEncoding)?;
    if usage.is_some_and(|usage| !usage.value.key_cert_sign()) {
        return Err(CertificateError::UnknownIssuer);
    }
    Ok(constraints.value.path_len_constraint.map(|most| usize::try_from(most).unwrap_or(usize::MAX)))
}

fn read<'a>(der: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, CertificateError> {
    match X509Certificate::from_der(der) {
        Ok(([], certificate)) => Ok(certificate),
        _ => Err(CertificateError::BadEncoding),
    }
}

fn in_time_and_for_servers(certificate: &X509Certificate<'_>, now: UnixTime) -> Result<(), CertificateError> {
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if now < certificate.validity().not_before.timestamp() {
        return Err(CertificateError::NotValidYet);
    }
    if now > certificate.validity().not_after.timestamp() {
        return Err(CertificateError::Expired);
    }
    // A certificate that names no use at all may be used for any, as everywhere in TLS.
    let uses = certificate.extended_key_usage().map_err(|_| CertificateError::BadEncoding)?;
    if uses.is_some_and(|uses| !uses.value.server_auth) {
        return Err(CertificateError::InvalidPurpose);
    }
    Ok(())
}

pub(crate) fn refusal(error: webpki::Error) -> CertificateError {
    use webpki::Error;
    match error {
        Error::CertExpired { .. } => CertificateError::Expired,
        Error::CertNotValidYet { .. } => CertificateError::NotValidYet,
        Error::CertNotValidForName(_) => CertificateError::NotValidForName,
        Error::RequiredEkuNotFoundContext(_) => CertificateError::InvalidPurpose,
        Error::UnknownIssuer | Error::PathLenConstraintViolated => CertificateError::UnknownIssuer,
        Error::CertRevoked => CertificateError::Revoked,
        Error::InvalidSignatureForPublicKey => CertificateError::BadSignature,
        Error::BadDer | Error::BadDerTime => CertificateError::BadEncoding,
        other => CertificateError::Other(OtherError(Arc::new(other))),
    }
}
