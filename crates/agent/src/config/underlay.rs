//! `underlay`: where this host's WireGuard can be reached. One IPv4 address, one IPv6 address, or both.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// WireGuard's usual port.
pub const PORT: u16 = 51820;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnderlayAddresses {
    ipv6: Option<Ipv6Addr>,
    ipv4: Option<Ipv4Addr>,
    port: u16,
}

impl UnderlayAddresses {
    /// Each text an address, or an address with a port, which must be the same for both.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        Self::parse_at(texts, PORT)
    }

    /// The same, with the port of those that say none.
    pub fn parse_at<'a>(texts: impl IntoIterator<Item = &'a str>, usual: u16) -> Option<Self> {
        let (mut ipv6, mut ipv4, mut port) = (None, None, None);
        for text in texts {
            let address = text.parse().map(|ip| SocketAddr::new(ip, usual)).or_else(|_| text.parse()).ok()?;
            let taken = match address.ip() {
                IpAddr::V4(ip) => ipv4.replace(ip).is_some(),
                IpAddr::V6(ip) => ipv6.replace(ip).is_some(),
            };
            let other_port = port.replace(address.port()).is_some_and(|port| port != address.port());
            if taken || other_port || address.ip().is_unspecified() || address.port() == 0 {
                return None;
            }
        }
        Some(Self { ipv6, ipv4, port: port? })
    }

    /// One of this host's own addresses, with the usual port. None for those that mean nothing elsewhere.
    pub fn at(ip: IpAddr) -> Option<Self> {
        let (ipv6, ipv4) = match ip.to_canonical() {
            ip if ip.is_unspecified() => return None,
            IpAddr::V6(ip) if ip.is_unicast_link_local() => return None,
            IpAddr::V6(ip) => (Some(ip), None),
            IpAddr::V4(ip) => (None, Some(ip)),
        };
        Some(Self { ipv6, ipv4, port: PORT })
    }

    /// These addresses of this host; none if there are none.
    pub fn of(ipv4: Option<Ipv4Addr>, ipv6: Option<Ipv6Addr>, port: u16) -> Option<Self> {
        (ipv4.is_some() || ipv6.is_some()).then_some(Self { ipv6, ipv4, port })
    }

    pub fn has_ipv4(self) -> bool {
        self.ipv4.is_some()
    }

    pub fn has_ipv6(self) -> bool {
        self.ipv6.is_some()
    }

    /// The same addresses with another port.
    pub fn with_port(self, port: u16) -> Self {
        Self { port, ..self }
    }

    /// As it is sent.
    pub fn message(self) -> api::agent::Underlay {
        api::agent::Underlay {
            ipv6: self.ipv6.map(|ip| ip.to_string()).unwrap_or_default(),
            ipv4: self.ipv4.map(|ip| ip.to_string()).unwrap_or_default(),
            port: self.port.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_means_nothing_elsewhere_is_not_told() {
        let at = |text: &str| UnderlayAddresses::at(text.parse().unwrap());
        assert_eq!(at("::ffff:192.0.2.1"), UnderlayAddresses::parse(["192.0.2.1"]));
        assert_eq!(at("2001:db8::1"), UnderlayAddresses::parse(["2001:db8::1"]));
        assert_eq!((at("fe80::1"), at("::"), at("0.0.0.0")), (None, None, None));
    }

    #[test]
    fn one_address_of_each_family_and_one_port() {
        let both = UnderlayAddresses::parse(["203.0.113.1", "2001:db8::1"]).unwrap().message();
        assert_eq!(
            (both.ipv4.as_str(), both.ipv6.as_str(), both.port),
            ("203.0.113.1", "2001:db8::1", 51820)
        );
        let one = UnderlayAddresses::parse(["[2001:db8::1]:7"]).unwrap().message();
        assert_eq!((one.ipv4.as_str(), one.ipv6.as_str(), one.port), ("", "2001:db8::1", 7));
        for bad in
            [&["host"] as &[&str], &["192.0.2.1", "192.0.2.2"], &["192.0.2.1:1", "[::1]:2"], &["::"], &[]]
        {
            assert_eq!(UnderlayAddresses::parse(bad.iter().copied()), None, "{bad:?}");
        }
    }
}
