//! Just enough DER to take what is signed apart at its top level and put it together again.

pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const BIT_STRING: u8 = 0x03;

/// The first element, tag and length included, and what follows it.
pub(crate) fn split(input: &[u8]) -> Option<(&[u8], &[u8])> {
    let (head, length) = header(input)?;
    input.split_at_checked(head.checked_add(length)?)
}

/// What the first element holds.
pub(crate) fn content(input: &[u8]) -> Option<&[u8]> {
    let (head, length) = header(input)?;
    input.get(head..head.checked_add(length)?)
}

/// One element that holds these parts in order.
pub(crate) fn wrap(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut out = Vec::with_capacity(length + 10);
    out.push(tag);
    match u8::try_from(length) {
        Ok(short) if short < 0x80 => out.push(short),
        _ => {
            let bytes = length.to_be_bytes();
            let digits = bytes.iter().skip_while(|byte| **byte == 0);
            out.push(0x80 | digits.clone().fold(0, |count, _| count + 1));
            out.extend(digits);
        }
    }
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out
}

/// Of anything signed (certificate, request): the body, the inside of the algorithm, and the signature; nothing else may be there.
pub(crate) fn signed(der: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (whole, after) = split(der)?;
    let (body, rest) = content(whole).and_then(split)?;
    let (algorithm, rest) = split(rest)?;
    let (signature, trailing) = split(rest)?;
    let (unused_bits, bytes) = content(signature)?.split_first()?;
    let tags = [whole.first(), body.first(), algorithm.first()] == [Some(&SEQUENCE); 3]
        && signature.first() == Some(&BIT_STRING);
    let exact = tags && *unused_bits == 0 && after.is_empty() && trailing.is_empty();
    exact.then_some((body, content(algorithm)?, bytes))
}

/// How long the header is, and how long it says the content is. One-byte tags only.
fn header(input: &[u8]) -> Option<(usize, usize)> {
    let first = *input.get(1)?;
    if first < 0x80 {
        return Some((2, usize::from(first)));
    }
    let digits = usize::from(first & 0x7f);
    if digits == 0 || digits > 4 {
        return None;
    }
    let length = input.get(2..2 + digits)?.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    Some((2 + digits, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_read_back_as_written() {
        for length in [0, 1, 127, 128, 255, 256, 65_535, 65_536] {
            let body = vec![9; length];
            let mut whole = wrap(SEQUENCE, &[&body]);
            assert_eq!(content(&whole).unwrap(), body);
            whole.extend_from_slice(b"rest");
            let (element, rest) = split(&whole).unwrap();
            assert_eq!((content(element).unwrap(), rest), (body.as_slice(), b"rest".as_slice()));
        }
    }

    #[test]
    fn what_is_cut_short_or_endless_is_no_element() {
        for bad in
            [&b""[..], b"\x30", b"\x30\x01", b"\x30\x80", b"\x30\x85\0\0\0\0\0", b"\x30\x84\xff\xff\xff\xff"]
        {
            assert_eq!(split(bad), None);
            assert_eq!(content(bad), None);
        }
    }
}
