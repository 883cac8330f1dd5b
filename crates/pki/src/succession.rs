//! Whether a trust bundle may take the place of another: what is trusted now must vouch for what is trusted next.
//!
//! A new root therefore comes with its cross-certificate, which the old one has signed.

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

/// A root, or a root's cross-certificate: in both, subject and issuer are one name.
fn is_self_issued(der: &CertificateDer<'_>) -> bool {
    TrustedCa::read(der).is_some_and(|ca| ca.parsed.subject() == ca.parsed.issuer())
}

/// The roots of an offered bundle that a host may trust next. Only roots are ever stored, each of them known already or vouched for
/// by a root that is: whatever else is below a root may be in wrong hands.
///
/// - A root that is known, or the same root signed anew by its own key.
/// - The root above an intermediate that an operator named.
/// - A root with a cross-certificate in the offer that a trusted root has signed, or a root that is trusted in this way: whoever missed
///   two rolls follows both cross-certificates. An issuer's certificate is none: it may have no CA below it, or says what it is for.
///
/// A cross-certificate that is denied, by the list of the root that signed it, vouches for nothing.
///
/// What was before a known root, because it has signed a cross-certificate of that one, is not needed and left out.
pub fn roots_to_follow<'a>(
    known: &[CertificateDer<'_>],
    offered: &[CertificateDer<'a>],
    is_denied: impl Fn(&CertificateDer<'_>) -> bool,
    at: Timestamp,
) -> Result<Vec<CertificateDer<'a>>, SuccessionError> {
    let known: Vec<TrustedCa<'_>> = known.iter().filter_map(TrustedCa::read).collect();
    let mut cas = Vec::new();
    for (place, der) in (1..).zip(offered) {
        let ca = TrustedCa::read(der).ok_or(SuccessionError::Unreadable(place))?;
        if !ca.parsed.is_ca() {
            return Err(SuccessionError::NotCa(place));
        }
        cas.push((place, ca));
    }
    let offered_cas = || cas.iter().map(|(_, ca)| ca).filter(|ca| ca.is_root() || ca.is_cross());
    // Roots, and cross-certificates of roots that may not be in the offer themselves.
    let mut vouching: Vec<&TrustedCa<'_>> = known.iter().filter(|ca| ca.is_root()).collect();
    grow(&mut vouching, offered_cas, |ca, vouching| {
        if ca.is_root() {
            is_above(&known, ca) || ca.follows(vouching, at)
        } else {
            ca.is_vouched(vouching, at) && !is_denied(ca.der)
        }
    });
    let crosses: Vec<&TrustedCa<'_>> = offered_cas().filter(|ca| ca.is_cross()).collect();
    // The same and what was before them.
    let mut known_of = vouching.clone();
    grow(&mut known_of, offered_cas, |ca, known_of| {
        let of_known = |cross: &&&TrustedCa<'_>| known_of.iter().any(|root| root.is_same(cross));
        let is_cross_of_known = ca.is_cross() && of_known(&&ca);
        is_cross_of_known || crosses.iter().filter(of_known).any(|cross| is_issued_by(cross.der, ca.der))
    });
    let mut roots = Vec::new();
    for (place, ca) in &cas {
        let is_below = || !ca.is_root() && vouching.iter().any(|root| is_issued_by(ca.der, root.der));
        if ca.is_root() && ca.is_among(&vouching) {
            roots.extend(offered.get(place - 1).cloned());
        } else if !ca.is_among(&known_of) && !is_below() {
            return Err(SuccessionError::Stranger(*place));
        }
    }
    let in_date = |der: &CertificateDer<'_>| TrustedCa::read(der).is_some_and(|ca| ca.is_in_date(at));
    if roots.iter().any(in_date) { Ok(roots) } else { Err(SuccessionError::NoneLeft) }
}

/// Adds those that belong to the others, until there is none.
fn grow<'a, I: Iterator<Item = &'a TrustedCa<'a>>>(
    found: &mut Vec<&'a TrustedCa<'a>>,
    candidates: impl Fn() -> I,
    belongs: impl Fn(&'a TrustedCa<'a>, &[&'a TrustedCa<'a>]) -> bool,
) {
    while let Some(more) = candidates().find(|ca| !ca.is_among(found) && belongs(ca, found)) {
        found.push(more);
    }
}

/// The same where nothing may be known by name, because the server itself was pinned or the system's roots were chosen: then there is
/// nothing to hold the offer against.
pub fn vouched<'a>(
    known: &[CertificateDer<'_>],
    offered: &[CertificateDer<'a>],
    is_denied: impl Fn(&CertificateDer<'_>) -> bool,
    at: Timestamp,
) -> Result<Vec<CertificateDer<'a>>, SuccessionError> {
    if known.is_empty() {
        return Ok(without_cross_certificates(offered));
    }
    roots_to_follow(known, offered, is_denied, at)
}

/// Whether it issued a CA that an operator named, a cross-certificate not counted: that would bring back the root which signed it.
fn is_above(known: &[TrustedCa<'_>], root: &TrustedCa<'_>) -> bool {
    known.iter().any(|ca| !is_self_issued(ca.der) && is_issued_by(ca.der, root.der))
}

/// A bundle without the cross-certificates of roots that are in it themselves: once a new root is trusted, what the old one
/// said of it adds nothing.
pub fn without_cross_certificates<'a>(bundle: &[CertificateDer<'a>]) -> Vec<CertificateDer<'a>> {
    let cas: Vec<TrustedCa<'_>> = bundle.iter().filter_map(TrustedCa::read).collect();
    let roots: Vec<&TrustedCa<'_>> = cas.iter().filter(|ca| is_issued_by(ca.der, ca.der)).collect();
    let is_cross = |der: &CertificateDer<'_>| {
        TrustedCa::read(der)
            .is_some_and(|ca| !is_issued_by(der, der) && roots.iter().any(|root| root.is_same(&ca)))
    };
    bundle.iter().filter(|der| !is_cross(der)).cloned().collect()
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

    /// Whether it is self-signed.
    fn is_root(&self) -> bool {
        is_issued_by(self.der, self.der)
    }

    /// Whether it is of the shape of a root that another root has certified: of one name with it, with CAs below it, and for no
    /// use of its own.
    fn is_cross(&self) -> bool {
        let states_no_use =
            crate::extended_use::of_certificate(&self.parsed).is_ok_and(|uses| uses.is_none());
        self.parsed.subject() == self.parsed.issuer()
            && !self.is_root()
            && self.parsed.is_ca()
            && self.path_length() > 0
            && states_no_use
    }

    /// Whether it is one of these, in the same certificate.
    fn is_among(&self, cas: &[&TrustedCa<'_>]) -> bool {
        cas.iter().any(|ca| ca.der == self.der)
    }

    /// Whether this root is one of these, signed anew, or in a cross-certificate.
    fn follows(&self, vouching: &[&TrustedCa<'_>], at: Timestamp) -> bool {
        let is_same = |ca: &&TrustedCa<'_>| {
            let is_no_wider = ca.is_cross() || self.path_length() <= ca.path_length();
            ca.is_same(self) && is_no_wider && ca.is_in_date(at)
        };
        self.parsed.is_ca() && vouching.iter().any(is_same)
    }

    /// Whether one of these has signed this cross-certificate.
    fn is_vouched(&self, vouching: &[&TrustedCa<'_>], at: Timestamp) -> bool {
        let has_signed =
            |ca: &&TrustedCa<'_>| ca.path_length() > 0 && ca.is_in_date(at) && is_issued_by(self.der, ca.der);
        self.is_in_date(at) && vouching.iter().any(has_signed)
    }

    /// How many CAs may follow below it.
    fn path_length(&self) -> u32 {
        let constraints = self.parsed.basic_constraints().ok().flatten();
        constraints.map_or(0, |found| found.value.path_len_constraint.unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use lifecycle::names::Span;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

    use super::*;

    const AT: Timestamp = Timestamp::from_secs(1_800_000_000);
    /// Nothing is denied.
    const NONE: fn(&CertificateDer<'_>) -> bool = |_| false;

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
    fn a_cross_certificate_is_left_out_where_its_root_is() {
        let (old, new) = (TestCa::new("root", Some(1)), TestCa::new("root", Some(1)));
        let below = TestCa::new("below", Some(0)).by(&new);
        let (old_root, new_root, cross) = (old.root(), new.root(), new.by(&old));
        let check = |bundle: &[&CertificateDer<'static>], expected: &[&CertificateDer<'static>]| {
            let bundle: Vec<_> = bundle.iter().map(|der| (*der).clone()).collect();
            let kept = without_cross_certificates(&bundle);
            assert!(kept.iter().eq(expected.iter().copied()), "{} of {}", kept.len(), bundle.len());
        };
        check(&[&old_root, &cross, &new_root, &below], &[&old_root, &new_root, &below]);
        check(&[&old_root, &cross], &[&old_root, &cross]);
        check(&[&new_root], &[&new_root]);
        check(&[], &[]);
    }

    #[test]
    fn a_host_follows_a_root_that_its_own_has_cross_signed_and_stores_roots_alone() {
        let (old, new) = (TestCa::new("root", Some(1)), TestCa::new("root", Some(1)));
        let (first, cross, second) = (old.root(), new.by(&old), new.root());
        let follow = |known: &[CertificateDer<'static>], offered: &[CertificateDer<'static>]| {
            roots_to_follow(known, offered, NONE, AT)
        };
        let both = vec![first.clone(), second.clone()];
        assert_eq!(follow(&both[..1], &[first.clone(), second.clone(), cross.clone()]), Ok(both.clone()));
        assert_eq!(follow(&both[..1], &[second.clone(), cross.clone()]), Ok(vec![second.clone()]));
        assert_eq!(
            follow(&both[..1], &both),
            Err(SuccessionError::Stranger(2)),
            "without its cross-certificate"
        );
        // Who knows the new root alone needs no predecessor of it, and is not disturbed by one that nobody knows any more.
        let known = vec![second.clone()];
        assert_eq!(follow(&known, &[first.clone(), second.clone(), cross.clone()]), Ok(known.clone()));
        let third = TestCa::new("root", Some(1));
        let offered = [second.clone(), third.root(), cross, third.by(&new)];
        assert_eq!(follow(&known, &offered), Ok(vec![second, offered[1].clone()]));
        let thief = TestCa::new("root", Some(1));
        assert_eq!(follow(&known, &[thief.root(), thief.by(&thief)]), Err(SuccessionError::Stranger(1)));
        assert_eq!(follow(&[], &[thief.root()]), Err(SuccessionError::Stranger(1)));
    }

    #[test]
    fn who_missed_two_rolls_follows_both_and_who_missed_none_is_not_disturbed() {
        let [first, second, third, thief] = [(); 4].map(|()| TestCa::new("root", Some(1)));
        let roots = [first.root(), second.root(), third.root()];
        let offered = [roots[2].clone(), second.by(&first), third.by(&second)];
        for known in &roots {
            let known = std::slice::from_ref(known);
            assert_eq!(roots_to_follow(known, &offered, NONE, AT), Ok(vec![roots[2].clone()]));
        }
        // Without the first step there is no second.
        let second_step = [offered[0].clone(), offered[2].clone()];
        assert_eq!(roots_to_follow(&roots[..1], &second_step, NONE, AT), Err(SuccessionError::Stranger(1)));
        let stolen =
            [offered[0].clone(), thief.root(), thief.by(&second), offered[1].clone(), offered[2].clone()];
        // The key of the second root is of no use where that is not trusted any more.
        assert_eq!(roots_to_follow(&roots[2..], &stolen, NONE, AT), Err(SuccessionError::Stranger(2)));
        // Nor does a cross-certificate of a known root make its signer one.
        let forged = [offered[0].clone(), thief.root(), third.by(&thief)];
        assert_eq!(roots_to_follow(&roots[2..], &forged, NONE, AT), Ok(roots[2..].to_vec()));
        let ended = AT.plus(Span::from_days(1_000_000));
        assert!(roots_to_follow(&roots[..1], &offered, NONE, ended).is_err());
    }

    #[test]
    fn a_denied_cross_certificate_vouches_for_nothing() {
        let [first, second, third] = [(); 3].map(|()| TestCa::new("root", Some(1)));
        let roots = [first.root(), second.root(), third.root()];
        let (cross, next) = (second.by(&first), third.by(&second));
        let is_denied = |der: &CertificateDer<'_>| *der == cross;
        let follow = |known: &[CertificateDer<'static>], offered: &[CertificateDer<'static>]| {
            roots_to_follow(known, offered, is_denied, AT)
        };
        let (old, both) = (&roots[..1], [roots[0].clone(), roots[1].clone(), cross.clone()]);
        assert_eq!(follow(old, &both), Err(SuccessionError::Stranger(2)));
        assert_eq!(follow(old, &both[1..]), Err(SuccessionError::Stranger(1)));
        // Nor for what the root behind it has certified.
        let further = [roots[0].clone(), cross.clone(), roots[2].clone(), next];
        assert_eq!(follow(old, &further), Err(SuccessionError::Stranger(3)));
        // It is no reason to refuse the rest, and takes nothing from whoever trusts the new root already.
        assert_eq!(follow(old, &[roots[0].clone(), cross.clone()]), Ok(old.to_vec()));
        assert_eq!(follow(&roots[..2], &both), Ok(roots[..2].to_vec()));
    }

    #[test]
    fn the_key_of_an_issuer_puts_nothing_among_the_roots() {
        let (root, issuer) = (TestCa::new("root", Some(1)), TestCa::new("issuer", Some(0)));
        let (known, below) = ([root.root()], issuer.by(&root));
        let wider = issuer.with(IsCa::Ca(BasicConstraints::Unconstrained));
        let below_it = TestCa::new("root", Some(1));
        for (offered, expected) in [
            // The issuer signed by itself takes the place of nothing, with or without its true certificate.
            (vec![below.clone(), issuer.root()], Err(SuccessionError::Stranger(2))),
            (vec![known[0].clone(), below.clone(), wider.root()], Err(SuccessionError::Stranger(3))),
            (
                vec![known[0].clone(), below_it.root(), below_it.by(&issuer)],
                Err(SuccessionError::Stranger(2)),
            ),
            // Itself it is dropped, and alone it is nothing to trust.
            (vec![known[0].clone(), below.clone()], Ok(known.to_vec())),
            (vec![below.clone()], Err(SuccessionError::NoneLeft)),
        ] {
            assert_eq!(roots_to_follow(&known, &offered, NONE, AT), expected);
        }
        // An operator who named the issuer alone is told its root.
        assert_eq!(roots_to_follow(&[below], &known, NONE, AT), Ok(known.to_vec()));
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
}
