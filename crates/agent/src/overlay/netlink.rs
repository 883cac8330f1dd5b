//! Links, addresses and routes, asked of the kernel by netlink. It answers a request while that is sent, so nothing here waits long.

use std::io;
use std::net::{IpAddr, Ipv6Addr};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkBuffer,
    NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::Socket;
use netlink_sys::SocketAddr as KernelAddress;
use netlink_sys::protocols::NETLINK_ROUTE;
use rustix::io::Errno;

/// How many datagrams the answer to one question may have: more than a dump of all peers of the largest overlay.
const MOST_DATAGRAMS: usize = 100_000;

pub struct Netlink(Socket);

/// An address of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterfaceAddress {
    pub index: u32,
    pub address: IpAddr,
    /// Neither tentative, deprecated, temporary nor of the link alone.
    pub lasting: bool,
}

impl Netlink {
    pub fn route() -> io::Result<Self> {
        Self::of(NETLINK_ROUTE)
    }

    pub fn of(protocol: isize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&KernelAddress::new(0, 0))?;
        Ok(Self(socket))
    }

    /// Asks, and gives all that was answered.
    pub fn ask<M>(&self, payload: M, flags: u16) -> io::Result<Vec<M>>
    where
        M: NetlinkSerializable + NetlinkDeserializable,
    {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = 1;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(payload));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.0.send(&bytes, 0)?;
        let mut answers = Vec::new();
        for _ in 0..MOST_DATAGRAMS {
            let (datagram, _) = self.0.recv_from_full()?;
            let mut rest = datagram.as_slice();
            while !rest.is_empty() {
                let length = NetlinkBuffer::new_checked(rest).map_err(io::Error::other)?.length();
                let answer = NetlinkMessage::<M>::deserialize(rest).map_err(io::Error::other)?;
                match answer.payload {
                    NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
                    NetlinkPayload::Error(_) | NetlinkPayload::Done(_) => return Ok(answers),
                    NetlinkPayload::InnerMessage(inner) => answers.push(inner),
                    _ => {}
                }
                let aligned = usize::try_from(length).unwrap_or(usize::MAX).next_multiple_of(4);
                rest = rest.get(aligned..).unwrap_or_default();
            }
        }
        Err(io::Error::other("the kernel's answer does not end"))
    }

    /// The number and the kind of the interface of this name, if there is one.
    pub fn link(&self, name: &str) -> io::Result<Option<(u32, Option<InfoKind>)>> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        let found = match self.ask(RouteNetlinkMessage::GetLink(message), NLM_F_ACK) {
            Err(error) if is(&error, Errno::NODEV) => return Ok(None),
            found => found?,
        };
        let link = found.into_iter().find_map(|message| match message {
            RouteNetlinkMessage::NewLink(link) => Some(link),
            _ => None,
        });
        Ok(link.map(|link| (link.header.index, kind(&link))))
    }

    /// A new interface of the kernel's own WireGuard.
    pub fn create_wireguard(&self, name: &str) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.attributes = vec![
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Wireguard)]),
        ];
        self.done(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    pub fn delete_link(&self, index: u32) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        self.done(RouteNetlinkMessage::DelLink(message), 0)
    }

    pub fn set_mtu(&self, index: u32, mtu: u32) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes.push(LinkAttribute::Mtu(mtu));
        self.done(RouteNetlinkMessage::SetLink(message), 0)
    }

    pub fn set_up(&self, index: u32) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        self.done(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Gives the interface this address alone, without asking the network whether somebody else has it: the registry knows.
    pub fn set_address(&self, index: u32, address: Ipv6Addr) -> io::Result<()> {
        self.done(RouteNetlinkMessage::NewAddress(host_address(index, address)), NLM_F_CREATE | NLM_F_REPLACE)
    }

    pub fn delete_address(&self, index: u32, address: Ipv6Addr) -> io::Result<()> {
        self.done(RouteNetlinkMessage::DelAddress(host_address(index, address)), 0)
    }

    /// What begins with the first bits of this address is behind the interface.
    pub fn set_route(&self, index: u32, address: Ipv6Addr, length: u8) -> io::Result<()> {
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet6;
        message.header.destination_prefix_length = length;
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Static;
        message.header.scope = RouteScope::Link;
        message.header.kind = RouteType::Unicast;
        message.attributes = vec![
            RouteAttribute::Destination(RouteAddress::Inet6(prefix(address, length))),
            RouteAttribute::Oif(index),
        ];
        // Never in the place of one that is there.
        match self.done(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL) {
            Err(error) if is(&error, Errno::EXIST) => {
                let is_ours = |route: &KernelRoute| {
                    route.index == index
                        && (route.destination, route.length) == (prefix(address, length), length)
                };
                if self.routes()?.iter().any(is_ours) { Ok(()) } else { Err(error) }
            }
            done => done,
        }
    }

    /// What of another interface a network on this one would take over: an address, a route of its own link, or a route to the very
    /// same network.
    pub fn conflict(&self, index: u32, address: Ipv6Addr, length: u8) -> io::Result<Option<String>> {
        let inside = |found: &InterfaceAddress| match found.address {
            IpAddr::V6(ip) => found.index != index && prefix(ip, length) == prefix(address, length),
            IpAddr::V4(_) => false,
        };
        if let Some(found) = self.addresses()?.into_iter().find(inside) {
            return Ok(Some(format!("the address {} of {}", found.address, self.shown(found.index))));
        }
        let routes = self.routes()?;
        let route = routes.iter().find(|route| route.index != index && route.is_in_the_way(address, length));
        Ok(route.map(|route| {
            format!("the route {}/{} of {}", route.destination, route.length, self.shown(route.index))
        }))
    }

    /// The routes of IPv6 in the main table.
    fn routes(&self) -> io::Result<Vec<KernelRoute>> {
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet6;
        let found = self.ask(RouteNetlinkMessage::GetRoute(message), NLM_F_DUMP)?;
        let route = |message| match message {
            RouteNetlinkMessage::NewRoute(message) => KernelRoute::of(&message),
            _ => None,
        };
        Ok(found.into_iter().filter_map(route).collect())
    }

    /// The name of the interface of this number, if there is one.
    pub fn link_name(&self, index: u32) -> io::Result<Option<String>> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        let found = match self.ask(RouteNetlinkMessage::GetLink(message), NLM_F_ACK) {
            Err(error) if is(&error, Errno::NODEV) => return Ok(None),
            found => found?,
        };
        let name = |attribute| match attribute {
            LinkAttribute::IfName(name) => Some(name),
            _ => None,
        };
        Ok(found.into_iter().find_map(|message| match message {
            RouteNetlinkMessage::NewLink(link) => link.attributes.into_iter().find_map(name),
            _ => None,
        }))
    }

    fn shown(&self, index: u32) -> String {
        self.link_name(index).ok().flatten().unwrap_or_else(|| format!("interface {index}"))
    }

    /// Of all interfaces.
    pub fn addresses(&self) -> io::Result<Vec<InterfaceAddress>> {
        let found = self.ask(RouteNetlinkMessage::GetAddress(AddressMessage::default()), NLM_F_DUMP)?;
        let address = |message| match message {
            RouteNetlinkMessage::NewAddress(message) => interface_address(&message),
            _ => None,
        };
        Ok(found.into_iter().filter_map(address).collect())
    }

    fn done(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.ask(message, flags | NLM_F_ACK).map(|_| ())
    }
}

/// A route of IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KernelRoute {
    index: u32,
    destination: Ipv6Addr,
    length: u8,
    /// To the link itself, not by a gateway.
    on_link: bool,
}

impl KernelRoute {
    fn of(message: &RouteMessage) -> Option<Self> {
        if message.header.table != RouteHeader::RT_TABLE_MAIN {
            return None;
        }
        let mut route = Self {
            index: 0,
            destination: Ipv6Addr::UNSPECIFIED,
            length: message.header.destination_prefix_length,
            on_link: message.header.kind == RouteType::Unicast,
        };
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Oif(index) => route.index = *index,
                RouteAttribute::Destination(RouteAddress::Inet6(destination)) => {
                    route.destination = *destination;
                }
                RouteAttribute::Gateway(_) | RouteAttribute::Via(_) | RouteAttribute::MultiPath(_) => {
                    route.on_link = false;
                }
                _ => {}
            }
        }
        Some(route)
    }

    fn is_in_the_way(&self, address: Ipv6Addr, length: u8) -> bool {
        let shorter = self.length.min(length);
        let overlaps = prefix(self.destination, shorter) == prefix(address, shorter);
        // The default route is for what nobody else has.
        overlaps && self.length > 0 && (self.on_link || self.length == length)
    }
}

/// The first bits of an address.
pub fn prefix(address: Ipv6Addr, length: u8) -> Ipv6Addr {
    let rest = 128_u32.saturating_sub(length.into());
    let mask = u128::MAX.checked_shl(rest).unwrap_or(0);
    Ipv6Addr::from(u128::from(address) & mask)
}

pub fn is(error: &io::Error, errno: Errno) -> bool {
    Errno::from_io_error(error) == Some(errno)
}

fn kind(link: &LinkMessage) -> Option<InfoKind> {
    link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::LinkInfo(infos) => infos.iter().find_map(|info| match info {
            LinkInfo::Kind(kind) => Some(kind.clone()),
            _ => None,
        }),
        _ => None,
    })
}

fn host_address(index: u32, address: Ipv6Addr) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet6;
    message.header.prefix_len = 128;
    message.header.scope = AddressScope::Universe;
    message.header.index = index;
    message.attributes = vec![
        AddressAttribute::Local(address.into()),
        AddressAttribute::Address(address.into()),
        AddressAttribute::Flags(AddressFlags::Nodad),
    ];
    message
}

fn interface_address(message: &AddressMessage) -> Option<InterfaceAddress> {
    let named = |attribute: &AddressAttribute| match attribute {
        // That of a point-to-point link is the other side's, where it has one of its own too.
        AddressAttribute::Local(address) => Some((*address, true)),
        AddressAttribute::Address(address) => Some((*address, false)),
        _ => None,
    };
    let found: Vec<(IpAddr, bool)> = message.attributes.iter().filter_map(named).collect();
    let (address, _) = *found.iter().find(|(_, local)| *local).or_else(|| found.first())?;
    let flags = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Flags(flags) => Some(*flags),
        _ => None,
    });
    let passing = AddressFlags::Tentative | AddressFlags::Deprecated | AddressFlags::Dadfailed;
    // Temporary addresses of IPv6 are those that are secondary.
    let temporary = address.is_ipv6() && flags.is_some_and(|flags| flags.intersects(AddressFlags::Secondary));
    let lasting = message.header.scope != AddressScope::Link
        && !flags.is_some_and(|flags| flags.intersects(passing))
        && !temporary;
    Some(InterfaceAddress { index: message.header.index, address, lasting })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_the_first_bits() {
        let address: Ipv6Addr = "fd12:3456:789a::101".parse().unwrap();
        assert_eq!(prefix(address, 48).to_string(), "fd12:3456:789a::");
        assert_eq!(prefix(address, 128), address);
        assert_eq!(prefix(address, 0), Ipv6Addr::UNSPECIFIED);
    }

    #[test]
    fn a_network_takes_over_no_route_of_another_interface() {
        let route = |destination: &str, length, on_link| KernelRoute {
            index: 2,
            destination: destination.parse().unwrap(),
            length,
            on_link,
        };
        let address: Ipv6Addr = "fd12:3456:789a::101".parse().unwrap();
        for (destination, length, on_link, expected) in [
            ("fd12:3456:789a::", 64, true, true),
            ("fd12:3456:789a::", 64, false, true),
            ("fd12:3456::", 32, true, true),
            ("fd12:3456::", 32, false, false),
            ("fd12:3456:789a::100", 120, true, true),
            ("fd12:3456:789a::100", 120, false, false),
            ("fd12:3456:789b::", 64, true, false),
            ("::", 0, true, false),
        ] {
            let route = route(destination, length, on_link);
            assert_eq!(route.is_in_the_way(address, 64), expected, "{route:?}");
        }
    }

    #[test]
    fn the_kernel_knows_its_loopback_and_no_interface_that_is_not_there() {
        let netlink = Netlink::route().unwrap();
        assert!(netlink.link("lo").unwrap().is_some());
        assert_eq!(netlink.link("nosuchlink0").unwrap(), None);
        let (index, _) = netlink.link("lo").unwrap().unwrap();
        assert_eq!(netlink.link_name(index).unwrap().as_deref(), Some("lo"));
        assert_eq!(netlink.link_name(0x7fff_fff0).unwrap(), None);
        let there: Ipv6Addr = "fd99:9999::1".parse().unwrap();
        assert_eq!(netlink.conflict(0, there, 64).unwrap(), None);
        let addresses = netlink.addresses().unwrap();
        assert!(addresses.iter().any(|found| found.address.is_loopback()), "{addresses:?}");
    }
}
