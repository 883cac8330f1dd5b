//! A node's certificate.

use lifecycle::names::{Span, SpiffeId, Timestamp};
use rcgen::{ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose, SanType};

pub use crate::certificate::{SignError, Signed};
use crate::certificate::{Validity, blank, common_name, sign};
use crate::issuer::SigningIssuer;
use crate::spki::PublicKey;
use crate::x509_time::LEAF_BACKDATE;

/// What the registry has decided to certify.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issuance {
    /// The name that counts.
    pub subject: SpiffeId,
    /// Cosmetic. Longer than 64 bytes, it is left out and the SAN becomes critical.
    pub common_name: Option<String>,
    /// Random octets, from the caller.
    pub serial: [u8; 16],
    pub signing_time: Timestamp,
    pub lifetime: Span,
}

/// Certifies `spki` (as [`crate::csr::VerifiedCsr`] holds it) for client authentication and nothing else.
pub fn sign_leaf(issuer: &SigningIssuer, spki: &[u8], issuance: &Issuance) -> Result<Signed, SignError> {
    let key = PublicKey::read(spki)?;
    let validity = validity(issuer, issuance.signing_time, issuance.lifetime)?;
    let mut params = blank(issuance.serial, validity);
    params.distinguished_name = common_name(issuance.common_name.as_deref());
    params.subject_alt_names = vec![SanType::URI(issuance.subject.to_string().try_into()?)];
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    sign(issuer, &key, params, validity)
}

/// From a minute before signing until the lifetime or the issuer ends.
pub(crate) fn validity(issuer: &SigningIssuer, at: Timestamp, lifetime: Span) -> Result<Validity, SignError> {
    if at < issuer.not_before() {
        return Err(SignError::IssuerNotYetValid(issuer.not_before()));
    }
    if at >= issuer.not_after() {
        return Err(SignError::IssuerExpired(issuer.not_after()));
    }
    let at = at.whole_second();
    let not_after = at.plus(lifetime).min(issuer.not_after()).whole_second();
    if not_after <= at {
        return Err(SignError::NoLifetime);
    }
    Ok(Validity { not_before: at.minus(LEAF_BACKDATE), not_after })
}

#[cfg(test)]
mod tests {
    use lifecycle::names::TrustDomain;

    use super::*;
    use crate::{agent_key::HostKey, describe, hierarchy};

    const AT: Timestamp = Timestamp::from_millis(1_800_000_000_750);

    fn issuer() -> SigningIssuer {
        let domain = TrustDomain::parse("probectl").unwrap();
        let made = hierarchy::create(&domain, AT, [[1; 16], [2; 16], [3; 16]]).unwrap();
        SigningIssuer::new(&made.node.der, &made.node.key).unwrap()
    }

    fn issuance(common_name: Option<&str>, at: Timestamp, lifetime: Span) -> Issuance {
        let subject = SpiffeId::parse("spiffe://probectl/tenant/default/agent/n-1").unwrap();
        let common_name = common_name.map(str::to_owned);
        Issuance { subject, common_name, serial: [0xff; 16], signing_time: at, lifetime }
    }

    #[test]
    fn what_is_reported_is_what_the_certificate_says() {
        let spki = HostKey::generate().unwrap().spki();
        let signed =
            sign_leaf(&issuer(), &spki, &issuance(Some("worker:n-1"), AT, Span::from_hours(24))).unwrap();
        let facts = describe::facts(&signed.der).unwrap();
        assert_eq!(facts.serial, signed.serial);
        assert_eq!(facts.serial.as_str().len(), 32);
        assert_eq!(facts.fingerprint, signed.fingerprint);
        assert_eq!((facts.not_before, facts.not_after), (signed.not_before, signed.not_after));
        assert_eq!(signed.not_before, Timestamp::from_secs(1_800_000_000 - 60));
        assert_eq!(signed.not_after, Timestamp::from_secs(1_800_000_000 + 86_400));
        assert_eq!(facts.spki, spki);
        assert_eq!(facts.common_name.as_deref(), Some("worker:n-1"));
        assert_eq!(facts.spiffe.unwrap().to_string(), "spiffe://probectl/tenant/default/agent/n-1");
        assert!(!facts.is_ca);
    }

    #[test]
    fn a_leaf_never_outlives_its_issuer() {
        let issuer = issuer();
        let spki = HostKey::generate().unwrap().spki();
        let sign = |at, lifetime| sign_leaf(&issuer, &spki, &issuance(None, at, lifetime));
        let long = sign(AT, Span::from_days(10_000)).unwrap();
        assert_eq!(long.not_after, issuer.not_after());
        let end = issuer.not_after();
        assert_eq!(sign(end, Span::from_days(1)).unwrap_err(), SignError::IssuerExpired(end));
        let early = issuer.not_before().minus(Span::from_secs(1));
        assert_eq!(
            sign(early, Span::from_days(1)).unwrap_err(),
            SignError::IssuerNotYetValid(issuer.not_before())
        );
        assert_eq!(sign(AT, Span::from_millis(1)).unwrap_err(), SignError::NoLifetime);
    }

    #[test]
    fn a_common_name_that_does_not_fit_is_left_out() {
        let issuer = issuer();
        let spki = HostKey::generate().unwrap().spki();
        let long = "x".repeat(65);
        for name in [None, Some(""), Some(long.as_str())] {
            let signed = sign_leaf(&issuer, &spki, &issuance(name, AT, Span::from_hours(1))).unwrap();
            let facts = describe::facts(&signed.der).unwrap();
            assert_eq!((facts.common_name, facts.subject.as_str()), (None, ""));
        }
    }
}
