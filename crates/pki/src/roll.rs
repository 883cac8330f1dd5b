//! A new issuer: its key and request, made by the control plane, and the checks of the certificate
//! that comes back from wherever the root's key is kept.

use lifecycle::names::{IssuerUse, Span, Timestamp, TrustDomain};
use rcgen::CertificateParams;
use x509_parser::certificate::X509Certificate;
use x509_parser::certification_request::X509CertificationRequestInfo;
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::extensions::ParsedExtension;
use x509_parser::oid_registry::{
    OID_X509_EXT_BASIC_CONSTRAINTS, OID_X509_EXT_EXTENDED_KEY_USAGE, OID_X509_EXT_KEY_USAGE,
};
use x509_parser::prelude::FromDer as _;
use zeroize::Zeroizing;

use crate::certificate::{SignError, role_owner};
use crate::describe::{self, Facts};
use crate::hierarchy::{HierarchyError, intermediate_name, intermediate_role, may_sign};
pub use crate::new_root::{NewRootError, NewRootFacts, RootPart, check_new_root};
use crate::signing_key::SigningKey;
use crate::{der, extended_use, pem, x509_time};

/// How far the clock of the machine that signed may be ahead.
pub(crate) const CLOCK_DIFFERENCE: Span = Span::from_minutes(5);

/// A key that waits for its certificate.
pub struct IntermediateRequest {
    pub csr_pem: String,
    /// SubjectPublicKeyInfo in DER, by which the certificate is recognised.
    pub spki: Vec<u8>,
    /// In PKCS#8, for sealing.
    pub key: Zeroizing<Vec<u8>>,
}

/// Makes a P-256 key for the domain's next issuer of this use, and asks for its certificate.
pub fn intermediate_request(
    domain: &TrustDomain,
    usage: IssuerUse,
) -> Result<IntermediateRequest, HierarchyError> {
    let (signing, key) = SigningKey::generate()?;
    let csr_pem = request_for(domain, usage, &signing)?;
    Ok(IntermediateRequest { csr_pem, spki: signing.spki(), key })
}

/// Asks for the certificate of a key that may be kept elsewhere. The request states name, path length and usages, so that
/// any CA software can grant it as it stands.
pub fn request_for(
    domain: &TrustDomain,
    usage: IssuerUse,
    key: &impl rcgen::SigningKey,
) -> Result<String, HierarchyError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = intermediate_name(domain.as_str(), usage, &key.subject_public_key_info());
    may_sign(&mut params, 0);
    params.extended_key_usages = extended_use::purposes(usage);
    let request = params.serialize_request(key).map_err(SignError::from)?;
    Ok(pem::request_pem(request.der()))
}

/// Why no issuer can be made of what a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestedUseError {
    #[error("not a PKCS#10 certificate request")]
    Malformed,
    #[error(
        "the request asks for other uses than an issuer has: clientAuth alone, serverAuth alone, or no \
        extendedKeyUsage"
    )]
    Uses,
}

/// The use that a request in DER asks for, by its extended key usage.
pub fn requested_use(csr_der: &[u8]) -> Result<IssuerUse, RequestedUseError> {
    let malformed = RequestedUseError::Malformed;
    let (body, _, _) = der::signed(csr_der).ok_or(malformed)?;
    let (_, info) = X509CertificationRequestInfo::from_der(body).map_err(|_| malformed)?;
    let extensions = info.iter_attributes().filter_map(|attribute| match attribute.parsed_attribute() {
        ParsedCriAttribute::ExtensionRequest(requested) => Some(&requested.extensions),
        _ => None,
    });
    let stated = extended_use::among(extensions.flatten()).map_err(|_| malformed)?;
    extended_use::issuer_use(stated).ok_or(RequestedUseError::Uses)
}

/// The domain that a request in DER is of, if a control plane made it as it stands and the name had room.
pub fn domain_of_request(csr_der: &[u8]) -> Option<String> {
    let usage = requested_use(csr_der).ok()?;
    let (body, _, _) = der::signed(csr_der)?;
    let (_, info) = X509CertificationRequestInfo::from_der(body).ok()?;
    role_owner(&info.subject, &intermediate_role(usage, info.subject_pki.raw))
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
    #[error("an intermediate must not be limited by nameConstraints or policyConstraints")]
    Restricted,
    #[error(
        "an intermediate must not be limited by critical extensions other than basicConstraints, keyUsage and \
        extendedKeyUsage: hosts would refuse every certificate below it for {0}"
    )]
    Critical(String),
    #[error(
        "the certificate is for other uses than the prepared issuer, whose use is '{0}': its extendedKeyUsage must be {words}",
        words = extended_use::words(*.0)
    )]
    OtherUse(IssuerUse),
    #[error("the certificate has an empty subject, so nothing can name it as its issuer")]
    Nameless,
    #[error("the certificate has the name of its root")]
    NameOfRoot,
    #[error("this certificate is not signed by the root that the roll needs, {0}")]
    ForeignRoot(Pins),
    #[error("the certificate ended at {0}")]
    Expired(Timestamp),
    #[error("the certificate begins at {0}, which is still to come")]
    NotYetValid(Timestamp),
    #[error("the certificate ends at {end}, after its root, which ends at {root}")]
    OutlivesRoot { end: Timestamp, root: Timestamp },
}

/// The roots that would have done, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pins(Vec<String>);

impl Pins {
    pub(crate) fn of(roots: &[&[u8]]) -> Self {
        Self(roots.iter().map(|der| crate::digest::fingerprint(der).pin()).collect())
    }
}

impl std::fmt::Display for Pins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join(" or "))
    }
}

/// A certificate that passed every check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intermediate {
    pub facts: Facts,
    /// Which of the given roots signed it.
    pub root: usize,
}

/// Checks a certificate that came back: right key, right rights for this use, right time, and one of these roots
/// vouches for it. Whether another issuer of the domain has its name already, the registry knows.
pub fn check_intermediate(
    certificate_der: &[u8],
    roots: &[&[u8]],
    spki: &[u8],
    usage: IssuerUse,
    at: Timestamp,
) -> Result<Intermediate, IntermediateError> {
    let facts = describe::facts(certificate_der).map_err(|_| IntermediateError::Malformed)?;
    let (_, certificate) =
        X509Certificate::from_der(certificate_der).map_err(|_| IntermediateError::Malformed)?;
    if facts.spki != spki {
        return Err(IntermediateError::OtherKey);
    }
    rights(&certificate, usage)?;
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

/// An intermediate signs leaves for its use and lists of revocations, and no further CA.
fn rights(certificate: &X509Certificate<'_>, usage: IssuerUse) -> Result<(), IntermediateError> {
    let constraints = certificate.basic_constraints().map_err(|_| IntermediateError::Malformed)?;
    let constraints = constraints.filter(|found| found.value.ca).ok_or(IntermediateError::NotCa)?;
    if constraints.value.path_len_constraint != Some(0) {
        return Err(IntermediateError::PathLength);
    }
    let rights = certificate.key_usage().map_err(|_| IntermediateError::Malformed)?;
    if !rights.is_some_and(|rights| rights.value.key_cert_sign() && rights.value.crl_sign()) {
        return Err(IntermediateError::MayNotSign);
    }
    let stated = extended_use::of_certificate(certificate).map_err(|_| IntermediateError::Malformed)?;
    if !extended_use::is_exactly(stated, usage) {
        return Err(IntermediateError::OtherUse(usage));
    }
    let restricted = certificate.iter_extensions().any(|extension| {
        matches!(
            extension.parsed_extension(),
            ParsedExtension::NameConstraints(_) | ParsedExtension::PolicyConstraints(_)
        )
    });
    if restricted {
        return Err(IntermediateError::Restricted);
    }
    let understood =
        [OID_X509_EXT_BASIC_CONSTRAINTS, OID_X509_EXT_KEY_USAGE, OID_X509_EXT_EXTENDED_KEY_USAGE];
    let mut extensions = certificate.iter_extensions();
    match extensions.find(|found| found.critical && !understood.contains(&found.oid)) {
        Some(found) => Err(IntermediateError::Critical(found.oid.to_id_string())),
        None => Ok(()),
    }
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
    Err(IntermediateError::ForeignRoot(Pins::of(roots)))
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

/// Whether its signature is of one of these algorithms, whoever made it.
pub(crate) fn has_known_signature(der: &[u8]) -> bool {
    der::signed(der).is_some_and(|(_, algorithm, _)| {
        webpki::ALL_VERIFICATION_ALGS.iter().any(|known| known.signature_alg_id().as_ref() == algorithm)
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
        let made = create(&domain(), AT, [[1; 16], [2; 16], [3; 16]]).unwrap();
        let key = pem::private_key(made.root_key_pem.as_bytes()).unwrap();
        let root = SigningIssuer::new(&made.root_der, key.secret_der()).unwrap();
        (made, root)
    }

    #[test]
    fn a_roll_goes_from_request_to_certificate() {
        let (made, root) = founded();
        let waiting = intermediate_request(&domain(), IssuerUse::Node).unwrap();
        let request = csr::read(waiting.csr_pem.as_bytes()).unwrap();
        assert_eq!(request.spki, waiting.spki);
        let signed =
            sign_intermediate(&root, &request.spki, IssuerUse::Node, [3; 16], AT, INTERMEDIATE_LIFETIME)
                .unwrap();
        let other = create(&domain(), AT, [[4; 16], [5; 16], [6; 16]]).unwrap();
        let roots = [other.root_der.as_slice(), &made.root_der];
        let checked = check_intermediate(&signed.der, &roots, &waiting.spki, IssuerUse::Node, AT).unwrap();
        assert_eq!((checked.root, checked.facts.fingerprint), (1, signed.fingerprint));
        assert_eq!(checked.facts.common_name, request.common_name);
        assert_ne!(checked.facts.subject, describe::facts(&made.node.der).unwrap().subject);
        let issuer = SigningIssuer::new(&signed.der, &waiting.key).unwrap();
        assert!(issuer.may_sign_crls());
    }

    #[test]
    fn a_certificate_for_another_key_or_from_another_root_is_refused() {
        let (made, root) = founded();
        let (waiting, another) = (
            intermediate_request(&domain(), IssuerUse::Node).unwrap(),
            intermediate_request(&domain(), IssuerUse::Node).unwrap(),
        );
        let signed =
            sign_intermediate(&root, &waiting.spki, IssuerUse::Node, [3; 16], AT, INTERMEDIATE_LIFETIME)
                .unwrap();
        let check = |der: &[u8], root: &[u8], spki: &[u8]| {
            check_intermediate(der, &[root], spki, IssuerUse::Node, AT).map(|checked| checked.root)
        };
        assert_eq!(check(&signed.der, &made.root_der, &waiting.spki), Ok(0));
        assert_eq!(check(&signed.der, &made.root_der, &another.spki), Err(IntermediateError::OtherKey));
        // The same name, another key.
        let other = create(&domain(), AT, [[4; 16], [5; 16], [6; 16]]).unwrap();
        let foreign = |root: &[u8]| Err(IntermediateError::ForeignRoot(Pins::of(&[root])));
        let refused = check(&signed.der, &other.root_der, &waiting.spki);
        assert_eq!(refused, foreign(&other.root_der));
        let pin = crate::digest::fingerprint(&other.root_der).pin();
        assert!(refused.unwrap_err().to_string().contains(&pin), "the root to sign with is named");
        assert!(matches!(
            check_intermediate(&signed.der, &[], &waiting.spki, IssuerUse::Node, AT),
            Err(IntermediateError::ForeignRoot(_))
        ));
        assert_eq!(check(b"no", &made.root_der, &waiting.spki), Err(IntermediateError::Malformed));
        let mut forged = signed.der.clone();
        *forged.last_mut().unwrap() ^= 1;
        assert_eq!(check(&forged, &made.root_der, &waiting.spki), foreign(&made.root_der));
    }

    #[test]
    fn a_request_and_a_root_say_of_which_domain_they_are() {
        let long = format!("{}.example", "a".repeat(40));
        for name in ["probectl", "prod.example", &long] {
            let domain = TrustDomain::parse(name).unwrap();
            for usage in [IssuerUse::Both, IssuerUse::Node, IssuerUse::Server] {
                let asked = intermediate_request(&domain, usage).unwrap();
                let [der] = pem::certificate_requests(asked.csr_pem.as_bytes()).unwrap().try_into().unwrap();
                assert_eq!(domain_of_request(&der).as_deref(), Some(name));
            }
            let made = create(&domain, AT, [[1; 16], [2; 16], [3; 16]]).unwrap();
            assert_eq!(crate::hierarchy::domain_of_root(&made.root_der).as_deref(), Some(name));
            assert_eq!(crate::hierarchy::domain_of_root(&made.node.der), None);
        }
        // Made by other software, or for another key: the name says nothing.
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(Some("probectl Enlist Node CA 00112233"));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let request = params.serialize_request(&SigningKey::generate().unwrap().0).unwrap();
        assert_eq!(domain_of_request(request.der()), None);
    }

    /// Signs what the root's holder might have signed instead, and checks that.
    fn check(change: impl FnOnce(&mut CertificateParams), validity: Validity) -> Option<IntermediateError> {
        let (made, root) = founded();
        let waiting = intermediate_request(&domain(), IssuerUse::Node).unwrap();
        let mut params = blank([3; 16], validity);
        params.distinguished_name = common_name(Some("Intermediate"));
        may_sign(&mut params, 0);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let signed = sign(&root, &PublicKey::read(&waiting.spki).unwrap(), params, validity).unwrap();
        check_intermediate(&signed.der, &[&made.root_der], &waiting.spki, IssuerUse::Node, AT).err()
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
            |params| {
                let excluded = vec![rcgen::GeneralSubtree::DnsName("example".to_owned())];
                params.name_constraints = Some(rcgen::NameConstraints {
                    permitted_subtrees: Vec::new(),
                    excluded_subtrees: excluded,
                });
            },
            IntermediateError::Restricted,
        );
        refused(
            |params| {
                let mut unknown =
                    rcgen::CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99999], vec![5, 0]);
                unknown.set_criticality(true);
                params.custom_extensions = vec![unknown];
            },
            IntermediateError::Critical("1.3.6.1.4.1.99999".to_owned()),
        );
        let known = |params: &mut CertificateParams| {
            let unknown = rcgen::CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99999], vec![5, 0]);
            params.custom_extensions = vec![unknown];
        };
        assert_eq!(check(known, year), None, "what is not critical is passed over");
        refused(|params| params.distinguished_name = common_name(None), IntermediateError::Nameless);
        refused(
            |params| params.distinguished_name = common_name(Some("probectl Enlist Root CA")),
            IntermediateError::NameOfRoot,
        );
    }

    #[test]
    fn a_certificate_for_another_use_is_refused() {
        use ExtendedKeyUsagePurpose::{Any, ClientAuth, ServerAuth};
        let (made, root) = founded();
        let year = Validity { not_before: AT, not_after: AT.plus(INTERMEDIATE_LIFETIME) };
        let uses = [IssuerUse::Both, IssuerUse::Node, IssuerUse::Server];
        for (stated, granted) in [
            (vec![], Some(IssuerUse::Both)),
            (vec![ClientAuth], Some(IssuerUse::Node)),
            (vec![ServerAuth], Some(IssuerUse::Server)),
            (vec![ClientAuth, ServerAuth], None),
            (vec![ServerAuth, Any], None),
            (vec![ExtendedKeyUsagePurpose::Other(vec![1, 2, 3])], None),
        ] {
            let (key, _) = SigningKey::generate().unwrap();
            let mut params = blank([3; 16], year);
            params.distinguished_name = common_name(Some("Intermediate"));
            may_sign(&mut params, 0);
            params.extended_key_usages = stated.clone();
            let mut asked = CertificateParams::default();
            asked.extended_key_usages = stated.clone();
            let request = asked.serialize_request(&key).unwrap();
            assert_eq!(requested_use(request.der()), granted.ok_or(RequestedUseError::Uses), "{stated:?}");
            let signed = sign(&root, &key, params, year).unwrap();
            for expected in uses {
                let checked = check_intermediate(&signed.der, &[&made.root_der], &key.spki(), expected, AT);
                let wrong = (granted != Some(expected)).then_some(IntermediateError::OtherUse(expected));
                assert_eq!(checked.err(), wrong, "{stated:?} for {expected}");
            }
        }
    }

    #[test]
    fn a_request_asks_for_its_use_whoever_keeps_the_key() {
        for usage in [IssuerUse::Both, IssuerUse::Node, IssuerUse::Server] {
            let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
            let pem = request_for(&domain(), usage, &key).unwrap();
            let [der] = pem::certificate_requests(pem.as_bytes()).unwrap().try_into().unwrap();
            assert_eq!(requested_use(&der), Ok(usage));
            assert_eq!(
                csr::read_der(&der).unwrap().spki,
                rcgen::PublicKeyData::subject_public_key_info(&key)
            );
        }
        assert_eq!(requested_use(b"no"), Err(RequestedUseError::Malformed));
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
