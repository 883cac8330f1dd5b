//! What a failed call means for a host, and what follows from it.

use super::share;
use crate::names::Span;

/// A revoked host asks this often whether it still is.
const REVOKED_CHECK: Span = Span::from_minutes(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// No answer, or one that says to come again. Says nothing about this host.
    Transient,
    /// What answers is not the control plane by the name that was asked for, or does not speak as one.
    WrongServer,
    /// What answers has a chain that leads to nothing trusted here, or not at this time.
    Untrusted,
    /// The two clocks were compared first and are too far apart: nothing was asked.
    ClockSkew,
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
    DiskFull,
}

/// Whether a renewed certificate that has yet to be proven is of no use, so that the one in use stays, and
/// another is asked for: only when the control plane says so of this very certificate. Otherwise it may be the one
/// that the control plane has already seen, and then the old one would soon be refused.
pub fn discards_candidate(kind: FailureKind) -> bool {
    match kind {
        FailureKind::Expired | FailureKind::Revoked | FailureKind::Unacceptable => true,
        FailureKind::Transient
        | FailureKind::WrongServer
        | FailureKind::Untrusted
        | FailureKind::ClockSkew
        | FailureKind::UnknownIssuer
        | FailureKind::Superseded
        | FailureKind::Refused
        | FailureKind::DiskFull => false,
    }
}

/// Whether the certificate in use has had its day, so that a renewed one that lies on disk is the one to use.
pub fn adopts_candidate(kind: FailureKind) -> bool {
    match kind {
        // A superseded certificate is turned away in the handshake too, where there is no other word for it.
        FailureKind::Superseded | FailureKind::Unacceptable => true,
        FailureKind::Transient
        | FailureKind::WrongServer
        | FailureKind::Untrusted
        | FailureKind::ClockSkew
        | FailureKind::UnknownIssuer
        | FailureKind::Expired
        | FailureKind::Revoked
        | FailureKind::Refused
        | FailureKind::DiskFull => false,
    }
}

/// Whether the key that a renewal was asked for is spent. After anything but a refusal of the request the answer
/// may have been given and lost, and only the same key gets it again.
pub fn discards_key(kind: FailureKind) -> bool {
    kind == FailureKind::Refused
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

    const KINDS: [FailureKind; 11] = [
        FailureKind::Transient,
        FailureKind::WrongServer,
        FailureKind::Untrusted,
        FailureKind::ClockSkew,
        FailureKind::DiskFull,
        FailureKind::UnknownIssuer,
        FailureKind::Expired,
        FailureKind::Revoked,
        FailureKind::Unacceptable,
        FailureKind::Superseded,
        FailureKind::Refused,
    ];

    proptest! {
        #[test]
        fn only_a_word_about_the_certificate_costs_the_certificate(
            kinds in proptest::collection::vec(proptest::sample::select(&KINDS), 0..50),
        ) {
            let kept = !kinds.iter().any(|kind| discards_candidate(*kind));
            let bad = [FailureKind::Expired, FailureKind::Revoked, FailureKind::Unacceptable];
            prop_assert_eq!(kept, !kinds.iter().any(|kind| bad.contains(kind)));
        }

        #[test]
        fn a_word_about_the_certificate_in_use_never_costs_the_key_of_the_next(
            kind in proptest::sample::select(&KINDS),
        ) {
            prop_assert!(!(adopts_candidate(kind) && discards_key(kind)));
            prop_assert!(!(discards_candidate(kind) && discards_key(kind)));
            prop_assert_eq!(discards_key(kind), kind == FailureKind::Refused);
        }
    }

    #[test]
    fn what_is_superseded_leads_to_its_successor_and_a_revocation_does_not() {
        for kind in KINDS {
            let leads = matches!(kind, FailureKind::Superseded | FailureKind::Unacceptable);
            assert_eq!(adopts_candidate(kind), leads, "{kind:?}");
        }
    }

    #[test]
    fn a_revoked_host_asks_rarely() {
        assert_eq!(check_revoked_after(0), Span::from_minutes(5));
        assert_eq!(check_revoked_after(u32::MAX), Span::from_minutes(6));
    }
}
