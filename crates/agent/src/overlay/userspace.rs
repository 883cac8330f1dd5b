//! WireGuard in this process: gotatun between a TUN device and a UDP socket.
//!
//! The interface lives as long as the process has its TUN device open, however the process ends.

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::FileTypeExt as _;
use std::sync::Arc;
use std::time::Duration;

use gotatun::device::{self, Device, Peer};
use gotatun::tun::tun;
use gotatun::tun::tun_async_device::TunDevice;
use gotatun::udp::socket::{UdpSocket, UdpSocketFactory};
use gotatun::udp::{UdpTransportFactory, UdpTransportFactoryParams};
use gotatun::x25519::{PublicKey, StaticSecret};
use pki::wireguard::{WireguardPrivate, WireguardPublic};
use rustix::io::Errno;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::control_socket::ControlSocket;
use super::difference::PeerChanges;
use super::netlink::Netlink;
use super::reason::{Unavailable, UnavailableReason};
use super::{FoundPeer, InterfaceSpec, PeerSpec};

const TUN: &str = "/dev/net/tun";
/// How long the answer to a handshake is waited for; the tunnel itself goes on trying.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Where more peers than this go at once, all are taken away and the others put back: each removal looks at every peer.
const REMOVED_ONE_BY_ONE: usize = 256;
/// Room for what comes in while this process is not running; the kernel gives less where its limit is lower.
const RECEIVE_BUFFER: usize = 4 << 20;

pub type TunnelDevice = Device<(OneSocket, TunDevice, TunDevice)>;

/// Binds once: another key makes the tunnel open its socket anew while the one before is still being closed, and the port would be
/// in use by itself.
pub struct OneSocket {
    factory: UdpSocketFactory,
    bound: Option<UdpSocket>,
}

impl UdpTransportFactory for OneSocket {
    type Send = UdpSocket;
    type Recv = UdpSocket;

    async fn bind(&mut self, params: &UdpTransportFactoryParams) -> io::Result<(UdpSocket, UdpSocket)> {
        let socket = match &self.bound {
            Some(bound) => bound.clone(),
            None => self.factory.bind(params).await?.0,
        };
        self.bound = Some(socket.clone());
        Ok((socket.clone(), socket))
    }
}

pub struct UserspaceOverlay {
    device: Arc<TunnelDevice>,
    index: u32,
    port: u16,
    handshakes: JoinSet<()>,
    /// Its file is removed with it.
    _control: Option<ControlSocket>,
}

impl UserspaceOverlay {
    /// Without an address, and not up. The port is taken before there is a first peer, so that one in use is found at once.
    pub async fn start(spec: &InterfaceSpec, netlink: &Netlink) -> Result<Self, Unavailable> {
        match std::fs::metadata(TUN) {
            Ok(found) if !found.file_type().is_char_device() => {
                let what = format!("{TUN} is not a device");
                return Err(Unavailable::new(UnavailableReason::NoTunDevice, what));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(no_tun(&error)),
            _ => {}
        }
        // Of a TUN device that somebody made to stay, the kernel would give us this one.
        let there = netlink.link(&spec.name).map_err(|error| Unavailable::of_io("netlink", &error))?;
        if there.is_some() {
            let what = format!("there is an interface {} already", spec.name);
            return Err(Unavailable::new(UnavailableReason::InterfaceInUse, what));
        }
        OpenOptions::new().read(true).write(true).open(TUN).map_err(|error| no_tun(&error))?;
        let mut config = tun::Configuration::default();
        // Everything else is done by netlink.
        config.tun_name(&spec.name).platform_config(|platform| {
            platform.ensure_root_privileges(false);
        });
        let tun = tun::create_as_async(&config).map_err(|error| not_made(&spec.name, &error))?;
        let link = netlink.link(&spec.name).map_err(|error| Unavailable::of_io("netlink", &error))?;
        let (index, _) = link.ok_or_else(|| Unavailable::failed("the new interface is not there"))?;
        // Before the tunnel reads it.
        netlink
            .set_mtu(index, spec.mtu)
            .map_err(|error| Unavailable::of_io("the MTU could not be set", &error))?;
        let tun = TunDevice::from_tun_device(tun).map_err(|error| Unavailable::failed(error.to_string()))?;
        let factory = UdpSocketFactory { recv_buffer_size: Some(RECEIVE_BUFFER), send_buffer_size: None };
        let device = device::build()
            .with_udp(OneSocket { factory, bound: None })
            .with_ip(tun)
            .with_private_key(secret(&spec.key))
            .build()
            .await
            .map_err(|error| not_started(spec.port, &error))?;
        // A tunnel without peers is not started; one whose port changes is.
        device.set_listen_port(spec.port).await.map_err(|error| not_started(spec.port, &error))?;
        let device = Arc::new(device);
        let control = ControlSocket::serve(&spec.name, device.clone());
        if let Err(error) = &control {
            tracing::debug!(%error, "there is no socket for `wg show`");
        }
        Ok(Self { device, index, port: spec.port, handshakes: JoinSet::new(), _control: control.ok() })
    }

    pub fn index(&self) -> u32 {
        self.index
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub async fn apply(&mut self, changes: &PeerChanges) -> Result<(), Unavailable> {
        if changes.remove.len() > REMOVED_ONE_BY_ONE {
            return self.replace(changes).await;
        }
        let applied = self.device.write(async |device| {
            for key in &changes.remove {
                device.remove_peer(&PublicKey::from(*key)).await;
            }
            for spec in &changes.update {
                device.update_peer(peer(spec)).await;
            }
            for spec in &changes.add {
                device.add_or_update_peer(peer(spec)).await;
            }
        });
        applied.await.map_err(|error| Unavailable::failed(error.to_string()))
    }

    async fn replace(&mut self, changes: &PeerChanges) -> Result<(), Unavailable> {
        let gone: HashSet<WireguardPublic> = changes.remove.iter().copied().collect();
        let applied = self.device.write(async |device| {
            let stay: Vec<Peer> = device.peers().await.into_iter().map(|found| found.peer).collect();
            device.clear_peers();
            for peer in stay.into_iter().filter(|peer| !gone.contains(peer.public_key.as_bytes())) {
                device.add_peer(peer);
            }
            for spec in changes.update.iter().chain(&changes.add) {
                device.add_or_update_peer(peer(spec)).await;
            }
        });
        applied.await.map_err(|error| Unavailable::failed(error.to_string()))
    }

    /// Another key; sessions under the old one are over.
    pub async fn set_key(&mut self, key: &WireguardPrivate) -> Result<(), Unavailable> {
        let secret = secret(key);
        let set = self.device.write(async |device| {
            let peers: Vec<Peer> = device.peers().await.into_iter().map(|found| found.peer).collect();
            // A handshake that is under way with the old key would keep the next one waiting.
            device.clear_peers();
            device.set_private_key(secret).await;
            device.add_peers(peers);
        });
        set.await.map_err(|error| Unavailable::failed(error.to_string()))
    }

    /// Ends the sessions with these: the next packet to one of them is a handshake, from which it learns where this host is.
    pub async fn forget_sessions(&mut self, with: &HashSet<WireguardPublic>) -> Result<(), Unavailable> {
        let forgotten = self.device.write(async |device| {
            let peers = device.peers().await.into_iter().map(|found| found.peer);
            let peers: Vec<Peer> = peers.filter(|peer| with.contains(peer.public_key.as_bytes())).collect();
            for peer in peers {
                device.remove_peer(&peer.public_key).await;
                device.add_peer(peer);
            }
        });
        forgotten.await.map_err(|error| Unavailable::failed(error.to_string()))
    }

    /// Begins a handshake without a packet that wants one: the other side may hold on to a session that is gone here.
    pub fn handshake(&mut self, key: WireguardPublic) {
        while self.handshakes.try_join_next().is_some() {}
        let device = self.device.clone();
        self.handshakes.spawn(async move {
            _ = timeout(HANDSHAKE, device.force_handshake(&PublicKey::from(key))).await;
        });
    }

    pub async fn peers(&self) -> Vec<FoundPeer> {
        let found = self.device.peers().await;
        let peer = |found: device::configure::PeerStats| FoundPeer {
            key: found.peer.public_key.to_bytes(),
            allowed: found.peer.allowed_ips.iter().map(|net| (net.ip(), net.prefix())).collect(),
            endpoint: found.peer.endpoint,
            keepalive: found.peer.keepalive.filter(|seconds| *seconds > 0),
            last_handshake: found.stats.last_handshake,
            received_bytes: found.stats.rx_bytes.try_into().unwrap_or(u64::MAX),
            sent_bytes: found.stats.tx_bytes.try_into().unwrap_or(u64::MAX),
        };
        found.into_iter().map(peer).collect()
    }

    /// Ends the tunnel; the interface is gone when this returns.
    pub async fn stop(mut self) {
        self.handshakes.shutdown().await;
        drop(self._control.take());
        // Somebody who asks at the control socket may hold it for a moment; it then ends with the last one.
        if let Some(device) = Arc::into_inner(self.device) {
            device.stop().await;
        }
    }
}

fn secret(key: &WireguardPrivate) -> StaticSecret {
    StaticSecret::from(**key.expose())
}

fn peer(spec: &PeerSpec) -> Peer {
    let mut peer = Peer::new(PublicKey::from(spec.key)).with_allowed_ip(IpAddr::from(spec.address).into());
    peer.endpoint = spec.endpoint;
    peer.keepalive = spec.keepalive;
    peer
}

fn no_tun(error: &io::Error) -> Unavailable {
    let what = format!("{TUN}: {error}");
    match Errno::from_io_error(error) {
        Some(Errno::PERM | Errno::ACCESS) => Unavailable::new(UnavailableReason::NoPermission, what),
        _ => Unavailable::new(UnavailableReason::NoTunDevice, what),
    }
}

fn not_made(name: &str, error: &tun::Error) -> Unavailable {
    let what = format!("the interface {name} could not be made: {error}");
    let errno = match error {
        tun::Error::Io(error) => Errno::from_io_error(error),
        _ => None,
    };
    let reason = match errno {
        Some(Errno::PERM | Errno::ACCESS) => UnavailableReason::NoPermission,
        Some(Errno::BUSY | Errno::EXIST) => UnavailableReason::InterfaceInUse,
        Some(Errno::NOENT | Errno::NODEV | Errno::NXIO) => UnavailableReason::NoTunDevice,
        _ => UnavailableReason::Failed,
    };
    Unavailable::new(reason, what)
}

fn not_started(port: u16, error: &device::Error) -> Unavailable {
    match error {
        device::Error::Bind(error, _) => Unavailable::of_io(&format!("UDP port {port}"), error),
        other => Unavailable::failed(other.to_string()),
    }
}
