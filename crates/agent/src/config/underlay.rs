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
        Self::check(texts, usual).ok()
    }

    /// The same, with the rule that is broken.
    pub fn check<'a>(texts: impl IntoIterator<Item = &'a str>, usual: u16) -> Result<Self, &'static str> {
        let (mut ipv6, mut ipv4, mut port) = (None, None, None);
        for text in texts {
            let address = text.parse().map(|ip| SocketAddr::new(ip, usual)).or_else(|_| text.parse());
            let address: SocketAddr = address.map_err(|_| "not an address, with or without a port")?;
            if let Some(broken) = means_nothing_elsewhere(address.ip()) {
                return Err(broken);
            }
            let taken = match address.ip() {
                IpAddr::V4(ip) => ipv4.replace(ip).is_some(),
                IpAddr::V6(ip) => ipv6.replace(ip).is_some(),
            };
            let other_port = port.replace(address.port()).is_some_and(|port| port != address.port());
            if taken {
                return Err("two addresses of one family");
            }
            if other_port {
                return Err("two ports");
            }
            if address.port() == 0 {
                return Err("port 0");
            }
        }
        Ok(Self { ipv6, ipv4, port: port.ok_or("no address")? })
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

/// Why others cannot send there, if they cannot. Loopback may be where all hosts are on one machine; the control plane judges that.
fn means_nothing_elsewhere(ip: IpAddr) -> Option<&'static str> {
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    let rules = [
        (ip.is_unspecified(), "the unspecified address"),
        (ip.is_multicast(), "a multicast address"),
        (ip == IpAddr::V4(Ipv4Addr::BROADCAST), "the broadcast address"),
        (link_local, "a link-local address"),
        (ip != ip.to_canonical(), "an IPv4 address written as IPv6"),
    ];
    rules.into_iter().find_map(|(broken, what)| broken.then_some(what))
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
        for (bad, rule) in [
            ("fe80::1", "a link-local address"),
            ("169.254.3.4", "a link-local address"),
            ("ff02::1", "a multicast address"),
            ("::ffff:192.0.2.1", "an IPv4 address written as IPv6"),
            ("2001:db8::1:51820:", "not an address, with or without a port"),
            ("192.0.2.1:0", "port 0"),
        ] {
            assert_eq!(UnderlayAddresses::check([bad], PORT), Err(rule), "{bad}");
        }
    }
}
