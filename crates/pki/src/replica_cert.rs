//! The certificates by which replicas show themselves to each other.
//!
//! Issued by the server issuer, so that nobody with a stolen node issuer can play a replica. They state both uses; a chain through
//! the server issuer holds for server authentication only, and it is asked for that at both ends.

use crate::agent_key::HostKey;
use crate::certificate::{SignError, Signed, blank, common_name, sign};
use crate::issuer::SigningIssuer;
use crate::leaf::validity;
use crate::signing_key::SignatureError;
use crate::spki::PublicKey;
use crate::verify::{MAX_LEAF_BYTES, PeerCertificate};
use lifecycle::names::{Fingerprint, ReplicaId, Serial, Span, SpiffeId, SpiffePath, Timestamp, TrustDomain};
use rcgen::{ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose, SanType};
use rustls_pki_types::{CertificateDer, UnixTime};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use zeroize::Zeroizing;

/// How long one lives; renewed at two thirds of it.
pub const LIFETIME: Span = Span::from_days(30);
/// Certificates that a peer may send beyond its own.
const SENT_CERTIFICATES: usize = 6;

/// Who a replica's certificate says it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaCertificate {
    pub replica: ReplicaId,
    pub serial: Serial,
    pub fingerprint: Fingerprint,
    pub not_after: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a replica's certificate of this domain: {0}")]
pub struct NotAReplica(String);

/// A new key and its certificate.
pub struct ReplicaIdentity {
    pub signed: Signed,
    pub spki: Vec<u8>,
    pub key_pkcs8: Zeroizing<Vec<u8>>,
}

/// Makes both.
pub fn make_replica(
    issuer: &SigningIssuer,
    domain: &TrustDomain,
    replica: ReplicaId,
    serial: [u8; 16],
    at: Timestamp,
) -> Result<ReplicaIdentity, SignError> {
    let key = HostKey::generate().map_err(|_| SignatureError::Library)?;
    let spki = key.spki();
    let signed = sign_replica(issuer, &spki, domain, replica, serial, at)?;
    Ok(ReplicaIdentity { signed, spki, key_pkcs8: Zeroizing::new(key.pkcs8().to_vec()) })
}

/// Certifies the key of a replica.
pub fn sign_replica(
    issuer: &SigningIssuer,
    spki: &[u8],
    domain: &TrustDomain,
    replica: ReplicaId,
    serial: [u8; 16],
    at: Timestamp,
) -> Result<Signed, SignError> {
    let key = PublicKey::read(spki)?;
    let validity = validity(issuer, at, LIFETIME)?;
    let mut params = blank(serial, validity);
    params.distinguished_name = common_name(Some(&format!("replica {replica}")));
    params.subject_alt_names = vec![SanType::URI(SpiffeId::replica(domain, replica).to_string().try_into()?)];
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    sign(issuer, &key, params, validity)
}

/// Verifies chain, time, use and identity of what a peer presents.
pub fn verify_replica(
    leaf: &CertificateDer<'_>,
    sent: &[CertificateDer<'_>],
    roots: &[CertificateDer<'_>],
    domain: &TrustDomain,
    at: Timestamp,
) -> Result<ReplicaCertificate, NotAReplica> {
    let refused = |error: &dyn std::fmt::Display| NotAReplica(error.to_string());
    let long = |certificate: &CertificateDer<'_>| certificate.len() > MAX_LEAF_BYTES;
    if sent.len() > SENT_CERTIFICATES || long(leaf) || sent.iter().any(long) {
        return Err(refused(&"its chain is too long"));
    }
    let anchors: Vec<_> = roots.iter().filter_map(|root| anchor_from_trusted_cert(root).ok()).collect();
    let parsed = EndEntityCert::try_from(leaf).map_err(|error| refused(&error))?;
    let algorithms = webpki::ALL_VERIFICATION_ALGS;
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(at.millis() / 1000));
    parsed
        .verify_for_usage(algorithms, &anchors, sent, now, KeyUsage::server_auth(), None, None)
        .map_err(|error| refused(&error))?;
    let peer = PeerCertificate::read(leaf).map_err(|error| refused(&error))?;
    match peer.spiffe {
        Some(SpiffeId { domain: of, path: SpiffePath::Replica { id } }) if of == *domain => {
            Ok(ReplicaCertificate {
                replica: id,
                serial: peer.serial,
                fingerprint: peer.fingerprint,
                not_after: peer.not_after,
            })
        }
        _ => Err(refused(&"it names no replica of this domain")),
    }
}
