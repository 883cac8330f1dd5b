//! From what shows to the word for it.

use super::{Class, Trouble};

/// What a failed call is called. Of a certificate that has ended by this host's own clock nothing else is worth
/// saying while nobody answers; and where the clock is wrong, neither dates nor chains can be judged.
pub fn classify(trouble: Trouble, expired: bool, skewed: bool) -> Class {
    let class = match trouble {
        Trouble::Full => Class::DiskFull,
        Trouble::Skewed => Class::ClockSkew,
        Trouble::Revoked => Class::IdentityRevokedOrFenced,
        Trouble::Elsewhere => Class::EndpointProfileDrift,
        Trouble::Untrusted => Class::ServerTlsUntrusted,
        // A certificate that is no longer taken has ended, whatever its dates.
        Trouble::Expired | Trouble::Superseded | Trouble::Unacceptable => Class::CertExpired,
        Trouble::Passing | Trouble::UnknownIssuer | Trouble::Refused if expired => Class::CertExpired,
        Trouble::Passing | Trouble::UnknownIssuer | Trouble::Refused => Class::EndpointUnreachable,
    };
    match class {
        Class::CertExpired | Class::ServerTlsUntrusted if skewed => Class::ClockSkew,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trouble_has_its_word() {
        for (trouble, class) in [
            (Trouble::Passing, Class::EndpointUnreachable),
            (Trouble::UnknownIssuer, Class::EndpointUnreachable),
            (Trouble::Refused, Class::EndpointUnreachable),
            (Trouble::Elsewhere, Class::EndpointProfileDrift),
            (Trouble::Untrusted, Class::ServerTlsUntrusted),
            (Trouble::Expired, Class::CertExpired),
            (Trouble::Superseded, Class::CertExpired),
            (Trouble::Unacceptable, Class::CertExpired),
            (Trouble::Revoked, Class::IdentityRevokedOrFenced),
            (Trouble::Full, Class::DiskFull),
            (Trouble::Skewed, Class::ClockSkew),
        ] {
            assert_eq!(classify(trouble, false, false), class, "{trouble:?}");
        }
    }

    #[test]
    fn a_wrong_clock_wins_over_dates_and_chains_and_over_nothing_else() {
        for trouble in [Trouble::Expired, Trouble::Untrusted] {
            assert_eq!(classify(trouble, false, true), Class::ClockSkew);
        }
        assert_eq!(classify(Trouble::Passing, true, true), Class::ClockSkew);
        for trouble in [Trouble::Passing, Trouble::Revoked, Trouble::Elsewhere, Trouble::Full] {
            assert_eq!(classify(trouble, false, true), classify(trouble, false, false));
        }
    }

    #[test]
    fn silence_after_the_end_of_the_certificate_is_its_end() {
        assert_eq!(classify(Trouble::Passing, true, false), Class::CertExpired);
        assert_eq!(classify(Trouble::Elsewhere, true, false), Class::EndpointProfileDrift);
    }
}
