//! A new intermediate CA: its key and request, made by the control plane, and the checks of the certificate
//! that comes back from wherever the root's key is kept.

use lifecycle::names::{Span, Timestamp, TrustDomain};
use rcgen::CertificateParams;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::FromDer as _;
use zeroize::Zeroizing;

use crate::certificate::SignError;
use crate::describe::{self, Facts};
use crate::hierarchy::{HierarchyError, intermediate_name, may_sign};
use crate::signing_key::SigningKey;
use crate::{der, pem, x509_time};

/// How far the clock of the machine that signed may be ahead.
const CLOCK_DIFFERENCE: Span = Span::from_minutes(5);

/// A key that waits for its certificate.
pub struct IntermediateRequest {
    pub csr_pem: String,
    /// SubjectPublicKeyInfo in DER, by which the certificate is recognised.
    pub spki: Vec<u8>,
    /// In PKCS#8, for sealing.
    pub key: Zeroizing<Vec<u8>>,
}

/// Makes a P-256 key for the domain's next intermediate, and asks for its certificate. The request states
/// name, path length and usages, so that any CA software can grant it as it stands.
pub fn intermediate_request(domain: &TrustDomain) -> Result<IntermediateRequest, HierarchyError> {
    let (signing, key) = SigningKey::generate()?;
    let spki = signing.spki();
    let mut params = CertificateParams::default();
    params.distinguished_name = intermediate_name(domain.as_str(), &spki);
    may_sign(&mut params, 0);
    let request = params.serialize_request(&signing).map_err(SignError::from)?;
    Ok(IntermediateRequest { csr_pem: pem::request_pem(request.der()), spki, key })
}

/// Why a certificate cannot serve as this domain's next intermediate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IntermediateError {
    #[error("not an X.509 certificate")]
    Malformed,
    #[error("the certificate is for another key than the prepared issuer's")]
    OtherKey,
    #[error("this is not a CA certificate (version 3 with basicConstraints CA:TRUE)")]
    NotCa,
    #[error("an intermediate's basicConstraints must set pathlen:0")]
    PathLength,
    #[error("an intermediate's keyUsage must allow signing certificates and revocation lists")]
    MayNotSign,
    #[error("an intermediate must not be limited by extendedKeyUsage, nameConstraints or policyConstraints")]
    Restricted,
    #[error("the certificate has an empty subject, so nothing can name it as its issuer")]
    Nameless,
    #[error("the certificate has the name of its root")]
    NameOfRoot,
    #[error("no root of this domain has signed this certificate")]
    ForeignRoot,
    #[error("the certificate ended at {0}")]
    Expired(Timestamp),
    #[error("the certificate begins at {0}, which is still to come")]
    NotYetValid(Timestamp),
    #[error("the certificate ends at {end}, after its root, which ends at {root}")]
    OutlivesRoot { end: Timestamp, root: Timestamp },
}

/// A certificate that passed every check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intermediate {
    pub facts: Facts,
    /// Which of the given roots signed it.
    pub root: usize,
}

/// Checks a certificate that came back: right key, right rights, right time, and one of these roots
/// vouches for it. Whether another issuer of the domain has its name already, the registry knows.
pub fn check_intermediate(
    certificate_der: &[u8],
    roots: &[&[u8]],
    spki: &[u8],
    at: Timestamp,
) -> Result<Intermediate, IntermediateError> {
    let facts = describe::facts(certificate_der).map_err(|_| IntermediateError::Malformed)?;
    let (_, certificate) =
        X509Certificate::from_der(certificate_der).map_err(|_| IntermediateError::Malformed)?;
    if facts.spki != spki {
        return Err(IntermediateError::OtherKey);
    }
    rights(&certificate)?;
    if certificate.subject().iter_attributes().next().is_none() {
        return Err(IntermediateError::Nameless);
    }
    let (root, root_end) = vouching(certificate_der, &certificate, roots)?;
    if facts.not_after <= at {
        return Err(IntermediateError::Expired(facts.not_after));
    }
    if facts.not_before > at.plus(CLOCK_DIFFERENCE) {
        return Err(IntermediateError::NotYetValid(facts.not_before));
    }
    if facts.not_after > root_end {
        return Err(IntermediateError::OutlivesRoot { end: facts.not_after, root: root_end });
    }
    Ok(Intermediate { facts, root })
}

/// An intermediate signs nodes, servers, audit keys and lists of revocations, and no further CA.
fn rights(certificate: &X509Certificate<'_>) -> Result<(), IntermediateError> {
    let constraints = certificate.basic_constraints().map_err(|_| IntermediateError::Malformed)?;
    let constraints = constraints.filter(|found| found.value.ca).ok_or(IntermediateError::NotCa)?;
    if constraints.value.path_len_constraint != Some(0) {
        return Err(IntermediateError::PathLength);
    }
    let usage = certificate.key_usage().map_err(|_| IntermediateError::Malformed)?;
    if !usage.is_some_and(|usage| usage.value.key_cert_sign() && usage.value.crl_sign()) {
        return Err(IntermediateError::MayNotSign);
    }
    let restricted = certificate.iter_extensions().any(|extension| {
        matches!(
            extension.parsed_extension(),
            ParsedExtension::ExtendedKeyUsage(_)
                | ParsedExtension::NameConstraints(_)
                | ParsedExtension::PolicyConstraints(_)
        )
    });
    if restricted { Err(IntermediateError::Restricted) } else { Ok(()) }
}

/// The root that signed it, and when that one ends.
fn vouching(
    der: &[u8],
    certificate: &X509Certificate<'_>,
    roots: &[&[u8]],
) -> Result<(usize, Timestamp), IntermediateError> {
    // The algorithm stands in the certificate twice, and only one of the two is signed.
    if certificate.signature_algorithm != certificate.tbs_certificate.signature {
        return Err(IntermediateError::Malformed);
    }
    for (index, root) in roots.iter().enumerate() {
        let Ok((_, root)) = X509Certificate::from_der(root) else { continue };
        let (issuer, subject) = (certificate.issuer().as_raw(), certificate.subject().as_raw());
        if issuer == root.subject().as_raw() && is_signed_by(der, root.public_key().raw) {
            let end = x509_time::timestamp(root.validity().not_after);
            return if issuer == subject { Err(IntermediateError::NameOfRoot) } else { Ok((index, end)) };
        }
    }
    Err(IntermediateError::ForeignRoot)
}

/// By any algorithm that verifiers accept in a TLS handshake: SHA-1 is not among them.
pub(crate) fn is_signed_by(der: &[u8], spki: &[u8]) -> bool {
    let Some((body, algorithm, signature)) = der::signed(der) else { return false };
    let Some((key_algorithm, key)) = key_parts(spki) else { return false };
    webpki::ALL_VERIFICATION_ALGS.iter().any(|known| {
        known.public_key_alg_id().as_ref() == key_algorithm
            && known.signature_alg_id().as_ref() == algorithm
            && known.verify_signature(key, body, signature).is_ok()
    })
}

/// The inside of the algorithm, and the key's bits.
fn key_parts(spki: &[u8]) -> Option<(&[u8], &[u8])> {
    let (algorithm, key) = der::content(spki).and_then(der::split)?;
    let (_unused, bits) = der::content(key)?.split_first()?;
    Some((der::content(algorithm)?, bits))
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose};

    use super::*;
    use crate::certificate::{Validity, blank, common_name, sign};
    use crate::csr;
    use crate::hierarchy::{Hierarchy, INTERMEDIATE_LIFETIME, create, sign_intermediate};
    use crate::issuer::SigningIssuer;
    use crate::spki::PublicKey;

    const AT: Timestamp = Timestamp::from_secs(1_800_000_000);

    fn domain() -> TrustDomain {
        TrustDomain::parse("probectl").unwrap()
    }

    fn founded() -> (Hierarchy, SigningIssuer) {
        let made = create(&domain(), AT, [[1; 16], [2; 16]]).unwrap();
        let key = pem::private_key(made.root_key_pem.as_bytes()).unwrap();
        let root = SigningIssuer::new(&made.root_der, key.secret_der()).unwrap();
        (made, root)
    }

    #[test]
    fn a_roll_goes_from_request_to_certificate() {
        let (made, root) = founded();
        let waiting = intermediate_request(&domain()).unwrap();
        let request = csr::read(waiting.csr_pem.as_bytes()).unwrap();
        assert_eq!(request.spki, waiting.spki);
        let signed = sign_intermediate(&root, &request.spki, [3; 16], AT, INTERMEDIATE_LIFETIME).unwrap();
        let other = create(&domain(), AT, [[4; 16], [5; 16]]).unwrap();
        let roots = [other.root_der.as_slice(), &made.root_der];
        let checked = check_intermediate(&signed.der, &roots, &waiting.spki, AT).unwrap();
        assert_eq!((checked.root, checked.facts.fingerprint), (1, signed.fingerprint));
        assert_eq!(checked.facts.common_name, request.common_name);
        assert_ne!(checked.facts.subject, describe::facts(&made.intermediate_der).unwrap().subject);
        let issuer = SigningIssuer::new(&signed.der, &waiting.key).unwrap();
        assert!(issuer.may_sign_crls());
    }

    #[test]
    fn a_certificate_for_another_key_or_from_another_root_is_refused() {
        let (made, root) = founded();
        let (waiting, another) =
            (intermediate_request(&domain()).unwrap(), intermediate_request(&domain()).unwrap());
        let signed = sign_intermediate(&root, &waiting.spki, [3; 16], AT, INTERMEDIATE_LIFETIME).unwrap();
        let check = |der: &[u8], root: &[u8], spki: &[u8]| {
            check_intermediate(der, &[root], spki, AT).map(|checked| checked.root)
        };
        assert_eq!(check(&signed.der, &made.root_der, &waiting.spki), Ok(0));
        assert_eq!(check(&signed.der, &made.root_der, &another.spki), Err(IntermediateError::OtherKey));
        // The same name, another key.
        let other = create(&domain(), AT, [[4; 16], [5; 16]]).unwrap();
        assert_eq!(check(&signed.der, &other.root_der, &waiting.spki), Err(IntermediateError::ForeignRoot));
        assert_eq!(
            check_intermediate(&signed.der, &[], &waiting.spki, AT),
            Err(IntermediateError::ForeignRoot)
        );
        assert_eq!(check(b"no", &made.root_der, &waiting.spki), Err(IntermediateError::Malformed));
        let mut forged = signed.der.clone();
        *forged.last_mut().unwrap() ^= 1;
        assert_eq!(check(&forged, &made.root_der, &waiting.spki), Err(IntermediateError::ForeignRoot));
    }

    /// Signs what the root's holder might have signed instead, and checks that.
    fn check(change: impl FnOnce(&mut CertificateParams), validity: Validity) -> Option<IntermediateError> {
        let (made, root) = founded();
        let waiting = intermediate_request(&domain()).unwrap();
        let mut params = blank([3; 16], validity);
        params.distinguished_name = common_name(Some("Intermediate"));
        may_sign(&mut params, 0);
        change(&mut params);
        let signed = sign(&root, &PublicKey::read(&waiting.spki).unwrap(), params, validity).unwrap();
        check_intermediate(&signed.der, &[&made.root_der], &waiting.spki, AT).err()
    }

    #[test]
    fn a_certificate_without_the_right_rights_is_refused() {
        let year = Validity { not_before: AT, not_after: AT.plus(INTERMEDIATE_LIFETIME) };
        assert_eq!(check(|_| (), year), None);
        let refused = |change: fn(&mut CertificateParams), expected| {
            assert_eq!(check(change, year), Some(expected));
        };
        refused(|params| params.is_ca = IsCa::ExplicitNoCa, IntermediateError::NotCa);
        refused(|params| params.is_ca = IsCa::NoCa, IntermediateError::NotCa);
        refused(
            |params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained),
            IntermediateError::PathLength,
        );
        refused(|params| may_sign(params, 1), IntermediateError::PathLength);
        refused(|params| params.key_usages.clear(), IntermediateError::MayNotSign);
        refused(
            |params| params.key_usages = vec![KeyUsagePurpose::KeyCertSign],
            IntermediateError::MayNotSign,
        );
        refused(
            |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth],
            IntermediateError::Restricted,
        );
        refused(|params| params.distinguished_name = common_name(None), IntermediateError::Nameless);
        refused(
            |params| params.distinguished_name = common_name(Some("probectl Enlist Root CA")),
            IntermediateError::NameOfRoot,
        );
    }

    #[test]
    fn a_certificate_outside_its_time_is_refused() {
        let second = Span::from_secs(1);
        let ahead = AT.plus(CLOCK_DIFFERENCE);
        let far = AT.plus(INTERMEDIATE_LIFETIME);
        let root_end = founded().1.not_after();
        let check = |not_before, not_after| check(|_| (), Validity { not_before, not_after });
        assert_eq!(check(ahead, far), None);
        assert_eq!(check(ahead.plus(second), far), Some(IntermediateError::NotYetValid(ahead.plus(second))));
        assert_eq!(check(AT.minus(second), AT), Some(IntermediateError::Expired(AT)));
        assert_eq!(check(AT, root_end), None);
        let end = root_end.plus(second);
        assert_eq!(check(AT, end), Some(IntermediateError::OutlivesRoot { end, root: root_end }));
    }
}
