//! Looks over MessagePack before it is decoded: a decoder that reads a stream makes room for what a length
//! claims, so no length may claim more than there is.

use std::io::{self, BufRead, Read};

/// Nothing in the registry is longer: certificates and requests are a few kilobytes.
const LONGEST: u64 = 1 << 20;

/// Whether so many values, and nothing after them, are in the next `left` bytes, none longer than it may be.
pub fn check(mut from: impl BufRead, values: u64, mut left: u64) -> io::Result<bool> {
    let mut due = values;
    while due > 0 {
        let Some(marker) = bytes::<1>(&mut from, &mut left)?.map(|[marker]| marker) else { return Ok(false) };
        due -= 1;
        // The size of the length, what it is of, and what is fixed beside it.
        let (length, unit) = match marker {
            0x00..=0x7f | 0xe0..=0xff | 0xc0 | 0xc2 | 0xc3 => continue,
            0x80..=0x8f => (Length::Known(u64::from(marker & 0x0f)), LengthUnit::Pairs),
            0x90..=0x9f => (Length::Known(u64::from(marker & 0x0f)), LengthUnit::Values),
            0xa0..=0xbf => (Length::Known(u64::from(marker & 0x1f)), LengthUnit::Bytes(0)),
            0xc4 | 0xd9 => (Length::One, LengthUnit::Bytes(0)),
            0xc5 | 0xda => (Length::Two, LengthUnit::Bytes(0)),
            0xc6 | 0xdb => (Length::Four, LengthUnit::Bytes(0)),
            0xc7 => (Length::One, LengthUnit::Bytes(1)),
            0xc8 => (Length::Two, LengthUnit::Bytes(1)),
            0xc9 => (Length::Four, LengthUnit::Bytes(1)),
            0xcc | 0xd0 => (Length::Known(1), LengthUnit::Bytes(0)),
            0xcd | 0xd1 => (Length::Known(2), LengthUnit::Bytes(0)),
            0xca | 0xce | 0xd2 => (Length::Known(4), LengthUnit::Bytes(0)),
            0xcb | 0xcf | 0xd3 => (Length::Known(8), LengthUnit::Bytes(0)),
            0xd4..=0xd8 => (Length::Known(1 << (marker - 0xd4)), LengthUnit::Bytes(1)),
            0xdc => (Length::Two, LengthUnit::Values),
            0xdd => (Length::Four, LengthUnit::Values),
            0xde => (Length::Two, LengthUnit::Pairs),
            0xdf => (Length::Four, LengthUnit::Pairs),
            0xc1 => return Ok(false),
        };
        let length = match length {
            Length::Known(length) => Some(length),
            Length::One => bytes::<1>(&mut from, &mut left)?.map(|[length]| u64::from(length)),
            Length::Two => bytes(&mut from, &mut left)?.map(|length| u64::from(u16::from_be_bytes(length))),
            Length::Four => bytes(&mut from, &mut left)?.map(|length| u64::from(u32::from_be_bytes(length))),
        };
        let Some(length) = length else { return Ok(false) };
        match unit {
            LengthUnit::Values => due = due.saturating_add(length),
            LengthUnit::Pairs => due = due.saturating_add(length.saturating_mul(2)),
            LengthUnit::Bytes(beside) => {
                let whole = length + beside;
                if length > LONGEST || whole > left {
                    return Ok(false);
                }
                left -= whole;
                io::copy(&mut from.by_ref().take(whole), &mut io::sink())?;
            }
        }
        // Every value is at least a byte.
        if due > left {
            return Ok(false);
        }
    }
    Ok(left == 0)
}

enum Length {
    Known(u64),
    One,
    Two,
    Four,
}

enum LengthUnit {
    Values,
    Pairs,
    /// And so many more.
    Bytes(u64),
}

fn bytes<const N: usize>(from: &mut impl Read, left: &mut u64) -> io::Result<Option<[u8; N]>> {
    let Some(rest) = left.checked_sub(N as u64) else { return Ok(None) };
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    *left = rest;
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(data: &[u8], values: u64) -> bool {
        check(data, values, data.len() as u64).expect("reads")
    }

    #[test]
    fn what_is_whole_fits() {
        let value = (1u8, "text", vec![1.5f64, -7.0], Some(u64::MAX), [(1i32, i64::MIN)], ());
        let bytes = rmp_serde::to_vec_named(&value).expect("encodes");
        assert!(fits(&bytes, 1));
        assert!(!fits(&bytes, 2));
        for end in 0..bytes.len() {
            assert!(!fits(&bytes[..end], 1), "cut at {end}");
        }
        let map = std::collections::BTreeMap::from([("k", "x".repeat(70_000))]);
        assert!(fits(&rmp_serde::to_vec_named(&map).expect("encodes"), 1));
    }

    #[test]
    fn a_length_that_claims_more_than_there_is_does_not() {
        for claim in [[0xdb, 0xff, 0xff, 0xff, 0xff], [0xc6, 0, 0x10, 0, 1], [0xdf, 0xff, 0xff, 0xff, 0xff]] {
            assert!(!fits(&claim, 1), "{claim:?}");
        }
        let mut long = vec![0xc6, 0, 0x20, 0, 0];
        long.resize(5 + (1 << 21), 0);
        assert!(!fits(&long, 1), "longer than anything is");
        assert!(!fits(&[0xc1], 1));
    }
}
