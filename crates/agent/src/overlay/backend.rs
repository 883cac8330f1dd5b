//! The seam: an interface with peers, whichever kind it is.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::Duration;

use pki::wireguard::{WireguardPrivate, WireguardPublic};
use rustix::io::Errno;
use tokio::time::{Instant, sleep};

use super::difference::PeerChanges;
use super::kernel::{self, KernelOverlay};
use super::netlink::{Netlink, is, prefix};
use super::reason::Unavailable;
use super::userspace::UserspaceOverlay;
use super::{FoundPeer, InterfaceSpec};

/// How long a removed interface may take to go, and how often that is looked at.
const GONE: Duration = Duration::from_secs(6);
const GONE_LOOK: Duration = Duration::from_millis(20);
const CONFLICT: &str = "see `ip -6 address` and `ip -6 route`; take that address or route away, if it is none of this host's network, or have the overlay's prefix changed";

/// `overlay.backend`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// The kernel's, where it has WireGuard, else our own.
    Auto,
    Userspace,
    Kernel,
    Off,
}

impl Backend {
    pub const NAMES: &[&str] = &["auto", "userspace", "kernel", "off"];

    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "auto" => Some(Self::Auto),
            "userspace" => Some(Self::Userspace),
            "kernel" => Some(Self::Kernel),
            "off" => Some(Self::Off),
            _ => None,
        }
    }
}

pub enum OverlayBackend {
    Userspace(Box<UserspaceOverlay>),
    Kernel(KernelOverlay),
}

impl OverlayBackend {
    /// Makes the interface and brings it up, without peers.
    pub async fn start(
        backend: Backend,
        spec: &InterfaceSpec,
        netlink: &Netlink,
    ) -> Result<Self, Unavailable> {
        let in_kernel = match backend {
            Backend::Auto => kernel::family().is_ok(),
            Backend::Kernel => true,
            Backend::Userspace | Backend::Off => false,
        };
        let overlay = match in_kernel {
            true => Self::Kernel(KernelOverlay::start(spec, netlink)?),
            false => Self::Userspace(Box::new(UserspaceOverlay::start(spec, netlink).await?)),
        };
        match overlay.configure(spec, netlink) {
            Ok(()) => Ok(overlay),
            Err(unavailable) => {
                overlay.stop(netlink).await;
                Err(unavailable)
            }
        }
    }

    /// `userspace` or `kernel`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Userspace(_) => "userspace",
            Self::Kernel(_) => "kernel",
        }
    }

    fn index(&self) -> u32 {
        match self {
            Self::Userspace(overlay) => overlay.index(),
            Self::Kernel(overlay) => overlay.index(),
        }
    }

    /// Address, route and link state.
    fn configure(&self, spec: &InterfaceSpec, netlink: &Netlink) -> Result<(), Unavailable> {
        let index = self.index();
        let network = format!("{}/{}", prefix(spec.address, spec.prefix_length), spec.prefix_length);
        let conflict = netlink
            .conflict(index, spec.address, spec.prefix_length)
            .map_err(|error| Unavailable::of_io("the routes could not be read", &error))?;
        if let Some(conflict) = conflict {
            let what = format!("the overlay's network {network} would take over {conflict}");
            return Err(Unavailable::failed(what).with(CONFLICT));
        }
        netlink
            .set_up(index)
            .map_err(|error| Unavailable::of_io("the interface could not be brought up", &error))?;
        netlink.set_address(index, spec.address).map_err(|error| match is(&error, Errno::ACCESS) {
            // So the kernel answers where IPv6 is switched off.
            true => Unavailable::failed(format!("IPv6 is disabled on {}: {error}", spec.name)),
            false => Unavailable::of_io("the address could not be set", &error),
        })?;
        netlink
            .set_route(index, spec.address, spec.prefix_length)
            .map_err(|error| Unavailable::of_io(&format!("the route to {network} could not be set"), &error))
    }

    /// Whether the interface is still there.
    pub fn is_there(&self, spec: &InterfaceSpec, netlink: &Netlink) -> bool {
        matches!(netlink.link(&spec.name), Ok(Some((index, _))) if index == self.index())
    }

    pub async fn apply(&mut self, changes: &PeerChanges) -> Result<(), Unavailable> {
        match self {
            Self::Userspace(overlay) => overlay.apply(changes).await,
            Self::Kernel(overlay) => overlay.apply(changes),
        }
    }

    pub async fn set_key(&mut self, key: &WireguardPrivate) -> Result<(), Unavailable> {
        match self {
            Self::Userspace(overlay) => overlay.set_key(key).await,
            Self::Kernel(overlay) => overlay.set_key(key),
        }
    }

    /// This host is elsewhere, and what is sent from there is to say so. A kernel sends a keepalive in the session that it has.
    pub async fn forget_sessions(&mut self, with: &HashSet<WireguardPublic>) -> Result<(), Unavailable> {
        match self {
            Self::Userspace(overlay) => overlay.forget_sessions(with).await,
            Self::Kernel(_) => Ok(()),
        }
    }

    /// Begins a handshake with this peer without waiting for its end.
    pub fn handshake(&mut self, key: WireguardPublic) {
        match self {
            Self::Userspace(overlay) => overlay.handshake(key),
            Self::Kernel(overlay) => overlay.handshake(key),
        }
    }

    /// By the interface's own word.
    pub async fn peers(&self) -> Result<Vec<FoundPeer>, Unavailable> {
        match self {
            Self::Userspace(overlay) => Ok(overlay.peers().await),
            Self::Kernel(overlay) => overlay.peers(),
        }
    }

    /// The interface is gone, and its port free, when this returns, unless it takes very long.
    pub async fn stop(self, netlink: &Netlink) {
        let index = self.index();
        let port = match &self {
            Self::Userspace(overlay) => Some(overlay.port()),
            // With the interface.
            Self::Kernel(_) => None,
        };
        match self {
            Self::Userspace(overlay) => overlay.stop().await,
            Self::Kernel(overlay) => overlay.stop(netlink),
        }
        // Tasks of the tunnel that end, and whoever asks at the control socket, may hold the device and its port for a moment.
        let end = Instant::now() + GONE;
        let is_there = || matches!(netlink.link_name(index), Ok(Some(_))) || port.is_some_and(is_taken);
        while Instant::now() < end && is_there() {
            sleep(GONE_LOOK).await;
        }
    }
}

/// Whether a UDP port is in use.
fn is_taken(port: u16) -> bool {
    let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let taken = |error: io::Error| error.kind() == io::ErrorKind::AddrInUse;
    any.into_iter().any(|any| UdpSocket::bind((any, port)).is_err_and(taken))
}
