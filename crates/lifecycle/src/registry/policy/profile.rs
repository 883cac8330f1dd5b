//! Profiles: how long a leaf lives, when it is renewed, what its cosmetic name is, which keys it may hold.

use super::PolicyError;
use crate::names::{KeyKind, NodeId, ProfileName, Span, TenantId, Timestamp, TrustDomain};
use imbl::OrdMap;
use serde::{Deserialize, Serialize};

pub const LIFETIME_MIN: Span = Span::from_secs(60);
pub const LIFETIME_MAX: Span = Span::from_days(90);

/// A part of a whole, such as 2/3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fraction {
    numerator: u32,
    denominator: u32,
}

impl Fraction {
    pub const TWO_THIRDS: Fraction = Fraction { numerator: 2, denominator: 3 };
    pub const HALF: Fraction = Fraction { numerator: 1, denominator: 2 };

    /// Reads `2/3`, `50%` or `0.5`, strictly between nothing and everything.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = |part: &str| -> Option<u32> {
            (!part.is_empty() && part.len() <= 7 && part.bytes().all(|b| b.is_ascii_digit()))
                .then(|| part.parse().ok())?
        };
        let (numerator, denominator) = if let Some((top, bottom)) = text.split_once('/') {
            (digits(top)?, digits(bottom)?)
        } else if let Some(percent) = text.strip_suffix('%') {
            (digits(percent)?, 100)
        } else {
            let decimals = text.strip_prefix("0.").filter(|decimals| decimals.len() <= 6)?;
            (digits(decimals)?, 10u32.pow(u32::try_from(decimals.len()).ok()?))
        };
        (numerator > 0 && numerator < denominator).then_some(Self { numerator, denominator })
    }

    pub fn of(self, span: Span) -> Span {
        Span::from_millis(
            span.millis().saturating_mul(u64::from(self.numerator)) / u64::from(self.denominator.max(1)),
        )
    }
}

impl std::fmt::Display for Fraction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.numerator, self.denominator)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    pub lifetime: Span,
    pub renew_at: Fraction,
    /// An absolute distance from the end; the earlier of the two counts.
    pub renew_before: Option<Span>,
    /// `{node}`, `{tenant}` and `{domain}` are filled in.
    pub cn: String,
    pub keys: Vec<KeyKind>,
}

impl Profile {
    fn preset(lifetime: Span, renew_at: Fraction, cn: &str) -> Self {
        Self { lifetime, renew_at, renew_before: None, cn: cn.to_owned(), keys: KeyKind::ALL.to_vec() }
    }

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

    pub(super) fn get(&self, field: &str) -> Option<String> {
        Some(match field {
            "lifetime" => self.lifetime.to_string(),
            "renew_at" => self.renew_at.to_string(),
            "renew_before" => self.renew_before.map_or_else(|| "off".to_owned(), |span| span.to_string()),
            "cn" => self.cn.clone(),
            "keys" => self.keys.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(","),
            _ => return None,
        })
    }

    pub(super) fn set(&mut self, field: &str, value: &str) -> Result<(), PolicyError> {
        match field {
            "lifetime" => {
                let span =
                    Span::parse(value).ok().filter(|span| (LIFETIME_MIN..=LIFETIME_MAX).contains(span));
                self.lifetime = span.ok_or(PolicyError::Value("a duration from 60s to 90d"))?;
            }
            "renew_at" => {
                self.renew_at =
                    Fraction::parse(value).ok_or(PolicyError::Value("a fraction such as 2/3 or 50%"))?;
            }
            "renew_before" if value == "off" => self.renew_before = None,
            "renew_before" => {
                let span = Span::parse(value).ok().filter(|span| *span >= Span::from_secs(1));
                self.renew_before = Some(span.ok_or(PolicyError::Value("a duration such as 8h, or off"))?);
            }
            "cn" => {
                let rest = ["{node}", "{tenant}", "{domain}"]
                    .iter()
                    .fold(value.to_owned(), |rest, word| rest.replace(word, ""));
                let printable = |b: u8| (b.is_ascii_graphic() || b == b' ') && b != b'{' && b != b'}';
                // What is around the names must leave room for them in the 64 characters that X.520 gives.
                if value.is_empty() || rest.len() > 40 || !rest.bytes().all(printable) {
                    let expected =
                        "{node}, {tenant} and {domain} with up to 40 printable characters around them";
                    return Err(PolicyError::Value(expected));
                }
                value.clone_into(&mut self.cn);
            }
            "keys" => {
                let kinds: Option<Vec<KeyKind>> = value
                    .split(',')
                    .map(|word| KeyKind::ALL.into_iter().find(|kind| kind.as_str() == word.trim()))
                    .collect();
                self.keys = kinds.ok_or(PolicyError::Value("a list of p256, p384, ed25519 and rsa"))?;
            }
            _ => return Err(PolicyError::Key),
        }
        Ok(())
    }
}

pub(super) const FIELDS: [&str; 5] = ["lifetime", "renew_at", "renew_before", "cn", "keys"];

/// The profiles every domain starts with.
pub(super) fn presets() -> OrdMap<ProfileName, Profile> {
    let day = Span::from_days;
    [
        ("default", Profile::preset(day(1), Fraction::TWO_THIRDS, "{node}")),
        ("plfm", Profile::preset(day(90), Fraction::TWO_THIRDS, "{node}")),
        ("pact", Profile::preset(day(3), Fraction::TWO_THIRDS, "pact-service-agent/{node}@{domain}")),
        ("probectl", Profile::preset(day(1), Fraction::TWO_THIRDS, "{node}")),
        ("taskrun", Profile::preset(day(7), Fraction::HALF, "worker:{node}")),
        ("taskrun-prod", Profile::preset(day(1), Fraction::HALF, "worker:{node}")),
    ]
    .into_iter()
    .filter_map(|(name, profile)| Some((ProfileName::parse(name).ok()?, profile)))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_read_in_three_ways_and_stay_inside() {
        for (text, millis) in [
            ("2/3", 60_000),
            ("50%", 45_000),
            ("0.5", 45_000),
            ("0.999999", 89_999),
            ("999999/1000000", 89_999),
        ] {
            assert_eq!(Fraction::parse(text).map(|f| f.of(Span::from_secs(90)).millis()), Some(millis));
        }
        for bad in [
            "",
            "1",
            "0/3",
            "3/3",
            "4/3",
            "2/0",
            "0%",
            "100%",
            "1.5",
            "0.0",
            "-1/3",
            "2/ 3",
            "9999999/99999999",
        ] {
            assert_eq!(Fraction::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_earlier_of_fraction_and_distance_renews() {
        let (start, end) = (Timestamp::from_secs(1000), Timestamp::from_secs(1060));
        let mut profile = Profile::preset(Span::from_secs(60), Fraction::HALF, "");
        assert_eq!(profile.renewal_point(start, end), Timestamp::from_secs(1030));
        profile.renew_before = Some(Span::from_secs(50));
        assert_eq!(profile.renewal_point(start, end), Timestamp::from_secs(1010));
        profile.renew_before = Some(Span::from_secs(500));
        assert_eq!(profile.renewal_point(start, end), start);
    }
}
