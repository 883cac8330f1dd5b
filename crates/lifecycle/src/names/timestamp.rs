//! Moments, in milliseconds since 1970, UTC. Nobody here asks a clock for one.

use super::{Malformed, Span};

const MALFORMED: Malformed =
    Malformed { what: "a time", expected: "RFC 3339 in UTC, such as 2026-01-31T12:00:00Z" };
/// 9999-12-31T23:59:59.999Z, the last moment that RFC 3339 and X.509 can write.
const LAST: u64 = 253_402_300_799_999;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    pub const fn from_millis(millis: u64) -> Self {
        Self(if millis > LAST { LAST } else { millis })
    }

    pub const fn from_secs(secs: u64) -> Self {
        Self::from_millis(secs.saturating_mul(1000))
    }

    pub const fn millis(self) -> u64 {
        self.0
    }

    pub const fn secs(self) -> u64 {
        self.0 / 1000
    }

    /// The same moment without its fraction, as a certificate holds it.
    pub const fn whole_second(self) -> Self {
        Self(self.0 / 1000 * 1000)
    }

    pub const fn plus(self, span: Span) -> Self {
        Self::from_millis(self.0.saturating_add(span.millis()))
    }

    pub const fn minus(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.millis()))
    }

    /// How long ago `earlier` was; nothing if it is still to come.
    pub const fn since(self, earlier: Timestamp) -> Span {
        Span::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// How many milliseconds this is after another moment; negative if it is before.
    pub const fn ahead_of(self, other: Timestamp) -> i64 {
        // No moment is later than `LAST`, which is far within the bounds.
        self.0.cast_signed().saturating_sub(other.0.cast_signed())
    }

    /// Reads RFC 3339 with `Z`, with or without a fraction.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let number = |from: usize, to: usize| -> Result<u64, Malformed> {
            let digits = text.get(from..to).ok_or(MALFORMED)?;
            if !digits.bytes().all(|b| b.is_ascii_digit()) {
                return Err(MALFORMED);
            }
            digits.parse().map_err(|_| MALFORMED)
        };
        let mark = |place: usize, expected: u8| text.as_bytes().get(place) == Some(&expected);
        let marks = mark(4, b'-') && mark(7, b'-') && mark(10, b'T') && mark(13, b':') && mark(16, b':');
        let fraction = text.get(19..).and_then(|rest| rest.strip_suffix('Z')).ok_or(MALFORMED)?;
        let millis = match fraction.strip_prefix('.') {
            None if fraction.is_empty() => 0,
            Some(digits) if (1..=9).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit()) => {
                digits.bytes().chain(*b"00").take(3).fold(0, |sum, b| sum * 10 + u64::from(b - b'0'))
            }
            _ => return Err(MALFORMED),
        };
        let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
        let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
        if !marks || year < 1970 || hour > 23 || minute > 59 || second > 59 {
            return Err(MALFORMED);
        }
        let days = days_from_civil(year, month, day);
        if civil_from_days(days) != (year, month, day) {
            return Err(MALFORMED);
        }
        Ok(Self(((days * 24 + hour) * 60 + minute) * 60_000 + second * 1000 + millis))
    }
}

/// Days since 1970-01-01 in the proleptic Gregorian calendar, counting years from March.
fn days_from_civil(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month.saturating_sub(3)) };
    let day_of_year = (153 * month + 2) / 5 + day;
    let leaps = year / 4 - year / 100 + year / 400;
    (year * 365 + leaps + day_of_year).saturating_sub(719_469)
}

fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let year = year_of_era + era * 400;
    if month < 10 { (year, month + 3, day) } else { (year + 1, month - 9, day) }
}

/// RFC 3339 in UTC; a fraction only where there is one.
impl std::fmt::Display for Timestamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (secs, millis) = (self.0 / 1000, self.0 % 1000);
        let (year, month, day) = civil_from_days(secs / 86_400);
        let (hour, minute, second) = (secs / 3600 % 24, secs / 60 % 60, secs % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        if millis > 0 {
            write!(f, ".{millis:03}")?;
        }
        f.write_str("Z")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_back_as_written() {
        for text in [
            "1970-01-01T00:00:00Z",
            "1999-12-31T23:59:59Z",
            "2000-02-29T12:00:00Z",
            "2024-02-29T23:59:59.999Z",
            "2026-11-15T21:37:02.050Z",
            "2100-03-01T00:00:00Z",
            "9999-12-31T23:59:59Z",
        ] {
            assert_eq!(Timestamp::parse(text).map(|at| at.to_string()), Ok(text.to_owned()));
        }
        assert_eq!(Timestamp::parse("2026-11-15T21:37:02.5Z").map(|at| at.millis() % 1000), Ok(500));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for bad in [
            "",
            "2026-11-15",
            "2026-02-30T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-10T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-11-15T24:00:00Z",
            "2026-11-15T21:37:02+01:00",
            "2026-11-15T21:37:02.Z",
            "1969-12-31T23:59:59Z",
            "２026-11-15T21:37:02Z",
        ] {
            assert!(Timestamp::parse(bad).is_err(), "{bad}");
        }
    }
}
