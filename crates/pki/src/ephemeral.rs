//! The CA that a replica makes in its memory. Its key is never written in any form; its certificate is an anchor for the
//! certificates of nodes and for nothing else: a server's certificate under it has no way to be trusted, because its only
//! extended key usage is that of clients.

use lifecycle::names::{Timestamp, TrustDomain};
use lifecycle::registry::EPHEMERAL_LIFE;
use rcgen::{CertificateParams, DistinguishedName, ExtendedKeyUsagePurpose, KeyUsagePurpose};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::FromDer as _;

use crate::certificate::{SignError, Validity, blank, key_identifier, role_name};
use crate::describe::{self, Facts};
use crate::hierarchy::{CA_BACKDATE, HierarchyError, may_sign};
use crate::issuer::SigningIssuer;
use crate::roll::is_signed_by;
use crate::signing_key::SigningKey;
use crate::spki::{KeyKind, PublicKey};

/// Makes a CA that is valid from an hour ago, for as long as an ephemeral issuer lives.
pub fn create(
    domain: &TrustDomain,
    serial: [u8; 16],
    at: Timestamp,
) -> Result<SigningIssuer, HierarchyError> {
    let key = SigningKey::generate_unwritten()?;
    let not_before = at.whole_second().minus(CA_BACKDATE);
    let validity = Validity { not_before, not_after: not_before.plus(EPHEMERAL_LIFE) };
    let certificate = params(domain, &key, serial, validity).self_signed(&key).map_err(SignError::from)?;
    Ok(SigningIssuer::with_key(certificate.der(), key)?)
}

fn params(domain: &TrustDomain, key: &SigningKey, serial: [u8; 16], validity: Validity) -> CertificateParams {
    let mut params = blank(serial, validity);
    params.distinguished_name = name(domain, key);
    may_sign(&mut params, 0);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.key_identifier_method = key_identifier(key);
    params
}

/// With a piece of the key's digest: each start makes another CA, and verifiers look for issuers by name.
fn name(domain: &TrustDomain, key: &SigningKey) -> DistinguishedName {
    let digest: String = crate::digest::key_hash(&key.spki()).hex().chars().take(16).collect();
    role_name(domain.as_str(), &format!("Enlist Ephemeral CA {digest}"))
}

/// Why a certificate is not that of an ephemeral issuer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EphemeralError {
    #[error("not an X.509 certificate")]
    Malformed,
    #[error("its key is not a P-256 key")]
    NotP256,
    #[error("it is not a CA with basicConstraints CA:TRUE, pathlen:0")]
    NotCa,
    #[error("its keyUsage is not keyCertSign alone")]
    KeyUsage,
    #[error("its extendedKeyUsage is not clientAuth alone")]
    NotForClients,
    #[error("it is not signed by its own key under its own name")]
    NotSelfSigned,
    #[error("it lives longer than an ephemeral issuer may")]
    TooLong,
}

/// Checks the whole shape of a certificate that is published, or was, as that of an ephemeral issuer.
pub fn check(certificate_der: &[u8]) -> Result<Facts, EphemeralError> {
    let facts = describe::facts(certificate_der).map_err(|_| EphemeralError::Malformed)?;
    let (_, ca) = X509Certificate::from_der(certificate_der).map_err(|_| EphemeralError::Malformed)?;
    let key = PublicKey::read(&facts.spki).map_err(|_| EphemeralError::NotP256)?;
    if key.kind != KeyKind::P256 {
        return Err(EphemeralError::NotP256);
    }
    let constraints = ca.basic_constraints().map_err(|_| EphemeralError::Malformed)?;
    if !constraints.is_some_and(|found| found.value.ca && found.value.path_len_constraint == Some(0)) {
        return Err(EphemeralError::NotCa);
    }
    let usage = ca.key_usage().map_err(|_| EphemeralError::Malformed)?;
    // The flags of RFC 5280 as bits: keyCertSign is the sixth.
    if usage.is_none_or(|usage| usage.value.flags != 1 << 5) {
        return Err(EphemeralError::KeyUsage);
    }
    if !is_for_clients(&ca) {
        return Err(EphemeralError::NotForClients);
    }
    let own_name = ca.issuer().as_raw() == ca.subject().as_raw();
    let named = ca.subject().iter_attributes().next().is_some();
    if !own_name || !named || !is_signed_by(certificate_der, &facts.spki) {
        return Err(EphemeralError::NotSelfSigned);
    }
    if facts.not_before.plus(EPHEMERAL_LIFE) < facts.not_after {
        return Err(EphemeralError::TooLong);
    }
    Ok(facts)
}

fn is_for_clients(ca: &X509Certificate<'_>) -> bool {
    let mut uses = ca.iter_extensions().filter_map(|extension| match extension.parsed_extension() {
        ParsedExtension::ExtendedKeyUsage(uses) => Some(uses),
        _ => None,
    });
    uses.next().is_some_and(|uses| {
        let other = uses.any
            || uses.server_auth
            || uses.code_signing
            || uses.email_protection
            || uses.time_stamping
            || uses.ocsp_signing
            || !uses.other.is_empty();
        uses.client_auth && !other
    })
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, IsCa};

    use super::*;
    use crate::hierarchy;
    use lifecycle::names::Span;

    const AT: Timestamp = Timestamp::from_secs(1_800_000_000);

    fn domain() -> TrustDomain {
        TrustDomain::parse("probectl").unwrap()
    }

    #[test]
    fn an_ephemeral_ca_has_the_shape_that_is_asked_of_it() {
        let (one, other) = (create(&domain(), [1; 16], AT).unwrap(), create(&domain(), [2; 16], AT).unwrap());
        let facts = check(one.certificate()).unwrap();
        assert_eq!(facts.not_after.since(facts.not_before), EPHEMERAL_LIFE);
        assert!(facts.not_before < AT && AT < facts.not_after);
        assert_ne!(one.subject(), other.subject());
        assert!(!one.may_sign_crls());
        assert_eq!(one.path_length(), Some(0));
    }

    /// What somebody might publish instead.
    fn checked(change: impl FnOnce(&mut CertificateParams)) -> Option<EphemeralError> {
        let key = SigningKey::generate_unwritten().unwrap();
        let validity = Validity { not_before: AT, not_after: AT.plus(EPHEMERAL_LIFE) };
        let mut params = params(&domain(), &key, [3; 16], validity);
        change(&mut params);
        check(params.self_signed(&key).unwrap().der()).err()
    }

    #[test]
    fn a_certificate_of_another_shape_is_refused() {
        assert_eq!(checked(|_| ()), None);
        assert_eq!(checked(|params| params.is_ca = IsCa::ExplicitNoCa), Some(EphemeralError::NotCa));
        assert_eq!(checked(|params| may_sign_below(params, 1)), Some(EphemeralError::NotCa));
        assert_eq!(
            checked(|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained)),
            Some(EphemeralError::NotCa)
        );
        for usages in [vec![], vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign]] {
            assert_eq!(checked(|params| params.key_usages = usages), Some(EphemeralError::KeyUsage));
        }
        let server = ExtendedKeyUsagePurpose::ServerAuth;
        for uses in [
            vec![],
            vec![server.clone()],
            vec![ExtendedKeyUsagePurpose::ClientAuth, server],
            vec![ExtendedKeyUsagePurpose::Any],
        ] {
            assert_eq!(
                checked(|params| params.extended_key_usages = uses),
                Some(EphemeralError::NotForClients)
            );
        }
        assert_eq!(
            checked(|params| params.distinguished_name = DistinguishedName::new()),
            Some(EphemeralError::NotSelfSigned)
        );
        let later = AT.plus(EPHEMERAL_LIFE).plus(Span::from_secs(1));
        assert_eq!(
            checked(|params| params.not_after = crate::x509_time::date_time(later)),
            Some(EphemeralError::TooLong)
        );
    }

    fn may_sign_below(params: &mut CertificateParams, below: u8) {
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(below));
    }

    #[test]
    fn what_another_ca_signed_or_somebody_changed_is_refused() {
        let made = hierarchy::create(&domain(), AT, [[1; 16], [2; 16], [3; 16]]).unwrap();
        assert!(check(&made.root_der).is_err() && check(&made.node.der).is_err());
        let good = create(&domain(), [1; 16], AT).unwrap();
        let whole = good.certificate();
        for place in 0..whole.len() {
            let mut changed = whole.to_vec();
            changed[place] ^= 0x55;
            assert!(check(&changed).is_err(), "changed at {place}");
            assert!(check(&whole[..place]).is_err(), "cut at {place}");
        }
    }
}
