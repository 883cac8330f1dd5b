//! Lists of revoked certificates (RFC 5280, version 2): one list per issuer, whole every time; and one list per root, of
//! the issuers below it that hosts must not trust any more.

use lifecycle::names::{Serial, Span, Timestamp};
use rcgen::{CertificateRevocationListParams, RevocationReason, RevokedCertParams, SerialNumber};

use crate::certificate::{SignError, with_issuer_name};
use crate::issuer::SigningIssuer;
pub use crate::root_list::{MAX_NUMBER, RootListError, RootListFacts, read_root_list, root_list_entries};
use crate::x509_time;

/// How long a list is good. It is signed again daily, so that a verifier survives some days without.
pub const LIFETIME: Span = Span::from_days(7);

/// Version and algorithm.
const BEFORE_ISSUER: usize = 2;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CrlError {
    #[error("this CA certificate's keyUsage does not allow signing revocation lists")]
    MayNotSign,
    #[error("the list would end before it begins")]
    NoLifetime,
    #[error(transparent)]
    Sign(#[from] SignError),
}

/// Why a certificate was taken back, as far as Enlist knows reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrlReason {
    /// Written by leaving the reason out.
    Unspecified,
    KeyCompromise,
    AffiliationChanged,
    Superseded,
    CessationOfOperation,
    PrivilegeWithdrawn,
}

/// One certificate that must not be accepted any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revoked {
    pub serial: Serial,
    pub at: Timestamp,
    pub reason: CrlReason,
}

/// What a list says besides who says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// In any order. Of a serial named twice, the earlier revocation counts.
    pub revoked: Vec<Revoked>,
    /// Higher than in every earlier list of this issuer.
    pub number: u64,
    pub this_update: Timestamp,
    /// Usually [`LIFETIME`] later.
    pub next_update: Timestamp,
}

/// Builds and signs the list, in DER.
pub fn sign_crl(issuer: &SigningIssuer, contents: Contents) -> Result<Vec<u8>, CrlError> {
    if !issuer.may_sign_crls() {
        return Err(CrlError::MayNotSign);
    }
    let Contents { mut revoked, number, this_update, next_update } = contents;
    if next_update.secs() <= this_update.secs() {
        return Err(CrlError::NoLifetime);
    }
    revoked.sort_unstable_by(|a, b| order(a).cmp(&order(b)));
    revoked.dedup_by(|later, earlier| later.serial == earlier.serial);
    let params = CertificateRevocationListParams {
        this_update: x509_time::date_time(this_update),
        next_update: x509_time::date_time(next_update),
        crl_number: SerialNumber::from(number),
        issuing_distribution_point: None,
        revoked_certs: revoked.iter().map(entry).collect::<Result<_, _>>()?,
        key_identifier_method: issuer.key_id().clone(),
    };
    let unsigned = params.signed_by(issuer.template()).map_err(SignError::from)?;
    Ok(with_issuer_name(unsigned.der(), BEFORE_ISSUER, issuer)?)
}

/// Signs the list of the issuers below a root that must not be trusted any more, each since a moment. Hosts keep the list
/// of the highest number and do not enforce `next_update`: a list has to hold until the root ends.
pub fn sign_root_list(
    root: &SigningIssuer,
    denied: &[(Serial, Timestamp)],
    number: u64,
    this_update: Timestamp,
    next_update: Timestamp,
) -> Result<Vec<u8>, CrlError> {
    let entry = |(serial, at): &(Serial, Timestamp)| Revoked {
        serial: serial.clone(),
        at: *at,
        reason: CrlReason::Unspecified,
    };
    let revoked = denied.iter().map(entry).collect();
    sign_crl(root, Contents { revoked, number, this_update, next_update })
}

/// The number of a root's first list. Every list that follows has a higher one, whatever the clock says that signs it.
pub const FIRST_NUMBER: u64 = 0;

/// Signs the list that a root begins with, which denies nobody: verifiers that check revocation want a list of every CA of a chain.
pub fn sign_first_root_list(root: &SigningIssuer, at: Timestamp) -> Result<Vec<u8>, CrlError> {
    sign_root_list(root, &[], FIRST_NUMBER, at.whole_second(), root.not_after())
}

/// By number (a serial has no leading zeros, so the shorter one is smaller), then by time.
fn order(revoked: &Revoked) -> (usize, &str, Timestamp) {
    let digits = revoked.serial.as_str();
    (digits.len(), digits, revoked.at)
}

fn entry(revoked: &Revoked) -> Result<RevokedCertParams, SignError> {
    let digits = revoked.serial.as_str();
    let even = if digits.len().is_multiple_of(2) { digits.to_owned() } else { format!("0{digits}") };
    let octets = hex::decode(even).map_err(|error| SignError::Build(error.to_string()))?;
    Ok(RevokedCertParams {
        serial_number: SerialNumber::from_slice(&octets),
        revocation_time: x509_time::date_time(revoked.at),
        reason_code: code(revoked.reason),
        invalidity_date: None,
    })
}

fn code(reason: CrlReason) -> Option<RevocationReason> {
    match reason {
        CrlReason::Unspecified => None,
        CrlReason::KeyCompromise => Some(RevocationReason::KeyCompromise),
        CrlReason::AffiliationChanged => Some(RevocationReason::AffiliationChanged),
        CrlReason::Superseded => Some(RevocationReason::Superseded),
        CrlReason::CessationOfOperation => Some(RevocationReason::CessationOfOperation),
        CrlReason::PrivilegeWithdrawn => Some(RevocationReason::PrivilegeWithdrawn),
    }
}

#[cfg(test)]
mod tests {
    use lifecycle::names::TrustDomain;
    use x509_parser::prelude::FromDer as _;
    use x509_parser::revocation_list::CertificateRevocationList;

    use super::*;
    use crate::hierarchy;

    const AT: Timestamp = Timestamp::from_secs(1_800_000_000);

    fn issuer() -> SigningIssuer {
        let domain = TrustDomain::parse("probectl").unwrap();
        let made = hierarchy::create(&domain, AT, [[1; 16], [2; 16], [3; 16]]).unwrap();
        SigningIssuer::new(&made.node.der, &made.node.key).unwrap()
    }

    fn contents(revoked: Vec<Revoked>) -> Contents {
        Contents { revoked, number: 7, this_update: AT, next_update: AT.plus(LIFETIME) }
    }

    fn revoked(serial: &str, at: Timestamp) -> Revoked {
        Revoked { serial: Serial::parse(serial).unwrap(), at, reason: CrlReason::Unspecified }
    }

    #[test]
    fn entries_come_in_order_and_once_with_the_earlier_time() {
        let later = AT.plus(Span::from_hours(1));
        let list = vec![revoked("100", later), revoked("ff", later), revoked("2", AT), revoked("100", AT)];
        let der = sign_crl(&issuer(), contents(list)).unwrap();
        let (_, list) = CertificateRevocationList::from_der(&der).unwrap();
        let entries: Vec<(Vec<u8>, Timestamp)> = list
            .iter_revoked_certificates()
            .map(|entry| (entry.raw_serial().to_vec(), x509_time::timestamp(entry.revocation_date)))
            .collect();
        assert_eq!(entries, [(vec![2], AT), (vec![0, 0xff], later), (vec![1, 0], AT)]);
    }

    #[test]
    fn a_list_needs_a_lifetime() {
        let list = Contents { next_update: AT.plus(Span::from_millis(999)), ..contents(vec![]) };
        assert_eq!(sign_crl(&issuer(), list), Err(CrlError::NoLifetime));
    }
}
