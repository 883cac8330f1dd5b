//! Profiles: how long a leaf lives, when it is renewed, what its cosmetic name is, which keys it may hold.

use super::Fraction;
use super::accepts::{Accepts, ListOf, PartOfLifetime, SpanOrOff, Template, Within};
use super::key::policy_keys;
use crate::names::{KeyKind, NodeId, ProfileName, Span, TenantId, Timestamp, TrustDomain};
use imbl::OrdMap;

const LIFETIME_MIN: Span = Span::from_secs(60);
const LIFETIME_MAX: Span = Span::from_days(90);

policy_keys! {
    /// What certificates of nodes are like.
    pub struct CertificateProfile {
        /// Lifetime of certificates; at most 7d in a domain with ephemeral issuers
        "lifetime" lifetime: Span = Span::from_days(1), Within(LIFETIME_MIN, LIFETIME_MAX);
        /// Part of the lifetime after which to renew
        "renew_at" renew_at: Fraction = Fraction::TWO_THIRDS, PartOfLifetime;
        /// Renew this long before the end, if that is earlier
        "renew_before" renew_before: Option<Span> = None, SpanOrOff;
        /// Common name, in which the names in braces are filled in
        "cn" cn: String = "{node}".to_owned(), Template(&["{node}", "{tenant}", "{domain}"]);
        /// Allowed kinds of keys
        "keys" keys: Vec<KeyKind> = KeyKind::ALL.to_vec(), ListOf(&KeyKind::ALL, KeyKind::as_str);
    }
    and {}
}

impl CertificateProfile {
    /// When a leaf signed at `signed_at` and ending at `not_after` should be renewed.
    pub fn renewal_point(&self, signed_at: Timestamp, not_after: Timestamp) -> Timestamp {
        let lifetime = not_after.since(signed_at);
        let by_fraction = signed_at.plus(self.renew_at.of(lifetime));
        match self.renew_before {
            Some(before) => by_fraction.min(not_after.minus(before)).max(signed_at),
            None => by_fraction,
        }
    }

    /// The cosmetic name, left out where X.520 has no room for it.
    pub fn common_name(&self, domain: &TrustDomain, tenant: &TenantId, node: &NodeId) -> Option<String> {
        let cn = self
            .cn
            .replace("{node}", node.as_str())
            .replace("{tenant}", tenant.as_str())
            .replace("{domain}", domain.as_str());
        (1..=64).contains(&cn.len()).then_some(cn)
    }
}

/// The profiles every domain starts with.
pub(super) fn presets() -> OrdMap<ProfileName, CertificateProfile> {
    let preset = |days: u64, renew_at: Fraction, cn: &str| CertificateProfile {
        lifetime: Span::from_days(days),
        renew_at,
        cn: cn.to_owned(),
        ..CertificateProfile::default()
    };
    [
        ("default", CertificateProfile::default()),
        ("plfm", preset(90, Fraction::TWO_THIRDS, "{node}")),
        ("pact", preset(3, Fraction::TWO_THIRDS, "pact-service-agent/{node}@{domain}")),
        ("probectl", preset(1, Fraction::TWO_THIRDS, "{node}")),
        ("taskrun", preset(7, Fraction::HALF, "worker:{node}")),
        ("taskrun-prod", preset(1, Fraction::HALF, "worker:{node}")),
    ]
    .into_iter()
    .filter_map(|(name, profile)| Some((ProfileName::parse(name).ok()?, profile)))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earlier_of_fraction_and_distance_renews() {
        let (start, end) = (Timestamp::from_secs(1000), Timestamp::from_secs(1060));
        let mut profile = CertificateProfile { renew_at: Fraction::HALF, ..CertificateProfile::default() };
        assert_eq!(profile.renewal_point(start, end), Timestamp::from_secs(1030));
        profile.renew_before = Some(Span::from_secs(50));
        assert_eq!(profile.renewal_point(start, end), Timestamp::from_secs(1010));
        profile.renew_before = Some(Span::from_secs(500));
        assert_eq!(profile.renewal_point(start, end), start);
    }
}
