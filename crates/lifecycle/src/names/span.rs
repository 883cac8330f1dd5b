//! Lengths of time: `90s`, `15m`, `1h`, `7d`.

use super::Malformed;

const MALFORMED: Malformed =
    Malformed { what: "a duration", expected: "a whole number and a unit: 90s, 15m, 1h or 7d" };

/// A length of time in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Span(u64);

impl Span {
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1000))
    }

    pub const fn from_minutes(minutes: u64) -> Self {
        Self::from_secs(minutes.saturating_mul(60))
    }

    pub const fn from_hours(hours: u64) -> Self {
        Self::from_minutes(hours.saturating_mul(60))
    }

    pub const fn from_days(days: u64) -> Self {
        Self::from_hours(days.saturating_mul(24))
    }

    pub const fn millis(self) -> u64 {
        self.0
    }

    pub const fn secs(self) -> u64 {
        self.0 / 1000
    }

    /// Reads `90s`, `15m`, `1h`, `7d`, up to a hundred years.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let unit = text.chars().last().ok_or(MALFORMED)?;
        let secs = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            _ => return Err(MALFORMED),
        };
        let number = text.strip_suffix(unit).unwrap_or_default();
        if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
            return Err(MALFORMED);
        }
        let total = number.parse::<u64>().ok().and_then(|n| n.checked_mul(secs)).ok_or(MALFORMED)?;
        if total > 36_525 * 86_400 { Err(MALFORMED) } else { Ok(Self::from_secs(total)) }
    }
}

impl std::fmt::Display for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let secs = self.secs();
        match secs {
            0 => write!(f, "0s"),
            _ if secs.is_multiple_of(86_400) => write!(f, "{}d", secs / 86_400),
            _ if secs.is_multiple_of(3600) => write!(f, "{}h", secs / 3600),
            _ if secs.is_multiple_of(60) => write!(f, "{}m", secs / 60),
            _ => write!(f, "{secs}s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_back_as_written() {
        for text in ["1s", "90s", "15m", "1h", "7d", "90d"] {
            assert_eq!(Span::parse(text).map(|span| span.to_string()), Ok(text.to_owned()));
        }
        for bad in ["", "1", "h", "-1h", "1.5h", "+1s", "1w", "1h ", "99999999999999999999d", "1é"] {
            assert!(Span::parse(bad).is_err(), "{bad}");
        }
    }
}
