//! The overlay on this host: a WireGuard interface that follows what the control plane says.
//!
//! One seam, [`OverlayBackend`], with two kinds behind it: WireGuard in this process (`userspace`) and the kernel's own (`kernel`). Which
//! peers there are is decided by `peer_set`, what has to be changed by `difference`; `worker` owns the interface and brings it to what
//! is wanted. Nothing of this runs, and no thread is started, on a host without an overlay.

mod backend;
pub mod claim;
mod contacts;
pub mod control_socket;
pub mod difference;
pub mod here;
mod kernel;
pub mod netlink;
pub mod peer_set;
pub mod reason;
pub mod stored;
mod userspace;
pub mod worker;

use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

use pki::wireguard::{WireguardPrivate, WireguardPublic};

pub use backend::{Backend, OverlayBackend};
pub use reason::{Unavailable, UnavailableReason};

/// The interface as it is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceSpec {
    pub name: String,
    pub port: u16,
    pub key: WireguardPrivate,
    pub address: Ipv6Addr,
    /// How many bits of the address are the overlay's.
    pub prefix_length: u8,
    pub mtu: u32,
}

/// A peer as it is wanted. It may send from its address alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerSpec {
    pub key: WireguardPublic,
    pub address: Ipv6Addr,
    pub endpoint: Option<SocketAddr>,
    /// Seconds between keepalives.
    pub keepalive: Option<u16>,
}

/// A peer as the interface has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundPeer {
    pub key: WireguardPublic,
    /// With the number of bits that count.
    pub allowed: Vec<(std::net::IpAddr, u8)>,
    pub endpoint: Option<SocketAddr>,
    pub keepalive: Option<u16>,
    pub last_handshake: Option<Duration>,
    pub received_bytes: u64,
    pub sent_bytes: u64,
}
