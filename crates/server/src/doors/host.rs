//! What a host says of itself when it enrolls, as every door reads it.

use crate::http::failure::Failure;
use api::agent;
use api::code;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lifecycle::names::WireguardKey;
use lifecycle::registry::Underlay;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The same as `enlist.agent.v1` writes it.
pub fn native_underlay(said: &agent::Underlay) -> Result<Underlay, Failure> {
    let given = |text: &'_ str| (!text.is_empty()).then(|| text.to_owned());
    underlay(given(&said.ipv6).as_deref(), given(&said.ipv4).as_deref(), said.port)
}

/// Where its WireGuard can be reached: at least one address. Whether others could send to it, the registry says.
pub fn underlay(ipv6: Option<&str>, ipv4: Option<&str>, port: u32) -> Result<Underlay, Failure> {
    let wrong = |expected: &str| Failure::new(code::BAD_REQUEST, format!("underlay_endpoint: {expected}"));
    let ipv6 = ipv6.map(str::parse::<Ipv6Addr>).transpose();
    let ipv6 = ipv6.map_err(|_| wrong("ipv6 must be an IPv6 address"))?;
    let ipv4 = ipv4.map(str::parse::<Ipv4Addr>).transpose();
    let ipv4 = ipv4.map_err(|_| wrong("ipv4 must be an IPv4 address"))?;
    if ipv6.is_none() && ipv4.is_none() {
        return Err(wrong("ipv6 or ipv4 is needed"));
    }
    let port = u16::try_from(port).map_err(|_| wrong("port must be 1 to 65535"))?;
    Ok(Underlay { ipv6, ipv4, port })
}

/// A WireGuard public key, base64 as `wg pubkey` prints it.
pub fn key_text(key: &WireguardKey) -> String {
    STANDARD.encode(key.as_bytes())
}
