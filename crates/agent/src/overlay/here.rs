//! Where this host can be reached by others: at the addresses of the interface by which it reaches the control plane.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use super::netlink::{InterfaceAddress, Netlink};

/// One address of each family, as far as there is one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OwnAddresses {
    pub ipv4: Option<Ipv4Addr>,
    pub ipv6: Option<Ipv6Addr>,
}

impl OwnAddresses {
    pub fn is_empty(self) -> bool {
        self.ipv4.is_none() && self.ipv6.is_none()
    }

    fn put(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(address) => self.ipv4 = Some(address),
            IpAddr::V6(address) => self.ipv6 = Some(address),
        }
    }

    fn has_family_of(self, address: IpAddr) -> bool {
        if address.is_ipv4() { self.ipv4.is_some() } else { self.ipv6.is_some() }
    }
}

/// What was found in one look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Whereabouts {
    pub addresses: OwnAddresses,
    /// All addresses of this host.
    pub all: Vec<IpAddr>,
}

impl Whereabouts {
    /// By the first of these to which there is a way. `except` is an interface that does not count: the overlay's own.
    pub fn look(servers: &[SocketAddr], except: &str) -> io::Result<Self> {
        let netlink = Netlink::route()?;
        let except = netlink.link(except)?.map(|(index, _)| index);
        let mut found = netlink.addresses()?;
        found.retain(|one| Some(one.index) != except);
        let towards = servers.iter().find_map(|server| towards(*server));
        let addresses = towards.map(|local| choose(local, &found)).unwrap_or_default();
        Ok(Self { addresses, all: found.into_iter().map(|one| one.address).collect() })
    }

    /// Whether this host still has one of these addresses.
    pub fn has(&self, addresses: OwnAddresses) -> bool {
        let ipv4 = addresses.ipv4.map(IpAddr::from);
        ipv4.into_iter().chain(addresses.ipv6.map(IpAddr::from)).any(|address| self.all.contains(&address))
    }
}

/// A datagram socket that is connected has chosen its address, and has not spoken yet.
fn towards(there: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match there {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(there).ok()?;
    Some(socket.local_addr().ok()?.ip().to_canonical())
}

/// The address towards the control plane, and one of the other family from the same interface.
fn choose(local: IpAddr, found: &[InterfaceAddress]) -> OwnAddresses {
    let mut chosen = OwnAddresses::default();
    let index = found.iter().find(|one| one.address == local).map(|one| one.index);
    if !is_local_to_link(local) && !local.is_unspecified() {
        chosen.put(local);
    }
    let beside =
        |one: &&InterfaceAddress| Some(one.index) == index && one.lasting && !is_local_to_link(one.address);
    for one in found.iter().filter(beside) {
        if !chosen.has_family_of(one.address) {
            chosen.put(one.address);
        }
    }
    chosen
}

/// Means nothing elsewhere without the name of an interface.
fn is_local_to_link(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_family_is_taken_from_the_same_interface() {
        let address =
            |index, text: &str, lasting| InterfaceAddress { index, address: text.parse().unwrap(), lasting };
        let found = [
            address(1, "127.0.0.1", true),
            address(2, "192.0.2.1", true),
            address(2, "fe80::1", true),
            address(2, "2001:db8::9", false),
            address(2, "2001:db8::1", true),
            address(3, "2001:db8:3::1", true),
        ];
        let chosen = |text: &str| {
            let chosen = choose(text.parse().unwrap(), &found);
            (chosen.ipv4.map(|ip| ip.to_string()), chosen.ipv6.map(|ip| ip.to_string()))
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(chosen("192.0.2.1"), (some("192.0.2.1"), some("2001:db8::1")));
        assert_eq!(chosen("2001:db8:3::1"), (None, some("2001:db8:3::1")));
        assert_eq!(chosen("fe80::1"), (some("192.0.2.1"), some("2001:db8::1")));
        assert_eq!(chosen("0.0.0.0"), (None, None));
    }

    #[test]
    fn this_host_is_found_on_its_way_to_itself() {
        let here = Whereabouts::look(&["127.0.0.1:1".parse().unwrap()], "nosuchlink0").unwrap();
        assert_eq!(here.addresses.ipv4, Some(Ipv4Addr::LOCALHOST));
        assert!(here.has(here.addresses));
        let gone = OwnAddresses { ipv4: Some(Ipv4Addr::new(192, 0, 2, 77)), ipv6: None };
        assert!(!here.has(gone));
    }
}
