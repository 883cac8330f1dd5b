//! Whether a trust bundle may take the place of another: what is trusted now must vouch for what is trusted next.
//!
//! A new root therefore comes signed by the old one first, beside it; then as itself; and then alone.

use lifecycle::names::Timestamp;
use rustls_pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

use crate::verify::is_issued_by;
use crate::x509_time;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SuccessionError {
    #[error("certificate {0} cannot be read")]
    Unreadable(usize),
    #[error("certificate {0} is not a CA's")]
    NotCa(usize),
    #[error("nothing that is trusted now has signed certificate {0}")]
    Stranger(usize),
    #[error("no CA that is trusted now, and in date, is left in it")]
    NoneLeft,
}

/// Checks every certificate of the next bundle against the current one.
pub fn check_succession(
    current: &[CertificateDer<'_>],
    next: &[CertificateDer<'_>],
    at: Timestamp,
) -> Result<(), SuccessionError> {
    // What cannot be read vouches for nothing.
    let current: Vec<TrustedCa<'_>> = current.iter().filter_map(TrustedCa::read).collect();
    let mut left = false;
    for (place, der) in (1..).zip(next) {
        let ca = TrustedCa::read(der).ok_or(SuccessionError::Unreadable(place))?;
        if !ca.parsed.is_ca() {
            return Err(SuccessionError::NotCa(place));
        }
        if !current.iter().any(|known| known.der == ca.der || known.may_introduce(&ca, at)) {
            return Err(SuccessionError::Stranger(place));
        }
        left |= ca.is_in_date(at) && current.iter().any(|known| known.is_same(&ca) && known.is_in_date(at));
    }
    if left { Ok(()) } else { Err(SuccessionError::NoneLeft) }
}

/// The same for a host that may have missed steps, and for what an operator named, which may be an intermediate alone: a
/// certificate of `next` vouches for others there once it is vouched for itself, and the CA that issued a known one is
/// known with it.
pub fn check_introduction(
    known: &[CertificateDer<'_>],
    next: &[CertificateDer<'_>],
    at: Timestamp,
) -> Result<(), SuccessionError> {
    let issued_known = |der: &&CertificateDer<'_>| known.iter().any(|ca| is_issued_by(ca, der));
    let issuers: Vec<CertificateDer<'_>> = next.iter().filter(issued_known).cloned().collect();
    let mut known: Vec<CertificateDer<'_>> = known.iter().cloned().chain(issuers).collect();
    // Each round finds one more at least, and there are as many as there are certificates.
    for _ in next {
        let trusted: Vec<TrustedCa<'_>> = known.iter().filter_map(TrustedCa::read).collect();
        let vouched = |der: &&CertificateDer<'_>| {
            let introduced = |ca: TrustedCa<'_>| {
                ca.parsed.is_ca() && trusted.iter().any(|known| known.may_introduce(&ca, at))
            };
            !known.contains(der) && TrustedCa::read(der).is_some_and(introduced)
        };
        let Some(more) = next.iter().find(vouched).cloned() else { break };
        known.push(more);
    }
    check_succession(&known, next, at)
}

/// Those of `current` that are in date, may introduce other CAs, and are missing in `next`.
pub fn left_out<'a>(
    current: &[CertificateDer<'a>],
    next: &[CertificateDer<'_>],
    at: Timestamp,
) -> Vec<CertificateDer<'a>> {
    let missing = |der: &&CertificateDer<'a>| {
        let introduces = |ca: TrustedCa<'_>| ca.is_in_date(at) && ca.path_length() > 0;
        !next.contains(der) && TrustedCa::read(der).is_some_and(introduces)
    };
    current.iter().filter(missing).cloned().collect()
}

struct TrustedCa<'a> {
    der: &'a CertificateDer<'a>,
    parsed: X509Certificate<'a>,
}

impl<'a> TrustedCa<'a> {
    fn read(der: &'a CertificateDer<'a>) -> Option<Self> {
        let (rest, parsed) = X509Certificate::from_der(der).ok()?;
        rest.is_empty().then_some(Self { der, parsed })
    }

    /// The same CA, perhaps in another certificate.
    fn is_same(&self, other: &Self) -> bool {
        self.parsed.subject() == other.parsed.subject()
            && self.parsed.public_key().raw == other.parsed.public_key().raw
    }

    fn is_in_date(&self, at: Timestamp) -> bool {
        at <= x509_time::timestamp(self.parsed.validity().not_after)
    }

    /// How many CAs may follow below it.
    fn path_length(&self) -> u32 {
        let constraints = self.parsed.basic_constraints().ok().flatten();
        constraints.map_or(0, |found| found.value.path_len_constraint.unwrap_or(u32::MAX))
    }

    /// A CA that may have no other below it speaks for itself alone, and gives itself no more rights.
    fn may_introduce(&self, other: &Self, at: Timestamp) -> bool {
        let may = if self.is_same(other) {
            other.path_length() <= self.path_length()
        } else {
            self.path_length() > 0
        };
        may && self.parsed.is_ca() && self.is_in_date(at) && is_issued_by(other.der, self.der)
    }
}

#[cfg(test)]
mod tests {
    use lifecycle::names::{Span, TrustDomain};
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

    use super::*;

    const AT: Timestamp = Timestamp::from_secs(1_800_000_000);

    /// A CA by its name, with so many below it.
    struct TestCa {
        key: KeyPair,
        params: CertificateParams,
    }

    impl TestCa {
        fn new(name: &str, below: Option<u8>) -> Self {
            let mut params = CertificateParams::default();
            params.distinguished_name.push(rcgen::DnType::CommonName, name);
            let constraints = below.map_or(BasicConstraints::Unconstrained, BasicConstraints::Constrained);
            params.is_ca = IsCa::Ca(constraints);
            Self { key: KeyPair::generate().unwrap(), params }
        }

        fn with(&self, is_ca: IsCa) -> Self {
            let key = KeyPair::try_from(self.key.serialize_der()).unwrap();
            let mut params = self.params.clone();
            params.is_ca = is_ca;
            Self { key, params }
        }

        fn root(&self) -> CertificateDer<'static> {
            self.params.self_signed(&self.key).unwrap().der().clone()
        }

        fn by(&self, other: &Self) -> CertificateDer<'static> {
            let issuer = Issuer::from_params(&other.params, &other.key);
            self.params.signed_by(&self.key, &issuer).unwrap().der().clone()
        }
    }

    #[test]
    fn a_new_root_comes_in_steps_each_vouched_for_by_the_last() {
        let (old, new) = (TestCa::new("old", Some(1)), TestCa::new("new", Some(1)));
        let bundles = [
            vec![old.root()],
            vec![old.root(), new.by(&old)],
            vec![old.root(), new.root()],
            vec![new.root()],
        ];
        for (before, after) in bundles.iter().zip(bundles.iter().skip(1)) {
            assert_eq!(check_succession(before, after, AT), Ok(()));
        }
        let [first, .., last] = &bundles;
        assert_eq!(check_succession(first, last, AT), Err(SuccessionError::Stranger(1)));
        assert_eq!(check_succession(first, &bundles[2], AT), Err(SuccessionError::Stranger(2)));
    }

    #[test]
    fn whoever_missed_the_steps_follows_them_in_one_bundle_and_no_other_way() {
        let (old, new) = (TestCa::new("old", Some(1)), TestCa::new("new", Some(1)));
        let below = TestCa::new("below", Some(0));
        let check =
            |known: &[CertificateDer<'_>], next: &[CertificateDer<'_>]| check_introduction(known, next, AT);
        assert_eq!(check(&[old.root()], &[new.root(), new.by(&old)]), Ok(()));
        assert_eq!(check(&[below.by(&old)], &[old.root()]), Ok(()), "an intermediate that an operator named");
        let foreign = Err(SuccessionError::Stranger(1));
        assert_eq!(check(&[old.root()], &[new.root(), old.root()]), foreign);
        // With the key of the intermediate alone.
        assert_eq!(check(&[old.root(), below.by(&old)], &[new.by(&below), below.by(&old)]), foreign);
        assert_eq!(check(&[], &[new.root()]), foreign);
    }

    #[test]
    fn what_may_introduce_others_is_missed_until_it_ends() {
        let (old, new) = (TestCa::new("old", Some(1)), TestCa::new("new", Some(1)));
        let below = TestCa::new("below", Some(0)).by(&old);
        // Signed anew, a certificate is another one.
        let current = [old.root(), new.root(), below];
        assert_eq!(left_out(&current, &current[1..2], AT), current[..1]);
        assert_eq!(left_out(&current, &[], AT.plus(Span::from_days(1_000_000))), []);
    }

    #[test]
    fn a_stranger_is_never_trusted_whatever_it_is_called() {
        let (old, same_name) = (TestCa::new("old", Some(1)), TestCa::new("old", Some(1)));
        let check = |next: &[CertificateDer<'_>]| check_succession(&[old.root()], next, AT);
        assert_eq!(check(&[old.root(), same_name.root()]), Err(SuccessionError::Stranger(2)));
        assert_eq!(
            check(&[old.root(), TestCa::new("x", None).by(&same_name)]),
            Err(SuccessionError::Stranger(2))
        );
        let leaf = TestCa::new("leaf", None).with(IsCa::ExplicitNoCa);
        assert_eq!(check(&[old.root(), leaf.by(&old)]), Err(SuccessionError::NotCa(2)));
        assert_eq!(check(&[CertificateDer::from(&b"0"[..])]), Err(SuccessionError::Unreadable(1)));
    }

    #[test]
    fn an_intermediate_lets_nobody_in_and_widens_nothing() {
        let (root, below) = (TestCa::new("root", Some(1)), TestCa::new("below", Some(0)));
        let current = [root.root(), below.by(&root)];
        assert_eq!(check_succession(&current[..1], &current, AT), Ok(()));
        let evil = TestCa::new("evil", None).by(&below);
        let check = |more: CertificateDer<'static>| check_succession(&current, &[root.root(), more], AT);
        assert_eq!(check(evil), Err(SuccessionError::Stranger(2)));
        let wider = below.with(IsCa::Ca(BasicConstraints::Unconstrained));
        assert_eq!(check(wider.root()), Err(SuccessionError::Stranger(2)));
        assert_eq!(check(below.root()), Ok(()));
    }

    #[test]
    fn one_that_is_trusted_and_in_date_remains() {
        let (old, new) = (TestCa::new("old", Some(1)), TestCa::new("new", Some(1)));
        let none = Err(SuccessionError::NoneLeft);
        assert_eq!(check_succession(&[old.root()], &[new.by(&old)], AT), none);
        assert_eq!(check_succession(&[old.root()], &[], AT), none);
        let domain = TrustDomain::parse("d.example").unwrap();
        let made = crate::hierarchy::create(&domain, AT, [[1; 16], [2; 16]]).unwrap();
        let roots = [CertificateDer::from(made.root_der)];
        assert_eq!(check_succession(&roots, &roots, AT), Ok(()));
        assert_eq!(check_succession(&roots, &roots, AT.plus(Span::from_days(4000))), none);
    }
}
