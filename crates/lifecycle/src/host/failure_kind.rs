//! What a failed call means for a host, and what follows from it.

use super::share;
use crate::names::Span;

/// A revoked host asks this often whether it still is.
const REVOKED_CHECK: Span = Span::from_minutes(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// No answer, or one that says to come again. Says nothing about this host.
    Passing,
    /// What answers is not the control plane by the name that was asked for, or does not speak as one.
    Elsewhere,
    /// What answers has a chain that leads to nothing trusted here, or not at this time.
    Untrusted,
    /// The two clocks were compared first and are too far apart: nothing was asked.
    Skewed,
    /// The certificate's issuer is not known there. Never to be taken for a revocation.
    UnknownIssuer,
    Expired,
    Revoked,
    /// The certificate is not accepted, and will not be.
    Unacceptable,
    /// A newer certificate of this host has taken the certificate's place.
    Superseded,
    /// The same request will be refused again. Says nothing about the certificate.
    Refused,
    /// There is no room on this host for what has to be written first.
    Full,
}

/// Whether a renewed certificate that has yet to be proven is of no use, so that the one in use stays, and
/// another is asked for: only when the control plane says so of this very certificate. Otherwise it may be the one
/// that the control plane has already seen, and then the old one would soon be refused.
pub fn gives_up_candidate(trouble: Trouble) -> bool {
    match trouble {
        Trouble::Expired | Trouble::Revoked | Trouble::Unacceptable => true,
        Trouble::Passing
        | Trouble::Elsewhere
        | Trouble::Untrusted
        | Trouble::Skewed
        | Trouble::UnknownIssuer
        | Trouble::Superseded
        | Trouble::Refused
        | Trouble::Full => false,
    }
}

/// Whether the certificate in use has had its day, so that a renewed one that lies on disk is the one to use.
pub fn takes_up_candidate(trouble: Trouble) -> bool {
    match trouble {
        // A superseded certificate is turned away in the handshake too, where there is no other word for it.
        Trouble::Superseded | Trouble::Unacceptable => true,
        Trouble::Passing
        | Trouble::Elsewhere
        | Trouble::Untrusted
        | Trouble::Skewed
        | Trouble::UnknownIssuer
        | Trouble::Expired
        | Trouble::Revoked
        | Trouble::Refused
        | Trouble::Full => false,
    }
}

/// Whether the key that a renewal was asked for is spent. After anything but a refusal of the request the answer
/// may have been given and lost, and only the same key gets it again.
pub fn gives_up_key(trouble: Trouble) -> bool {
    trouble == Trouble::Refused
}

/// When a revoked host asks again: rarely, for it may be reinstated, and not together with all others.
pub fn check_revoked_after(chance: u32) -> Span {
    let most = Span::from_millis(REVOKED_CHECK.millis() / 5);
    Span::from_millis(REVOKED_CHECK.millis() + share(most, chance).millis())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TROUBLES: [Trouble; 11] = [
        Trouble::Passing,
        Trouble::Elsewhere,
        Trouble::Untrusted,
        Trouble::Skewed,
        Trouble::Full,
        Trouble::UnknownIssuer,
        Trouble::Expired,
        Trouble::Revoked,
        Trouble::Unacceptable,
        Trouble::Superseded,
        Trouble::Refused,
    ];

    proptest! {
        #[test]
        fn only_a_word_about_the_certificate_costs_the_certificate(
            troubles in proptest::collection::vec(proptest::sample::select(&TROUBLES), 0..50),
        ) {
            let kept = !troubles.iter().any(|trouble| gives_up_candidate(*trouble));
            let bad = [Trouble::Expired, Trouble::Revoked, Trouble::Unacceptable];
            prop_assert_eq!(kept, !troubles.iter().any(|trouble| bad.contains(trouble)));
        }

        #[test]
        fn a_word_about_the_certificate_in_use_never_costs_the_key_of_the_next(
            trouble in proptest::sample::select(&TROUBLES),
        ) {
            prop_assert!(!(takes_up_candidate(trouble) && gives_up_key(trouble)));
            prop_assert!(!(gives_up_candidate(trouble) && gives_up_key(trouble)));
            prop_assert_eq!(gives_up_key(trouble), trouble == Trouble::Refused);
        }
    }

    #[test]
    fn what_is_superseded_leads_to_its_successor_and_a_revocation_does_not() {
        for trouble in TROUBLES {
            let leads = matches!(trouble, Trouble::Superseded | Trouble::Unacceptable);
            assert_eq!(takes_up_candidate(trouble), leads, "{trouble:?}");
        }
    }

    #[test]
    fn a_revoked_host_asks_rarely() {
        assert_eq!(check_revoked_after(0), Span::from_minutes(5));
        assert_eq!(check_revoked_after(u32::MAX), Span::from_minutes(6));
    }
}
