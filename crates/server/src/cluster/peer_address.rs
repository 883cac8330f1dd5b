//! Addresses between replicas, `HOST:PORT`, are compared as text when a command is applied. Two spellings of one address are found here, before
//! anything is proposed. What a host name resolves to is not looked up: it may differ from machine to machine.

use lifecycle::names::ReplicaId;
use lifecycle::registry::{Rejection, State};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// `127.0.0.1:08444` is `127.0.0.1:8444`, and host names are the same in any case.
pub fn one_spelling(peer: &str) -> String {
    if let Ok(address) = peer.parse::<SocketAddr>() {
        return SocketAddr::new(address.ip().to_canonical(), address.port()).to_string();
    }
    match peer.rsplit_once(':').map(|(host, port)| (host, port.parse::<u16>())) {
        Some((host, Ok(port))) => {
            format!("{}:{port}", host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase())
        }
        Some((_, Err(_))) | None => peer.to_owned(),
    }
}

/// Refuses an address that a member other than the one that asks has given as its own, in whatever spelling.
pub fn check_free(state: &State, peer: &str, asking: Option<ReplicaId>) -> Result<(), Rejection> {
    let is_taken = state.members().any(|member| Some(member.id) != asking && is_same(&member.peer, peer));
    if is_taken { Err(Rejection::PeerAddressInUse { peer: peer.to_owned() }) } else { Ok(()) }
}

fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one_spelling(one), one_spelling(other));
    one == other || is_localhost(&one, &other) || is_localhost(&other, &one)
}

/// Whether the name is `localhost`, and this is what it stands for on every machine.
fn is_localhost(name: &str, address: &str) -> bool {
    let port = name.strip_prefix("localhost:");
    address.parse::<SocketAddr>().is_ok_and(|address| {
        let ip = address.ip();
        let is_meant = ip == Ipv4Addr::LOCALHOST || ip == Ipv6Addr::LOCALHOST;
        is_meant && port == Some(address.port().to_string().as_str())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_has_one_spelling() {
        for spelling in ["127.0.0.1:8444", "127.0.0.1:08444", "[::ffff:127.0.0.1]:8444"] {
            assert_eq!(one_spelling(spelling), "127.0.0.1:8444");
        }
        assert_eq!(one_spelling("[0:0::1]:8444"), "[::1]:8444");
        assert_eq!(one_spelling("R2.Example.org.:08444"), "r2.example.org:8444");
        assert_eq!(one_spelling("nothing"), "nothing");
    }

    #[test]
    fn localhost_is_the_loopback_address_of_either_family_and_no_other() {
        for address in ["127.0.0.1:8444", "[::1]:8444", "LOCALHOST:08444"] {
            assert!(is_same("localhost:8444", address) && is_same(address, "localhost:8444"), "{address}");
        }
        // Several replicas on one machine may have a loopback address each.
        for address in
            ["127.0.0.2:8444", "127.0.0.1:8445", "[::1]:844", "cp-1.example.org:8444", "10.0.0.1:8444"]
        {
            assert!(!is_same("localhost:8444", address) && !is_same(address, "localhost:8444"), "{address}");
        }
        assert!(!is_same("127.0.0.1:8444", "127.0.0.2:8444") && !is_same("127.0.0.1:8444", "[::1]:8444"));
    }
}
