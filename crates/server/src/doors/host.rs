//! What a host says of itself when it enrolls, as every door reads it.

use crate::http::failure::Failure;
use api::code;
use lifecycle::registry::Underlay;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where its WireGuard can be reached: at least one address that others could send to.
pub fn underlay(ipv6: Option<&str>, ipv4: Option<&str>, port: u32) -> Result<Underlay, Failure> {
    let wrong = |expected: &str| Failure::new(code::BAD_REQUEST, format!("underlay_endpoint: {expected}"));
    let ipv6 = ipv6.map(str::parse::<Ipv6Addr>).transpose();
    let ipv6 = ipv6.map_err(|_| wrong("ipv6 must be an IPv6 address"))?;
    let ipv4 = ipv4.map(str::parse::<Ipv4Addr>).transpose();
    let ipv4 = ipv4.map_err(|_| wrong("ipv4 must be an IPv4 address"))?;
    if ipv6.is_none() && ipv4.is_none() {
        return Err(wrong("ipv6 or ipv4 is needed"));
    }
    let given = ipv6.map(IpAddr::V6).into_iter().chain(ipv4.map(IpAddr::V4));
    for address in given.map(|address| address.to_canonical()) {
        let broadcast = address == IpAddr::V4(Ipv4Addr::BROADCAST);
        if address.is_unspecified() || address.is_multicast() || broadcast {
            return Err(wrong("nobody can send to a host at such an address"));
        }
    }
    match u16::try_from(port) {
        Ok(port) if port > 0 => Ok(Underlay { ipv6, ipv4, port }),
        _ => Err(wrong("port must be 1 to 65535")),
    }
}
