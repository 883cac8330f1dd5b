//! Reading the list that a root's holder signed: the issuers that must not be trusted any more.
//!
//! Every host verifies on its strength, so a list is taken only if no verifier could read it in another way: it is whole,
//! says all it says about certificates of the root itself, and has no critical extension.

use lifecycle::names::{Serial, Timestamp};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::ParsedExtension;
use x509_parser::oid_registry::{
    OID_X509_EXT_CRL_NUMBER, OID_X509_EXT_DELTA_CRL_INDICATOR, OID_X509_EXT_ISSUER_DISTRIBUTION_POINT,
};
use x509_parser::prelude::FromDer as _;
use x509_parser::revocation_list::{CertificateRevocationList, RevokedCertificate};
use x509_parser::x509::{ReasonCode, X509Version};

use crate::roll::is_signed_by;
use crate::x509_time;

const MAX_BYTES: usize = 64 * 1024;
const MAX_DENIED: usize = 256;
/// The highest number of a list that is taken. Numbers are times, unless somebody chooses others, and a higher one must be able to follow.
pub const MAX_NUMBER: u64 = u64::MAX / 2;

/// Why a list is not one that hosts may go by.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RootListError {
    #[error("a root's revocation list may have at most {MAX_BYTES} bytes")]
    TooLong,
    #[error("a root's revocation list may name at most {MAX_DENIED} certificates")]
    TooMany,
    #[error("not an X.509 revocation list")]
    Malformed,
    #[error("the revocation list is not of version 2")]
    Version,
    #[error("no root of this domain has signed the revocation list")]
    ForeignRoot,
    #[error("the keyUsage of the root does not allow signing revocation lists")]
    MayNotSign,
    #[error("the revocation list needs a CRL number below 2^64")]
    Number,
    #[error("this is a delta list; a whole list is needed")]
    Delta,
    #[error(
        "the revocation list is limited by an issuing distribution point; one for all certificates is needed"
    )]
    Partial,
    #[error("the revocation list has a critical extension ({0}), which hosts do not understand")]
    Critical(String),
    #[error("the number of the revocation list is above {MAX_NUMBER}: none could follow it")]
    NumberTooHigh,
    #[error(
        "the revocation list denies the root that signed it, and every host that learns it would trust nobody"
    )]
    DeniesItsRoot,
}

/// What a list says, and which of the given roots says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootListFacts {
    pub root: usize,
    pub number: u64,
    /// In the order of the list.
    pub denied: Vec<Serial>,
    pub this_update: Timestamp,
}

impl RootListFacts {
    /// Refuses what is signed well and must not be taken all the same: nothing could take it back.
    pub fn check(&self, root: &[u8]) -> Result<(), RootListError> {
        if self.number > MAX_NUMBER {
            return Err(RootListError::NumberTooHigh);
        }
        let own = crate::describe::facts(root).map(|facts| facts.serial);
        if own.is_ok_and(|own| self.denied.contains(&own)) {
            return Err(RootListError::DeniesItsRoot);
        }
        Ok(())
    }
}

/// Reads and verifies a list in DER.
pub fn read_root_list(der: &[u8], roots: &[&[u8]]) -> Result<RootListFacts, RootListError> {
    if der.len() > MAX_BYTES {
        return Err(RootListError::TooLong);
    }
    let (rest, list) = CertificateRevocationList::from_der(der).map_err(|_| RootListError::Malformed)?;
    // The algorithm stands in the list twice, and only one of the two is signed.
    if !rest.is_empty() || list.signature_algorithm != list.tbs_cert_list.signature {
        return Err(RootListError::Malformed);
    }
    let root = signer(der, &list, roots)?;
    if list.version() != Some(X509Version::V2) {
        return Err(RootListError::Version);
    }
    let number = check_extensions(&list)?;
    // By the library that reads lists in TLS, with rules of its own: a next update, no extension twice.
    webpki::BorrowedCertRevocationList::from_der(der).map_err(|_| RootListError::Malformed)?;
    if list.iter_revoked_certificates().count() > MAX_DENIED {
        return Err(RootListError::TooMany);
    }
    let denied = list.iter_revoked_certificates().map(denied).collect::<Result<_, _>>()?;
    Ok(RootListFacts { root, number, denied, this_update: x509_time::timestamp(list.last_update()) })
}

/// What a list of this root denies, each certificate since when, in the order of the list; and its number.
pub fn root_list_entries(der: &[u8], root: &[u8]) -> Result<(u64, Vec<(Serial, Timestamp)>), RootListError> {
    let number = read_root_list(der, &[root])?.number;
    let (_, list) = CertificateRevocationList::from_der(der).map_err(|_| RootListError::Malformed)?;
    let since =
        |entry: &RevokedCertificate<'_>| Ok((denied(entry)?, x509_time::timestamp(entry.revocation_date)));
    let entries = list.iter_revoked_certificates().map(since).collect::<Result<_, _>>()?;
    Ok((number, entries))
}

/// Which root signed it.
fn signer(der: &[u8], list: &CertificateRevocationList<'_>, roots: &[&[u8]]) -> Result<usize, RootListError> {
    let roots = roots.iter().enumerate();
    let mut known = roots.filter_map(|(place, der)| Some((place, X509Certificate::from_der(der).ok()?.1)));
    let signed = |root: &X509Certificate<'_>| {
        list.issuer().as_raw() == root.subject().as_raw() && is_signed_by(der, root.public_key().raw)
    };
    let (place, root) = known.find(|(_, root)| signed(root)).ok_or(RootListError::ForeignRoot)?;
    let rights = root.key_usage().map_err(|_| RootListError::MayNotSign)?;
    if rights.is_some_and(|rights| !rights.value.crl_sign()) {
        return Err(RootListError::MayNotSign);
    }
    Ok(place)
}

/// Nothing that narrows what the list is about; answers with its number.
fn check_extensions(list: &CertificateRevocationList<'_>) -> Result<u64, RootListError> {
    let mut number = None;
    for extension in list.extensions() {
        if extension.oid == OID_X509_EXT_DELTA_CRL_INDICATOR {
            return Err(RootListError::Delta);
        }
        if extension.oid == OID_X509_EXT_ISSUER_DISTRIBUTION_POINT {
            return Err(RootListError::Partial);
        }
        if extension.oid == OID_X509_EXT_CRL_NUMBER {
            number = match (number, extension.parsed_extension()) {
                (None, ParsedExtension::CRLNumber(stated)) => u64::try_from(stated).ok(),
                _ => None,
            };
            number.ok_or(RootListError::Number)?;
        } else if extension.critical {
            return Err(RootListError::Critical(extension.oid.to_id_string()));
        }
    }
    number.ok_or(RootListError::Number)
}

/// An entry that says another CA's certificate is meant does so in a critical extension.
fn denied(entry: &RevokedCertificate<'_>) -> Result<Serial, RootListError> {
    if let Some(critical) = entry.extensions().iter().find(|extension| extension.critical) {
        return Err(RootListError::Critical(critical.oid.to_id_string()));
    }
    if entry.reason_code().is_some_and(|(_, reason)| reason == ReasonCode::RemoveFromCRL) {
        return Err(RootListError::Delta);
    }
    Serial::from_bytes(entry.raw_serial()).map_err(|_| RootListError::Malformed)
}

#[cfg(test)]
mod tests {
    use lifecycle::names::{Span, TrustDomain};
    use rcgen::{
        CertificateParams, CertificateRevocationListParams, CrlDistributionPoint,
        CrlIssuingDistributionPoint, CrlScope, Issuer, KeyPair, KeyUsagePurpose, RevocationReason,
        RevokedCertParams, SerialNumber,
    };

    use super::*;
    use crate::crl::sign_root_list;
    use crate::issuer::SigningIssuer;
    use crate::{hierarchy, pem};

    const AT: Timestamp = Timestamp::from_secs(1_800_000_000);

    fn root() -> SigningIssuer {
        let domain = TrustDomain::parse("probectl").unwrap();
        let made = hierarchy::create(&domain, AT, [[1; 16], [2; 16], [3; 16]]).unwrap();
        let key = pem::private_key(made.root_key_pem.as_bytes()).unwrap();
        SigningIssuer::new(&made.root_der, key.secret_der()).unwrap()
    }

    fn serial(number: usize) -> Serial {
        Serial::parse(&format!("{number:x}")).unwrap()
    }

    fn list(root: &SigningIssuer, count: usize, number: u64) -> Vec<u8> {
        let denied: Vec<_> = (1..=count).map(|number| (serial(number), AT)).collect();
        sign_root_list(root, &denied, number, AT, root.not_after()).unwrap()
    }

    #[test]
    fn a_list_says_what_was_signed_and_by_which_root() {
        let (root, other) = (root(), root());
        let read = read_root_list(&list(&root, 3, u64::MAX), &[other.certificate(), root.certificate()]);
        let denied = vec![serial(1), serial(2), serial(3)];
        assert_eq!(read, Ok(RootListFacts { root: 1, number: u64::MAX, denied, this_update: AT }));
        let none = read_root_list(&list(&root, 0, 0), &[root.certificate()]).unwrap();
        assert_eq!((none.number, none.denied), (0, vec![]));
    }

    #[test]
    fn the_entries_of_a_list_are_carried_over_with_their_times() {
        let (root, other) = (root(), root());
        let later = AT.plus(Span::from_days(3));
        let denied = [(serial(1), AT), (serial(2), later)];
        let der = sign_root_list(&root, &denied, 8, later, root.not_after()).unwrap();
        assert_eq!(root_list_entries(&der, root.certificate()), Ok((8, denied.to_vec())));
        assert_eq!(root_list_entries(&der, other.certificate()), Err(RootListError::ForeignRoot));
    }

    #[test]
    fn a_list_of_another_root_or_of_nobody_is_refused() {
        let (root, other) = (root(), root());
        let der = list(&root, 1, 1);
        let read = |der: &[u8]| read_root_list(der, &[other.certificate(), b"unreadable"]);
        assert_eq!(read(&der), Err(RootListError::ForeignRoot), "the same name, another key");
        assert_eq!(read_root_list(&der, &[]), Err(RootListError::ForeignRoot));
        assert_eq!(read(b"no"), Err(RootListError::Malformed));
        for place in 0..der.len() {
            let mut changed = der.clone();
            changed[place] ^= 1;
            assert!(read_root_list(&changed, &[root.certificate()]).is_err(), "changed at {place}");
            assert!(read_root_list(&der[..place], &[root.certificate()]).is_err(), "cut at {place}");
        }
        let longer = [der.as_slice(), &[0]].concat();
        assert_eq!(read_root_list(&longer, &[root.certificate()]), Err(RootListError::Malformed));
    }

    #[test]
    fn a_list_that_nothing_could_follow_or_that_denies_its_root_is_not_taken() {
        let root = root();
        let check = |denied: &Serial, number| {
            let der = sign_root_list(&root, &[(denied.clone(), AT)], number, AT, root.not_after()).unwrap();
            read_root_list(&der, &[root.certificate()]).unwrap().check(root.certificate())
        };
        let own = crate::describe::facts(root.certificate()).unwrap().serial;
        assert_eq!(check(&serial(7), MAX_NUMBER), Ok(()));
        assert_eq!(check(&serial(7), MAX_NUMBER + 1), Err(RootListError::NumberTooHigh));
        assert_eq!(check(&serial(7), u64::MAX), Err(RootListError::NumberTooHigh));
        assert_eq!(check(&own, 1), Err(RootListError::DeniesItsRoot));
    }

    #[test]
    fn a_list_is_bounded() {
        let root = root();
        let read = |count| read_root_list(&list(&root, count, 1), &[root.certificate()]);
        assert_eq!(read(256).unwrap().denied.len(), 256);
        assert_eq!(read(257), Err(RootListError::TooMany));
        assert_eq!(read(5000), Err(RootListError::TooLong));
    }

    /// A list by another CA's software, as a test wants it.
    fn check(
        change: impl FnOnce(&mut CertificateRevocationListParams),
        usages: Vec<KeyUsagePurpose>,
    ) -> Option<RootListError> {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.key_usages = usages;
        let root = params.self_signed(&key).unwrap();
        params.key_usages.clear();
        let mut list = CertificateRevocationListParams {
            this_update: x509_time::date_time(AT),
            next_update: x509_time::date_time(AT.plus(Span::from_days(1))),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: Vec::new(),
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        change(&mut list);
        let list = list.signed_by(&Issuer::new(params, key)).unwrap();
        read_root_list(list.der(), &[root.der()]).err()
    }

    #[test]
    fn a_list_that_says_less_than_it_seems_is_refused() {
        assert_eq!(check(|_| (), vec![]), None);
        let no_right = check(|_| (), vec![KeyUsagePurpose::KeyCertSign]);
        assert_eq!(no_right, Some(RootListError::MayNotSign));
        let huge = |list: &mut CertificateRevocationListParams| {
            list.crl_number = SerialNumber::from_slice(&[1, 0, 0, 0, 0, 0, 0, 0, 0]);
        };
        assert_eq!(check(huge, vec![]), Some(RootListError::Number));
        let partial = |list: &mut CertificateRevocationListParams| {
            list.issuing_distribution_point = Some(CrlIssuingDistributionPoint {
                distribution_point: CrlDistributionPoint { uris: vec!["http://there.example".to_owned()] },
                scope: Some(CrlScope::UserCertsOnly),
            });
        };
        assert_eq!(check(partial, vec![]), Some(RootListError::Partial));
        let removed = |list: &mut CertificateRevocationListParams| {
            list.revoked_certs.push(RevokedCertParams {
                serial_number: SerialNumber::from(7),
                revocation_time: x509_time::date_time(AT),
                reason_code: Some(RevocationReason::RemoveFromCrl),
                invalidity_date: None,
            });
        };
        assert_eq!(check(removed, vec![]), Some(RootListError::Delta));
    }
}
