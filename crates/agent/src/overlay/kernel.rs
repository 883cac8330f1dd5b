//! The kernel's own WireGuard, by netlink.
//!
//! The interface outlives this process: a kernel goes on forwarding between peers that it knows. The next agent finds it by its key
//! and takes it over.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP};
use netlink_packet_generic::GenlMessage;
use netlink_packet_generic::ctrl::nlas::GenlCtrlAttrs;
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_packet_route::link::InfoKind;
use netlink_packet_wireguard::{
    WireguardAddressFamily, WireguardAllowedIp, WireguardAllowedIpAttr, WireguardAttribute, WireguardCmd,
    WireguardMessage, WireguardPeer, WireguardPeerAttribute, WireguardPeerFlags,
};
use netlink_sys::protocols::NETLINK_GENERIC;
use pki::wireguard::{WireguardPrivate, WireguardPublic};
use rustix::io::Errno;

use super::difference::PeerChanges;
use super::netlink::{Netlink, is};
use super::reason::{Unavailable, UnavailableReason};
use super::{FoundPeer, InterfaceSpec, PeerSpec};
use crate::clock;

const FAMILY: &str = "wireguard";
/// Of each about 150 bytes: a message stays far below what netlink takes.
const PEERS_AT_ONCE: usize = 100;

pub struct KernelOverlay {
    index: u32,
    generic: Netlink,
    family: u16,
    /// As they were last set, for the handshakes.
    keepalives: std::collections::BTreeMap<WireguardPublic, Option<u16>>,
}

/// Whether this kernel knows WireGuard: the number of its netlink family.
pub fn family() -> Result<u16, Unavailable> {
    let none = |error: &io::Error| {
        let what = format!("this kernel has no WireGuard: {error}");
        Unavailable::new(UnavailableReason::NoKernelSupport, what)
    };
    let generic = Netlink::of(NETLINK_GENERIC).map_err(|error| none(&error))?;
    let ask =
        GenlCtrl { cmd: GenlCtrlCmd::GetFamily, nlas: vec![GenlCtrlAttrs::FamilyName(FAMILY.to_owned())] };
    let found = generic.ask(GenlMessage::from_payload(ask), NLM_F_ACK).map_err(|error| none(&error))?;
    let number = |attribute: &GenlCtrlAttrs| match attribute {
        GenlCtrlAttrs::FamilyId(number) => Some(*number),
        _ => None,
    };
    let number = found.iter().find_map(|message| message.payload.nlas.iter().find_map(number));
    number.ok_or_else(|| none(&io::Error::other("its family has no number")))
}

impl KernelOverlay {
    /// Without an address, and not up, unless an earlier agent left it so.
    pub fn start(spec: &InterfaceSpec, netlink: &Netlink) -> Result<Self, Unavailable> {
        let family = family()?;
        let generic = Netlink::of(NETLINK_GENERIC).map_err(|error| Unavailable::of_io("netlink", &error))?;
        match netlink.create_wireguard(&spec.name) {
            Ok(()) => {}
            Err(error) if is(&error, Errno::OPNOTSUPP) => {
                let what = format!("this kernel makes no WireGuard interface: {error}");
                return Err(Unavailable::new(UnavailableReason::NoKernelSupport, what));
            }
            Err(error) if is(&error, Errno::EXIST) => take_over(spec, netlink, &generic, family)?,
            Err(error) => {
                return Err(Unavailable::of_io(
                    &format!("the interface {} could not be made", spec.name),
                    &error,
                ));
            }
        }
        let link = netlink.link(&spec.name).map_err(|error| Unavailable::of_io("netlink", &error))?;
        let (index, _) = link.ok_or_else(|| Unavailable::failed("the new interface is not there"))?;
        let overlay = Self { index, generic, family, keepalives: Default::default() };
        let settings = vec![
            WireguardAttribute::PrivateKey(**spec.key.expose()),
            WireguardAttribute::ListenPort(spec.port),
        ];
        overlay
            .set(settings)
            .map_err(|error| Unavailable::of_io(&format!("UDP port {}", spec.port), &error))?;
        netlink
            .set_mtu(index, spec.mtu)
            .map_err(|error| Unavailable::of_io("the MTU could not be set", &error))?;
        Ok(overlay)
    }

    pub fn index(&self) -> u32 {
        self.index
    }

    pub fn apply(&mut self, changes: &PeerChanges) -> Result<(), Unavailable> {
        let failed = |error: io::Error| Unavailable::of_io("the peers could not be set", &error);
        let removed = changes.remove.iter().map(|key| {
            WireguardPeer(vec![
                WireguardPeerAttribute::PublicKey(*key),
                WireguardPeerAttribute::Flags(WireguardPeerFlags::RemoveMe),
            ])
        });
        self.set_peers(removed.collect()).map_err(failed)?;
        let specs = || changes.update.iter().chain(&changes.add);
        self.set_peers(specs().map(peer).collect()).map_err(failed)?;
        for key in &changes.remove {
            self.keepalives.remove(key);
        }
        self.keepalives.extend(specs().map(|spec| (spec.key, spec.keepalive)));
        Ok(())
    }

    /// Another key; the kernel ends sessions under the old one.
    pub fn set_key(&mut self, key: &WireguardPrivate) -> Result<(), Unavailable> {
        let set = self.set(vec![WireguardAttribute::PrivateKey(**key.expose())]);
        set.map_err(|error| Unavailable::of_io("the key could not be set", &error))
    }

    /// A keepalive interval that was none makes the kernel send one at once, and for that it needs a session.
    pub fn handshake(&mut self, key: WireguardPublic) {
        let Some(wanted) = self.keepalives.get(&key).copied() else { return };
        let interval = |seconds: u16| {
            WireguardPeer(vec![
                WireguardPeerAttribute::PublicKey(key),
                WireguardPeerAttribute::Flags(WireguardPeerFlags::UpdateOnly),
                WireguardPeerAttribute::PersistentKeepalive(seconds),
            ])
        };
        for seconds in [0, wanted.unwrap_or(25), wanted.unwrap_or(0)] {
            if let Err(error) = self.set_peers(vec![interval(seconds)]) {
                tracing::debug!(%error, "a handshake could not be begun");
            }
        }
    }

    pub fn peers(&self) -> Result<Vec<FoundPeer>, Unavailable> {
        let found = device(&self.generic, self.family, WireguardAttribute::IfIndex(self.index))
            .map_err(|error| Unavailable::of_io("the peers could not be read", &error))?;
        let mut peers: Vec<FoundPeer> = Vec::new();
        for attribute in found {
            let WireguardAttribute::Peers(more) = attribute else { continue };
            for one in more.iter().filter_map(found_peer) {
                // A peer whose addresses do not fit into one message is continued in the next.
                match peers.last_mut().filter(|last| last.key == one.key) {
                    Some(last) => last.allowed.extend(one.allowed),
                    None => peers.push(one),
                }
            }
        }
        Ok(peers)
    }

    pub fn stop(self, netlink: &Netlink) {
        if let Err(error) = netlink.delete_link(self.index) {
            tracing::warn!(%error, "the WireGuard interface could not be removed");
        }
    }

    fn set_peers(&self, peers: Vec<WireguardPeer>) -> io::Result<()> {
        for some in peers.chunks(PEERS_AT_ONCE) {
            self.set(vec![WireguardAttribute::Peers(some.to_vec())])?;
        }
        Ok(())
    }

    fn set(&self, mut attributes: Vec<WireguardAttribute>) -> io::Result<()> {
        attributes.insert(0, WireguardAttribute::IfIndex(self.index));
        let message = WireguardMessage { cmd: WireguardCmd::SetDevice, attributes };
        let mut message = GenlMessage::from_payload(message);
        message.set_resolved_family_id(self.family);
        self.generic.ask(message, NLM_F_ACK).map(|_| ())
    }
}

/// What an earlier agent of this host left is known by its key.
fn take_over(
    spec: &InterfaceSpec,
    netlink: &Netlink,
    generic: &Netlink,
    family: u16,
) -> Result<(), Unavailable> {
    let kind = netlink.link(&spec.name).ok().flatten().and_then(|(_, kind)| kind);
    let is_wireguard = kind == Some(InfoKind::Wireguard);
    let name = WireguardAttribute::IfName(spec.name.clone());
    let found = if is_wireguard { device(generic, family, name).unwrap_or_default() } else { Vec::new() };
    let own = spec.key.public().ok();
    let is_own = found
        .iter()
        .any(|attribute| matches!(attribute, WireguardAttribute::PublicKey(key) if Some(*key) == own));
    if is_own {
        return Ok(());
    }
    let what = format!("there is an interface {} already, and it has not this host's key", spec.name);
    Err(Unavailable::new(UnavailableReason::InterfaceInUse, what))
}

fn device(
    generic: &Netlink,
    family: u16,
    interface: WireguardAttribute,
) -> io::Result<Vec<WireguardAttribute>> {
    let message = WireguardMessage { cmd: WireguardCmd::GetDevice, attributes: vec![interface] };
    let mut message = GenlMessage::from_payload(message);
    message.set_resolved_family_id(family);
    let found = generic.ask(message, NLM_F_DUMP)?;
    Ok(found.into_iter().flat_map(|message| message.payload.attributes).collect())
}

fn peer(spec: &PeerSpec) -> WireguardPeer {
    let allowed = WireguardAllowedIp(vec![
        WireguardAllowedIpAttr::Family(WireguardAddressFamily::Ipv6),
        WireguardAllowedIpAttr::IpAddr(spec.address.into()),
        WireguardAllowedIpAttr::Cidr(128),
    ]);
    let mut attributes = vec![
        WireguardPeerAttribute::PublicKey(spec.key),
        WireguardPeerAttribute::Flags(WireguardPeerFlags::ReplaceAllowedIps),
        WireguardPeerAttribute::PersistentKeepalive(spec.keepalive.unwrap_or_default()),
        WireguardPeerAttribute::AllowedIps(vec![allowed]),
    ];
    attributes.extend(spec.endpoint.map(WireguardPeerAttribute::Endpoint));
    WireguardPeer(attributes)
}

fn found_peer(peer: &WireguardPeer) -> Option<FoundPeer> {
    let mut found = FoundPeer {
        key: [0; 32],
        allowed: Vec::new(),
        endpoint: None,
        keepalive: None,
        last_handshake: None,
        received_bytes: 0,
        sent_bytes: 0,
    };
    for attribute in &peer.0 {
        match attribute {
            WireguardPeerAttribute::PublicKey(key) => found.key = *key,
            WireguardPeerAttribute::Endpoint(endpoint) => found.endpoint = Some(*endpoint),
            WireguardPeerAttribute::PersistentKeepalive(seconds) => {
                found.keepalive = Some(*seconds).filter(|seconds| *seconds > 0);
            }
            WireguardPeerAttribute::LastHandshake(at) => {
                let at = u64::try_from(at.seconds).ok().filter(|seconds| *seconds > 0);
                let ago = at.map(|seconds| clock::now().secs().saturating_sub(seconds));
                found.last_handshake = ago.map(Duration::from_secs);
            }
            WireguardPeerAttribute::RxBytes(bytes) => found.received_bytes = *bytes,
            WireguardPeerAttribute::TxBytes(bytes) => found.sent_bytes = *bytes,
            WireguardPeerAttribute::AllowedIps(ips) => found.allowed.extend(ips.iter().filter_map(allowed)),
            _ => {}
        }
    }
    (found.key != [0; 32]).then_some(found)
}

fn allowed(ip: &WireguardAllowedIp) -> Option<(IpAddr, u8)> {
    let address = ip.0.iter().find_map(|attribute| match attribute {
        WireguardAllowedIpAttr::IpAddr(address) => Some(*address),
        _ => None,
    });
    let bits = ip.0.iter().find_map(|attribute| match attribute {
        WireguardAllowedIpAttr::Cidr(bits) => Some(*bits),
        _ => None,
    });
    address.zip(bits)
}
