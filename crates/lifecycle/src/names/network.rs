//! Networks of addresses.

use super::Malformed;
use std::net::IpAddr;

/// A network of addresses: `10.0.0.0/8`, `fd00::/8`; an address alone is the network of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let malformed = Malformed {
            what: "a network",
            expected: "an address and a number of bits, such as 10.0.0.0/8 or fd00::/8, with nothing set beyond them",
        };
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => {
                let plain = !bits.is_empty() && bits.len() <= 3 && bits.bytes().all(|b| b.is_ascii_digit());
                (address, plain.then(|| bits.parse().ok()).flatten())
            }
            None => (text, None),
        };
        let Ok(address) = address.parse::<IpAddr>() else { return Err(malformed) };
        let width = width(&address);
        let bits = if text.contains('/') { bits } else { Some(width) };
        match bits {
            Some(bits) if bits <= width && masked(&address, bits) == value(&address) => {
                Ok(Self { address, bits }.plain())
            }
            _ => Err(malformed),
        }
    }

    /// A network of IPv4-mapped IPv6 addresses is the network of the IPv4 addresses.
    fn plain(self) -> Self {
        let mapped = match &self.address {
            IpAddr::V6(v6) => v6.to_ipv4_mapped().zip(self.bits.checked_sub(96)),
            IpAddr::V4(_) => None,
        };
        mapped.map_or(self, |(v4, bits)| Self { address: IpAddr::V4(v4), bits })
    }

    /// An IPv4-mapped IPv6 address is the IPv4 address.
    pub fn contains(&self, address: &IpAddr) -> bool {
        let address = match address {
            IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(*address, IpAddr::V4),
            IpAddr::V4(_) => *address,
        };
        self.address.is_ipv4() == address.is_ipv4() && masked(&address, self.bits) == value(&self.address)
    }
}

fn width(address: &IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn value(address: &IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(u32::from(*v4)),
        IpAddr::V6(v6) => u128::from(*v6),
    }
}

fn masked(address: &IpAddr, bits: u8) -> u128 {
    let beyond = u32::from(width(address) - bits);
    let value = value(address);
    value.checked_shr(beyond).and_then(|kept| kept.checked_shl(beyond)).unwrap_or(0)
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl TryFrom<String> for Network {
    type Error = Malformed;
    fn try_from(text: String) -> Result<Self, Malformed> {
        Self::parse(&text)
    }
}

impl From<Network> for String {
    fn from(network: Network) -> String {
        network.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_lies_in_the_networks_around_it() {
        let contains = |network: &str, address: &str| {
            Network::parse(network).map(|network| network.contains(&address.parse().expect("an address")))
        };
        for (network, address, expected) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.1.2.3", true),
            ("::ffff:10.0.0.0/104", "10.1.2.3", true),
            ("::ffff:10.0.0.0/104", "::ffff:10.1.2.3", true),
            ("::ffff:10.0.0.0/104", "11.1.2.3", false),
            ("::ffff:192.0.2.7", "192.0.2.7", true),
            ("0.0.0.0/0", "192.0.2.1", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("::/0", "2001:db8::1", true),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.8", false),
            ("fd00::/8", "fdff::1", true),
        ] {
            assert_eq!(contains(network, address), Ok(expected), "{network} {address}");
        }
    }

    #[test]
    fn what_is_set_beyond_the_bits_was_meant_otherwise() {
        for text in
            ["", "10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/+8", "fd00::1/8", "::/129", "all"]
        {
            assert!(Network::parse(text).is_err(), "{text}");
        }
    }
}
