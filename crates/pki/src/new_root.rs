//! A new root: made where the old root's key is, cross-signed by it, and checked before a control plane takes it.
//!
//! It has the name of the old root and a key of its own. Its cross-certificate, the new key under the old root's
//! signature, is therefore self-issued: verifiers that know the old root alone follow it to the new one, and it does not
//! count for the old root's path length (RFC 5280, 6.1.4).

use lifecycle::names::{Span, Timestamp};
use rcgen::{BasicConstraints, DistinguishedName, IsCa};
use x509_parser::certificate::X509Certificate;
use x509_parser::oid_registry::{OID_X509_EXT_BASIC_CONSTRAINTS, OID_X509_EXT_KEY_USAGE};
use x509_parser::prelude::FromDer as _;
use zeroize::Zeroizing;

use crate::certificate::{SignError, Validity, key_identifier};
use crate::describe::{self, Facts};
use crate::hierarchy::{CA_BACKDATE, HierarchyError, ca};
use crate::issuer::{IssuerError, SigningIssuer};
use crate::leaf::validity;
use crate::roll::{CLOCK_DIFFERENCE, Pins, is_signed_by};
use crate::signing_key::{SignatureError, SigningKey};
use crate::spki::{KeyError, PublicKey};
use crate::{der, extended_use, x509_time};

/// Version, serial number and algorithm.
const BEFORE_ISSUER: usize = 3;

/// Two certificates of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrossSignedRoot {
    /// Self-signed.
    pub root_der: Vec<u8>,
    /// Signed by the old root.
    pub cross_der: Vec<u8>,
}

/// A P-256 key for a new root, in PKCS#8.
pub fn new_root_key() -> Result<Zeroizing<Vec<u8>>, HierarchyError> {
    Ok(SigningKey::generate()?.1)
}

/// Certifies a key as the root that follows `old`. `key_der` may be PKCS#8, SEC1 or PKCS#1. The cross-certificate ends with
/// the old root at the latest.
pub fn new_root(
    old: &SigningIssuer,
    key_der: &[u8],
    at: Timestamp,
    lifetime: Span,
    serials: [[u8; 16]; 2],
) -> Result<CrossSignedRoot, HierarchyError> {
    new_root_for(old, &SigningKey::read(key_der)?, at, lifetime, serials)
}

/// The same for a key that may be kept elsewhere.
pub fn new_root_for(
    old: &SigningIssuer,
    key: &impl rcgen::SigningKey,
    at: Timestamp,
    lifetime: Span,
    serials: [[u8; 16]; 2],
) -> Result<CrossSignedRoot, HierarchyError> {
    let spki = key.subject_public_key_info();
    let (_, parsed) = X509Certificate::from_der(old.certificate()).map_err(|_| IssuerError::Malformed)?;
    if !is_self_signed(old.certificate(), &parsed) {
        return Err(HierarchyError::NotRoot);
    }
    if old.path_length() == Some(0) {
        return Err(HierarchyError::PathLength);
    }
    if spki == old.key().spki() {
        return Err(HierarchyError::OldKey);
    }
    PublicKey::read(&spki).map_err(SignError::from)?;
    let [root_serial, cross_serial] = serials;
    let end = at.whole_second().plus(lifetime).whole_second();
    let cross_end = validity(old, at, lifetime)?.not_after;
    let begin = at.whole_second().minus(CA_BACKDATE);
    // rcgen writes no name: it would not write that of every root as it stands.
    let params = |serial, validity| {
        let mut params = ca(DistinguishedName::new(), 1, serial, validity);
        params.key_identifier_method = key_identifier(key);
        params
    };
    let root = params(root_serial, Validity { not_before: begin, not_after: end })
        .self_signed(key)
        .map_err(SignError::from)?;
    let root_der =
        with_name(root.der(), old.name(), |body| key.sign(body).map_err(|_| SignatureError::Library))?;
    let cross_begin = begin.max(old.not_before());
    let mut cross = params(cross_serial, Validity { not_before: cross_begin, not_after: cross_end });
    // The next cross-certificate may come below it. That is self-issued and does not count (RFC 5280, 4.2.1.9), but webpki counts it.
    // How many issuers may follow, the old root says.
    cross.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let cross = cross.signed_by(key, old.template()).map_err(SignError::from)?;
    let cross_der = with_name(cross.der(), old.name(), |body| old.key().signature(body))?;
    Ok(CrossSignedRoot { root_der, cross_der })
}

/// Puts one name in as issuer and as subject, which are empty, and signs the result.
fn with_name(
    unsigned: &[u8],
    name: &[u8],
    sign: impl FnOnce(&[u8]) -> Result<Vec<u8>, SignatureError>,
) -> Result<Vec<u8>, SignError> {
    let parts = around_names(unsigned).ok_or_else(|| SignError::Build("unreadable body".to_owned()))?;
    let body = der::wrap(der::SEQUENCE, &[parts.head, name, parts.validity, name, parts.rest]);
    let signature = der::wrap(der::BIT_STRING, &[&[0], &sign(&body)?]);
    Ok(der::wrap(der::SEQUENCE, &[&body, parts.algorithm, &signature]))
}

/// The body of a certificate without its two names.
struct Nameless<'a> {
    /// Up to the issuer.
    head: &'a [u8],
    /// The last element of that.
    algorithm: &'a [u8],
    /// Between issuer and subject.
    validity: &'a [u8],
    rest: &'a [u8],
}

fn around_names(unsigned: &[u8]) -> Option<Nameless<'_>> {
    let body = der::content(unsigned).and_then(der::content)?;
    let (mut algorithm, mut rest) = (body, body);
    for _ in 0..BEFORE_ISSUER {
        (algorithm, rest) = der::split(rest)?;
    }
    let (head, _) = body.split_at_checked(body.len() - rest.len())?;
    let (_issuer, rest) = der::split(rest)?;
    let (validity, rest) = der::split(rest)?;
    let (_subject, rest) = der::split(rest)?;
    Some(Nameless { head, algorithm, validity, rest })
}

/// One of the two certificates of a new root, for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RootPart {
    Root,
    Cross,
}

impl std::fmt::Display for RootPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            RootPart::Root => "new root",
            RootPart::Cross => "cross-certificate",
        })
    }
}

/// Why two certificates are not those of a new root of this domain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NewRootError {
    #[error("the {0} is not an X.509 certificate")]
    Malformed(RootPart),
    #[error("the new root's key: {0}")]
    Key(KeyError),
    #[error("the new root is not signed by its own key under its own name")]
    NotSelfSigned,
    #[error("the new root has the key of a root that is trusted already; make a new key")]
    OldKey,
    #[error("the {0} is not a CA certificate (version 3 with basicConstraints CA:TRUE)")]
    NotCa(RootPart),
    #[error("the {0}'s basicConstraints must allow an issuer below it: pathlen absent, or 1 or more")]
    PathLength(RootPart),
    #[error("the {0}'s keyUsage must allow signing certificates and revocation lists")]
    MayNotSign(RootPart),
    #[error(
        "the {0} must not be limited by extendedKeyUsage, nor by critical extensions other than basicConstraints and \
        keyUsage"
    )]
    Restricted(RootPart),
    #[error("the {0} ended at {1}")]
    Expired(RootPart, Timestamp),
    #[error("the {0} begins at {1}, which is still to come")]
    NotYetValid(RootPart, Timestamp),
    #[error("the cross-certificate is for another name or another key than the new root's")]
    OtherCross,
    #[error("the cross-certificate names an issuer that is no root of this domain; it must be signed by {0}")]
    ForeignCross(Pins),
    #[error("the cross-certificate is not signed by the root that it names as its issuer, {0}")]
    CrossSignature(Pins),
    #[error("the new root must have the same subject as the root that signed the cross-certificate")]
    OtherName,
    #[error("the cross-certificate ends at {end}, after the root that signed it, which ends at {root}")]
    OutlivesRoot { end: Timestamp, root: Timestamp },
}

/// A new root that passed every check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRootFacts {
    pub root: Facts,
    pub cross: Facts,
    /// Which of the current roots signed the cross-certificate.
    pub signer: usize,
}

/// Checks a new root and its cross-certificate against the roots that are trusted now.
pub fn check_new_root(
    root_der: &[u8],
    cross_der: &[u8],
    current: &[&[u8]],
    at: Timestamp,
) -> Result<NewRootFacts, NewRootError> {
    let (root_facts, root) = read(root_der, RootPart::Root)?;
    PublicKey::read(&root_facts.spki).map_err(NewRootError::Key)?;
    if !is_self_signed(root_der, &root) {
        return Err(NewRootError::NotSelfSigned);
    }
    check_rights(&root, RootPart::Root)?;
    check_dates(&root_facts, RootPart::Root, at)?;
    let pins = Pins::of(current);
    let current: Vec<(usize, X509Certificate<'_>)> = current
        .iter()
        .enumerate()
        .filter_map(|(place, der)| X509Certificate::from_der(der).ok().map(|(_, parsed)| (place, parsed)))
        .collect();
    if current.iter().any(|(_, known)| known.public_key().raw == root_facts.spki) {
        return Err(NewRootError::OldKey);
    }
    let (cross_facts, cross) = read(cross_der, RootPart::Cross)?;
    if cross.subject().as_raw() != root.subject().as_raw() || cross_facts.spki != root_facts.spki {
        return Err(NewRootError::OtherCross);
    }
    let mut named =
        current.iter().filter(|(_, known)| known.subject().as_raw() == cross.issuer().as_raw()).peekable();
    if named.peek().is_none() {
        return Err(NewRootError::ForeignCross(pins));
    }
    let (signer, old) = named
        .find(|(_, known)| is_signed_by(cross_der, known.public_key().raw))
        .ok_or(NewRootError::CrossSignature(pins))?;
    if root.subject().as_raw() != old.subject().as_raw() {
        return Err(NewRootError::OtherName);
    }
    check_rights(&cross, RootPart::Cross)?;
    check_dates(&cross_facts, RootPart::Cross, at)?;
    let old_end = x509_time::timestamp(old.validity().not_after);
    if cross_facts.not_after > old_end {
        return Err(NewRootError::OutlivesRoot { end: cross_facts.not_after, root: old_end });
    }
    Ok(NewRootFacts { root: root_facts, cross: cross_facts, signer: *signer })
}

fn read(der: &[u8], part: RootPart) -> Result<(Facts, X509Certificate<'_>), NewRootError> {
    let malformed = NewRootError::Malformed(part);
    let facts = describe::facts(der).map_err(|_| malformed.clone())?;
    let (_, parsed) = X509Certificate::from_der(der).map_err(|_| malformed.clone())?;
    // The algorithm stands in the certificate twice, and only one of the two is signed.
    if parsed.signature_algorithm != parsed.tbs_certificate.signature {
        return Err(malformed);
    }
    Ok((facts, parsed))
}

fn is_self_signed(der: &[u8], parsed: &X509Certificate<'_>) -> bool {
    parsed.subject().as_raw() == parsed.issuer().as_raw() && is_signed_by(der, parsed.public_key().raw)
}

fn check_rights(certificate: &X509Certificate<'_>, part: RootPart) -> Result<(), NewRootError> {
    let constraints = certificate.basic_constraints().map_err(|_| NewRootError::Malformed(part))?;
    let constraints = constraints.filter(|found| found.value.ca).ok_or(NewRootError::NotCa(part))?;
    if constraints.value.path_len_constraint == Some(0) {
        return Err(NewRootError::PathLength(part));
    }
    let rights = certificate.key_usage().map_err(|_| NewRootError::Malformed(part))?;
    if !rights.is_some_and(|rights| rights.value.key_cert_sign() && rights.value.crl_sign()) {
        return Err(NewRootError::MayNotSign(part));
    }
    let stated = extended_use::of_certificate(certificate).map_err(|_| NewRootError::Malformed(part))?;
    let understood = [OID_X509_EXT_BASIC_CONSTRAINTS, OID_X509_EXT_KEY_USAGE];
    let mut extensions = certificate.iter_extensions();
    if stated.is_some() || extensions.any(|found| found.critical && !understood.contains(&found.oid)) {
        return Err(NewRootError::Restricted(part));
    }
    Ok(())
}

fn check_dates(facts: &Facts, part: RootPart, at: Timestamp) -> Result<(), NewRootError> {
    if facts.not_after <= at {
        return Err(NewRootError::Expired(part, facts.not_after));
    }
    if facts.not_before > at.plus(CLOCK_DIFFERENCE) {
        return Err(NewRootError::NotYetValid(part, facts.not_before));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use lifecycle::names::TrustDomain;
    use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, KeyUsagePurpose};

    use super::*;
    use crate::certificate::{blank, common_name, role_name, sign};
    use crate::hierarchy::{ROOT_LIFETIME, create, may_sign};
    use crate::pem;

    const AT: Timestamp = Timestamp::from_secs(1_800_000_000);
    const NAME: &str = "probectl Enlist Root CA";

    fn old() -> SigningIssuer {
        let domain = TrustDomain::parse("probectl").unwrap();
        let made = create(&domain, AT, [[1; 16], [2; 16], [3; 16]]).unwrap();
        let key = pem::private_key(made.root_key_pem.as_bytes()).unwrap();
        SigningIssuer::new(&made.root_der, key.secret_der()).unwrap()
    }

    /// The two certificates as a test wants them; good ones unless it changes something.
    struct Attempt {
        root: CertificateParams,
        cross: CertificateParams,
        key: SigningKey,
        cross_key: Option<SigningKey>,
    }

    fn params() -> CertificateParams {
        let mut params =
            blank([7; 16], Validity { not_before: AT, not_after: AT.plus(Span::from_days(900)) });
        params.distinguished_name = common_name(Some(NAME));
        may_sign(&mut params, 1);
        params
    }

    fn attempt(change: impl FnOnce(&mut Attempt)) -> Option<NewRootError> {
        let old = old();
        let (key, _) = SigningKey::generate().unwrap();
        let mut attempt = Attempt { root: params(), cross: params(), key, cross_key: None };
        change(&mut attempt);
        let Attempt { root, cross, key, cross_key } = attempt;
        let root = root.self_signed(&key).unwrap();
        let any = Validity { not_before: AT, not_after: AT };
        let cross = sign(&old, cross_key.as_ref().unwrap_or(&key), cross, any).unwrap();
        check_new_root(root.der(), &cross.der, &[old.certificate()], AT).err()
    }

    #[test]
    fn a_new_root_is_made_and_passes() {
        let (old, other) = (old(), old());
        let key = new_root_key().unwrap();
        let made = new_root(&old, &key, AT, ROOT_LIFETIME, [[8; 16], [9; 16]]).unwrap();
        let current = [other.certificate(), b"unreadable", old.certificate()];
        let facts = check_new_root(&made.root_der, &made.cross_der, &current, AT).unwrap();
        assert_eq!(facts.signer, 2);
        assert_eq!((&facts.root.subject, &facts.cross.subject), (&old.subject(), &old.subject()));
        assert_eq!(facts.root.not_after, AT.plus(ROOT_LIFETIME));
        assert_eq!(facts.cross.not_after, old.not_after());
        let issuer = SigningIssuer::new(&made.root_der, &key).unwrap();
        assert_eq!(issuer.path_length(), Some(1));
        assert!(issuer.may_sign_crls());
        // The cross-certificate and the root change places.
        let swapped = check_new_root(&made.cross_der, &made.root_der, &current, AT);
        assert_eq!(swapped, Err(NewRootError::NotSelfSigned));
        let foreign = check_new_root(&made.root_der, &made.cross_der, &current[..1], AT);
        assert_eq!(
            foreign,
            Err(NewRootError::CrossSignature(Pins::of(&current[..1]))),
            "the same name, another key"
        );
        let foreign = check_new_root(&made.root_der, &made.cross_der, &[], AT);
        assert_eq!(foreign, Err(NewRootError::ForeignCross(Pins::of(&[]))));
    }

    #[test]
    fn the_name_of_a_root_is_kept_byte_for_byte() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = params();
        params.distinguished_name = role_name("Example", "Corporate Root");
        params
            .distinguished_name
            .push(rcgen::DnType::CountryName, rcgen::DnValue::PrintableString("DE".try_into().unwrap()));
        let root = params.self_signed(&key).unwrap();
        let old = SigningIssuer::new(root.der(), key.serialized_der()).unwrap();
        let made = new_root(&old, &new_root_key().unwrap(), AT, ROOT_LIFETIME, [[8; 16], [9; 16]]).unwrap();
        let checked = check_new_root(&made.root_der, &made.cross_der, &[root.der()], AT);
        assert_eq!(checked.unwrap().root.subject, old.subject());
    }

    #[test]
    fn what_cannot_be_a_new_root_is_not_made() {
        let domain = TrustDomain::parse("probectl").unwrap();
        let made = create(&domain, AT, [[1; 16], [2; 16], [3; 16]]).unwrap();
        let root_key = pem::private_key(made.root_key_pem.as_bytes()).unwrap();
        let root = SigningIssuer::new(&made.root_der, root_key.secret_der()).unwrap();
        let node = SigningIssuer::new(&made.node.der, &made.node.key).unwrap();
        let make = |old: &SigningIssuer, key: &[u8], at| {
            new_root(old, key, at, ROOT_LIFETIME, [[8; 16], [9; 16]]).unwrap_err()
        };
        assert_eq!(make(&root, root_key.secret_der(), AT), HierarchyError::OldKey);
        assert_eq!(make(&node, &made.server.key, AT), HierarchyError::NotRoot);
        assert!(matches!(make(&root, b"key", AT), HierarchyError::Key(_)));
        let end = root.not_after();
        assert_eq!(make(&root, &made.node.key, end), HierarchyError::Sign(SignError::IssuerExpired(end)));
    }

    type Change = fn(&mut CertificateParams);
    type Refusal = fn(RootPart) -> NewRootError;

    #[test]
    fn a_new_root_needs_the_rights_of_a_root() {
        use NewRootError::{MayNotSign, NotCa, PathLength, Restricted};
        assert_eq!(attempt(|_| ()), None);
        let changes: [(Change, Refusal); 5] = [
            (|params| params.is_ca = IsCa::ExplicitNoCa, NotCa),
            (|params| may_sign(params, 0), PathLength),
            (|params| params.key_usages = vec![KeyUsagePurpose::KeyCertSign], MayNotSign),
            (|params| params.key_usages.clear(), MayNotSign),
            (|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth], Restricted),
        ];
        for (change, expected) in changes {
            assert_eq!(attempt(|attempt| change(&mut attempt.root)), Some(expected(RootPart::Root)));
            assert_eq!(attempt(|attempt| change(&mut attempt.cross)), Some(expected(RootPart::Cross)));
        }
        let unknown = |params: &mut CertificateParams| {
            let mut extension = rcgen::CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
            extension.set_criticality(true);
            params.custom_extensions.push(extension);
        };
        assert_eq!(attempt(|attempt| unknown(&mut attempt.root)), Some(Restricted(RootPart::Root)));
        let unlimited = IsCa::Ca(BasicConstraints::Unconstrained);
        assert_eq!(attempt(|attempt| attempt.root.is_ca = unlimited), None);
    }

    #[test]
    fn a_new_root_is_in_date_and_its_cross_certificate_ends_with_the_old_root() {
        use RootPart::{Cross, Root};
        let (past, soon) = (AT.minus(Span::from_days(1)), AT.plus(Span::from_days(1)));
        let date = x509_time::date_time;
        let ended = |part| Some(NewRootError::Expired(part, past));
        let early = |part| Some(NewRootError::NotYetValid(part, soon));
        assert_eq!(attempt(|attempt| attempt.root.not_after = date(past)), ended(Root));
        assert_eq!(attempt(|attempt| attempt.cross.not_after = date(past)), ended(Cross));
        assert_eq!(attempt(|attempt| attempt.root.not_before = date(soon)), early(Root));
        assert_eq!(attempt(|attempt| attempt.cross.not_before = date(soon)), early(Cross));
        let end = old().not_after().plus(Span::from_secs(1));
        let outlives = Some(NewRootError::OutlivesRoot { end, root: old().not_after() });
        assert_eq!(attempt(|attempt| attempt.cross.not_after = date(end)), outlives);
        assert_eq!(attempt(|attempt| attempt.root.not_after = date(end)), None);
    }

    #[test]
    fn a_cross_certificate_is_for_the_new_root_and_no_other() {
        let other = SigningKey::generate().unwrap().0;
        let check = attempt(|attempt| attempt.cross_key = Some(other));
        assert_eq!(check, Some(NewRootError::OtherCross));
        let name = || common_name(Some("another Root CA"));
        assert_eq!(
            attempt(|attempt| attempt.cross.distinguished_name = name()),
            Some(NewRootError::OtherCross)
        );
        let renamed = attempt(|attempt| {
            attempt.root.distinguished_name = name();
            attempt.cross.distinguished_name = name();
        });
        assert_eq!(renamed, Some(NewRootError::OtherName));
    }

    #[test]
    fn a_new_root_with_the_old_key_is_refused() {
        let old = old();
        let made = new_root(&old, &new_root_key().unwrap(), AT, ROOT_LIFETIME, [[8; 16], [9; 16]]).unwrap();
        let check = |der: &[u8], current: &[&[u8]]| check_new_root(der, &made.cross_der, current, AT);
        let known = [old.certificate(), made.root_der.as_slice()];
        assert_eq!(check(&made.root_der, &known), Err(NewRootError::OldKey));
        assert_eq!(check(old.certificate(), &known[..1]), Err(NewRootError::OldKey));
        let mut forged = made.root_der.clone();
        *forged.last_mut().unwrap() ^= 1;
        assert_eq!(check(&forged, &known[..1]), Err(NewRootError::NotSelfSigned));
        assert_eq!(check(b"no", &known), Err(NewRootError::Malformed(RootPart::Root)));
        let no_cross = check_new_root(&made.root_der, b"no", &known[..1], AT);
        assert_eq!(no_cross, Err(NewRootError::Malformed(RootPart::Cross)));
    }
}
