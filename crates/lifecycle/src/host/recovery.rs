//! When a host turns to recovery, and what it means when that fails.

use super::{Class, Trouble};

/// Why a recovery is right, after the control plane could not be reached as usual: only where nothing else leads
/// back. Never for a revoked host; never because nobody answers, or somebody else does: a token spent for a
/// certificate that cannot be proven may be the last.
pub fn reason(contact: Trouble, expired: bool) -> Option<Class> {
    match contact {
        Trouble::Expired | Trouble::Superseded | Trouble::Unacceptable => Some(Class::CertExpired),
        // The bundle may be stale; the recovery bundle says whether it is.
        Trouble::Untrusted => Some(Class::ServerTlsUntrusted),
        Trouble::UnknownIssuer | Trouble::Refused if expired => Some(Class::CertExpired),
        Trouble::Passing
        | Trouble::UnknownIssuer
        | Trouble::Refused
        | Trouble::Elsewhere
        | Trouble::Skewed
        | Trouble::Revoked
        | Trouble::Full => None,
    }
}

/// What a failed recovery is called.
pub fn classify(trouble: Trouble) -> Class {
    match trouble {
        Trouble::Passing | Trouble::UnknownIssuer => Class::EndpointUnreachable,
        Trouble::Elsewhere => Class::EndpointProfileDrift,
        Trouble::Skewed => Class::ClockSkew,
        Trouble::Revoked => Class::IdentityRevokedOrFenced,
        Trouble::Full => Class::DiskFull,
        // Not even the recovery bundle vouches for what answers, or the token is not taken: closed.
        Trouble::Untrusted
        | Trouble::Refused
        | Trouble::Expired
        | Trouble::Superseded
        | Trouble::Unacceptable => Class::RecoveryEnrollmentBlocked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovery_is_for_lost_certificates_and_stale_bundles_alone() {
        for expired in [false, true] {
            assert_eq!(reason(Trouble::Expired, expired), Some(Class::CertExpired));
            assert_eq!(reason(Trouble::Superseded, expired), Some(Class::CertExpired));
            assert_eq!(reason(Trouble::Untrusted, expired), Some(Class::ServerTlsUntrusted));
            for trouble in
                [Trouble::Passing, Trouble::Revoked, Trouble::Elsewhere, Trouble::Skewed, Trouble::Full]
            {
                assert_eq!(reason(trouble, expired), None, "{trouble:?}");
            }
        }
        assert_eq!(reason(Trouble::Refused, false), None);
        assert_eq!(reason(Trouble::Refused, true), Some(Class::CertExpired));
    }

    #[test]
    fn what_cannot_be_trusted_or_refuses_blocks() {
        assert_eq!(classify(Trouble::Untrusted), Class::RecoveryEnrollmentBlocked);
        assert_eq!(classify(Trouble::Refused), Class::RecoveryEnrollmentBlocked);
        assert_eq!(classify(Trouble::Passing), Class::EndpointUnreachable);
        assert_eq!(classify(Trouble::Elsewhere), Class::EndpointProfileDrift);
    }
}
