//! When a host turns to recovery, and what it means when that fails.

use super::{Class, FailureKind};

/// Why a recovery is right, after the control plane could not be reached as usual: only where nothing else leads
/// back. Never for a revoked host; never because nobody answers, or somebody else does: a token spent for a
/// certificate that cannot be proven may be the last.
pub fn reason(contact: FailureKind, expired: bool) -> Option<Class> {
    match contact {
        FailureKind::Expired | FailureKind::Superseded | FailureKind::Unacceptable => {
            Some(Class::CertExpired)
        }
        // The bundle may be stale; the recovery bundle says whether it is.
        FailureKind::Untrusted => Some(Class::ServerTlsUntrusted),
        FailureKind::UnknownIssuer | FailureKind::Refused if expired => Some(Class::CertExpired),
        FailureKind::Transient
        | FailureKind::UnknownIssuer
        | FailureKind::Refused
        | FailureKind::WrongServer
        | FailureKind::ClockSkew
        | FailureKind::Revoked
        | FailureKind::DiskFull => None,
    }
}

/// What a failed recovery is called.
pub fn classify(kind: FailureKind) -> Class {
    match kind {
        FailureKind::Transient | FailureKind::UnknownIssuer => Class::EndpointUnreachable,
        FailureKind::WrongServer => Class::EndpointProfileDrift,
        FailureKind::ClockSkew => Class::ClockSkew,
        FailureKind::Revoked => Class::IdentityRevokedOrFenced,
        FailureKind::DiskFull => Class::DiskFull,
        // Not even the recovery bundle vouches for what answers, or the token is not taken: closed.
        FailureKind::Untrusted
        | FailureKind::Refused
        | FailureKind::Expired
        | FailureKind::Superseded
        | FailureKind::Unacceptable => Class::RecoveryEnrollmentBlocked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovery_is_for_lost_certificates_and_stale_bundles_alone() {
        for expired in [false, true] {
            assert_eq!(reason(FailureKind::Expired, expired), Some(Class::CertExpired));
            assert_eq!(reason(FailureKind::Superseded, expired), Some(Class::CertExpired));
            assert_eq!(reason(FailureKind::Untrusted, expired), Some(Class::ServerTlsUntrusted));
            for kind in [
                FailureKind::Transient,
                FailureKind::Revoked,
                FailureKind::WrongServer,
                FailureKind::ClockSkew,
                FailureKind::DiskFull,
            ] {
                assert_eq!(reason(kind, expired), None, "{kind:?}");
            }
        }
        assert_eq!(reason(FailureKind::Refused, false), None);
        assert_eq!(reason(FailureKind::Refused, true), Some(Class::CertExpired));
    }

    #[test]
    fn what_cannot_be_trusted_or_refuses_blocks() {
        assert_eq!(classify(FailureKind::Untrusted), Class::RecoveryEnrollmentBlocked);
        assert_eq!(classify(FailureKind::Refused), Class::RecoveryEnrollmentBlocked);
        assert_eq!(classify(FailureKind::Transient), Class::EndpointUnreachable);
        assert_eq!(classify(FailureKind::WrongServer), Class::EndpointProfileDrift);
    }
}
