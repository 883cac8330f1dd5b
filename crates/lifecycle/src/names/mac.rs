//! Addresses of network interfaces.

use super::Malformed;

/// The address of one network interface: never zero, and never of a group, because no machine has one of those.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac([u8; 6]);

impl Mac {
    /// Octets with colons or hyphens between them, groups of four digits with dots, or twelve digits.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let octets = octets(text).filter(|octets| *octets != [0; 6] && octets[0] & 1 == 0);
        octets.map(Self).ok_or(Malformed {
            what: "a MAC address",
            expected: "six octets such as 52:54:00:12:34:56, neither zero nor broadcast nor multicast",
        })
    }
}

fn octets(text: &str) -> Option<[u8; 6]> {
    let grouped = |separator: char, digits: usize| {
        let mut groups = text.split(separator);
        let whole = groups.all(|group| group.len() == digits);
        whole && text.matches(separator).count() == 12 / digits - 1
    };
    let well_formed = grouped(':', 2) || grouped('-', 2) || grouped('.', 4) || text.len() == 12;
    let digits: Vec<u8> = text.bytes().filter(|b| !matches!(b, b':' | b'-' | b'.')).collect();
    if !well_formed || digits.len() != 12 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut octets = [0; 6];
    for (octet, pair) in octets.iter_mut().zip(digits.chunks_exact(2)) {
        *octet = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(octets)
}

impl std::fmt::Display for Mac {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl std::fmt::Debug for Mac {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mac({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_common_spelling_is_the_same_address() {
        for text in
            ["52:54:00:ab:cd:ef", "52:54:00:AB:CD:EF", "52-54-00-ab-cd-ef", "5254.00ab.cdef", "525400ABCDEF"]
        {
            assert_eq!(
                Mac::parse(text).map(|mac| mac.to_string()),
                Ok("52:54:00:ab:cd:ef".to_owned()),
                "{text}"
            );
        }
        assert!(Mac::parse("02:00:00:00:00:01").is_ok(), "locally administered");
    }

    #[test]
    fn what_no_machine_has_is_refused() {
        for text in [
            "",
            "00:00:00:00:00:00",
            "ff:ff:ff:ff:ff:ff",
            "01:00:5e:00:00:01",
            "52:54:00:ab:cd",
            "52:54:00:ab:cd:ef:01",
            "52:54:00:ab:cd:eg",
            "52:54-00:ab:cd:ef",
            "5:25400:ab:cd:ef",
            " 525400abcdef",
            "５２５４００ＡＢＣＤＥＦ",
        ] {
            assert!(Mac::parse(text).is_err(), "{text}");
        }
    }
}
