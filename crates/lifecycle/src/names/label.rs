//! What a caller says about itself: recorded, never believed.

use super::Malformed;
use std::net::IpAddr;
use std::sync::Arc;

/// 1 to 128 visible ASCII characters: request and correlation ids that callers bring.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Label(Arc<str>);

impl Label {
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        if (1..=128).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic()) {
            Ok(Self(text.into()))
        } else {
            Err(Malformed { what: "a label", expected: "1 to 128 visible ASCII characters" })
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for Label {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Label {
    type Error = Malformed;
    fn try_from(text: String) -> Result<Self, Malformed> {
        Self::parse(&text)
    }
}

impl From<Label> for String {
    fn from(label: Label) -> String {
        label.0.as_ref().to_owned()
    }
}

/// Where a request came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Over the network.
    Address(IpAddr),
    /// Over the operator socket.
    Socket,
    /// From the control plane itself.
    Internal,
}

impl Source {
    /// The address of one that came over the network.
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            Source::Address(address) => Some(*address),
            Source::Socket | Source::Internal => None,
        }
    }

    /// The network that refusals are counted by: /24 or /56.
    pub fn prefix(&self) -> Source {
        match self {
            Source::Address(IpAddr::V4(v4)) => {
                let [a, b, c, _] = v4.octets();
                Source::Address(IpAddr::from([a, b, c, 0]))
            }
            Source::Address(IpAddr::V6(v6)) => match v6.to_ipv4_mapped() {
                Some(v4) => Source::Address(IpAddr::V4(v4)).prefix(),
                None => Source::Address(IpAddr::from((u128::from(*v6) >> 72 << 72).to_be_bytes())),
            },
            Source::Socket | Source::Internal => *self,
        }
    }

    /// The networks that shares of capacity are counted by, and failures by the largest of them; the largest first: /48, /56 and
    /// /64 of IPv6; /24 and the address itself of IPv4. A site that is given a /48 is one network, and not as many as it can cut
    /// from it.
    pub fn networks(&self) -> Vec<Source> {
        match self {
            Source::Address(IpAddr::V4(_)) => vec![self.prefix(), *self],
            Source::Address(IpAddr::V6(v6)) => match v6.to_ipv4_mapped() {
                Some(v4) => Source::Address(IpAddr::V4(v4)).networks(),
                None => {
                    let of = |bits: u32| u128::from(*v6) >> (128 - bits) << (128 - bits);
                    [48, 56, 64].map(|bits| Source::Address(IpAddr::from(of(bits).to_be_bytes()))).into()
                }
            },
            Source::Socket | Source::Internal => vec![*self],
        }
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Address(address) => address.fmt(f),
            Source::Socket => f.write_str("socket"),
            Source::Internal => f.write_str("internal"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_counted_by_their_network() {
        let of = |text: &str| text.parse().map(|ip| Source::Address(ip).prefix().to_string());
        assert_eq!(of("192.0.2.77"), Ok("192.0.2.0".to_owned()));
        assert_eq!(of("::ffff:192.0.2.77"), Ok("192.0.2.0".to_owned()));
        assert_eq!(of("2001:db8:1:2fff::9"), Ok("2001:db8:1:2f00::".to_owned()));
    }

    #[test]
    fn shares_are_counted_by_every_size_of_network() {
        let of = |text: &str| -> Vec<String> {
            let source = Source::Address(text.parse().expect("an address"));
            source.networks().iter().map(ToString::to_string).collect()
        };
        assert_eq!(of("192.0.2.77"), ["192.0.2.0", "192.0.2.77"]);
        assert_eq!(of("::ffff:192.0.2.77"), ["192.0.2.0", "192.0.2.77"]);
        assert_eq!(of("2001:db8:1:2fff:3::9"), ["2001:db8:1::", "2001:db8:1:2f00::", "2001:db8:1:2fff::"]);
    }
}
