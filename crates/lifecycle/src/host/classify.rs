//! From what shows to the word for it.

use super::{Class, FailureKind};

/// What a failed call is called. Of a certificate that has ended by this host's own clock nothing else is worth
/// saying while nobody answers; and where the clock is wrong, neither dates nor chains can be judged.
pub fn classify(kind: FailureKind, expired: bool, skewed: bool) -> Class {
    let class = match kind {
        FailureKind::DiskFull => Class::DiskFull,
        FailureKind::ClockSkew => Class::ClockSkew,
        FailureKind::Revoked => Class::IdentityRevokedOrFenced,
        FailureKind::WrongServer => Class::EndpointProfileDrift,
        FailureKind::Untrusted => Class::ServerTlsUntrusted,
        // A certificate that is no longer taken has ended, whatever its dates.
        FailureKind::Expired | FailureKind::Superseded | FailureKind::Unacceptable => Class::CertExpired,
        FailureKind::Transient | FailureKind::UnknownIssuer | FailureKind::Refused if expired => {
            Class::CertExpired
        }
        FailureKind::Transient | FailureKind::UnknownIssuer | FailureKind::Refused => {
            Class::EndpointUnreachable
        }
    };
    match class {
        Class::CertExpired | Class::ServerTlsUntrusted if skewed => Class::ClockSkew,
        Class::CertExpired
        | Class::ServerTlsUntrusted
        | Class::EndpointUnreachable
        | Class::IdentityRevokedOrFenced
        | Class::EndpointProfileDrift
        | Class::RecoveryEnrollmentBlocked
        | Class::DiskFull
        | Class::ClockSkew => class,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trouble_has_its_word() {
        for (kind, class) in [
            (FailureKind::Transient, Class::EndpointUnreachable),
            (FailureKind::UnknownIssuer, Class::EndpointUnreachable),
            (FailureKind::Refused, Class::EndpointUnreachable),
            (FailureKind::WrongServer, Class::EndpointProfileDrift),
            (FailureKind::Untrusted, Class::ServerTlsUntrusted),
            (FailureKind::Expired, Class::CertExpired),
            (FailureKind::Superseded, Class::CertExpired),
            (FailureKind::Unacceptable, Class::CertExpired),
            (FailureKind::Revoked, Class::IdentityRevokedOrFenced),
            (FailureKind::DiskFull, Class::DiskFull),
            (FailureKind::ClockSkew, Class::ClockSkew),
        ] {
            assert_eq!(classify(kind, false, false), class, "{kind:?}");
        }
    }

    #[test]
    fn a_wrong_clock_wins_over_dates_and_chains_and_over_nothing_else() {
        for kind in [FailureKind::Expired, FailureKind::Untrusted] {
            assert_eq!(classify(kind, false, true), Class::ClockSkew);
        }
        assert_eq!(classify(FailureKind::Transient, true, true), Class::ClockSkew);
        for kind in
            [FailureKind::Transient, FailureKind::Revoked, FailureKind::WrongServer, FailureKind::DiskFull]
        {
            assert_eq!(classify(kind, false, true), classify(kind, false, false));
        }
    }

    #[test]
    fn silence_after_the_end_of_the_certificate_is_its_end() {
        assert_eq!(classify(FailureKind::Transient, true, false), Class::CertExpired);
        assert_eq!(classify(FailureKind::WrongServer, true, false), Class::EndpointProfileDrift);
    }
}
