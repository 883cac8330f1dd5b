//! When a host turns to recovery, and what it means when that fails.

use super::{Class, FailureKind};

/// Why a recovery is right, after the control plane could not be reached as usual: only where nothing else leads
/// back. Never for a revoked host; of a host that finds nobody, or somebody else, [`unanswered`] decides, and of one whose
/// issuer nobody knows, [`unknown_issuer`].
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

/// Why a recovery is right for a host that has asked every address in vain: at once if its certificate has ended, since it
/// needs another whoever answers; if that is good, only once the addresses are taken for gone.
pub fn unanswered(expired: bool, gone: bool) -> Option<Class> {
    match (expired, gone) {
        (true, _) => Some(Class::CertExpired),
        (false, true) => Some(Class::EndpointUnreachable),
        (false, false) => None,
    }
}

/// Why a recovery is right for a host that was answered with TLS alert 48: another replica may know the issuer, so not before
/// it has had no connection for the grace period, unless its certificate has ended. Then the issuer was probably retired. With a
/// recovery token it asks as one that finds nobody: where that certificate is good after all the token stays unused.
pub fn unknown_issuer(expired: bool, gone: bool, has_token: bool) -> Option<Class> {
    match unanswered(expired, gone) {
        Some(Class::EndpointUnreachable) if !has_token => Some(Class::CertExpired),
        reason => reason,
    }
}

/// Whether nobody answers where the control plane was, or somebody else does.
pub fn is_away(contact: FailureKind) -> bool {
    match contact {
        FailureKind::Transient | FailureKind::WrongServer => true,
        FailureKind::Untrusted
        | FailureKind::ClockSkew
        | FailureKind::UnknownIssuer
        | FailureKind::Expired
        | FailureKind::Revoked
        | FailureKind::Unacceptable
        | FailureKind::Superseded
        | FailureKind::Refused
        | FailureKind::DiskFull => false,
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
        assert_eq!(unanswered(false, false), None, "it may be back any moment");
    }

    #[test]
    fn an_unknown_issuer_is_a_lost_certificate_after_the_grace_period_alone() {
        for has_token in [false, true] {
            assert_eq!(unknown_issuer(false, false, has_token), None, "another replica may know it");
            assert_eq!(unknown_issuer(true, false, has_token), Some(Class::CertExpired));
        }
        assert_eq!(unknown_issuer(false, true, true), Some(Class::EndpointUnreachable));
        assert_eq!(unknown_issuer(false, true, false), Some(Class::CertExpired));
    }

    #[test]
    fn what_cannot_be_trusted_or_refuses_blocks() {
        assert_eq!(classify(FailureKind::Untrusted), Class::RecoveryEnrollmentBlocked);
        assert_eq!(classify(FailureKind::Refused), Class::RecoveryEnrollmentBlocked);
        assert_eq!(classify(FailureKind::Transient), Class::EndpointUnreachable);
        assert_eq!(classify(FailureKind::WrongServer), Class::EndpointProfileDrift);
    }
}
