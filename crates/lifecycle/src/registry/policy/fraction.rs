//! Parts of a lifetime.

use crate::names::Span;
use serde::{Deserialize, Serialize};

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
}
