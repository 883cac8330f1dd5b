//! Where a host's WireGuard can be reached: what can be no such place, and what a host says anew.

use super::Underlay;
use crate::names::{NodeId, Source, TenantId};
use crate::registry::event::{AuditField, AuditFields, Happened, host};
use crate::registry::{Envelope, NodeState, Rejection, State};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The overlay's own /48.
const PREFIX_SEGMENTS: usize = 3;

impl State {
    /// Refuses an endpoint to which nobody could send, whoever names it. One on loopback is for hosts on this machine.
    pub fn check_endpoint(&self, underlay: &Underlay, source: &Source) -> Result<(), Rejection> {
        let invalid = |why: String| Err(Rejection::EndpointInvalid { why });
        if underlay.port == 0 {
            return invalid("the port must be 1 to 65535".to_owned());
        }
        if underlay.ipv6.is_none() && underlay.ipv4.is_none() {
            return invalid("ipv6 or ipv4 is needed".to_owned());
        }
        for address in underlay.addresses() {
            if let Some(why) = self.unreachable_by_nature(address, source) {
                return invalid(format!("{address} {why}"));
            }
        }
        Ok(())
    }

    fn unreachable_by_nature(&self, address: IpAddr, source: &Source) -> Option<&'static str> {
        // Whoever comes by the operator socket is on this machine too.
        let local = match source {
            Source::Address(from) => from.to_canonical().is_loopback(),
            Source::Socket => true,
            Source::Internal => false,
        };
        match address {
            _ if address.is_unspecified() => Some("is the unspecified address"),
            _ if address.is_multicast() => Some("is a multicast address"),
            _ if address.to_canonical().is_loopback() && !local => {
                Some("is a loopback address, and the request came from elsewhere")
            }
            IpAddr::V4(Ipv4Addr::BROADCAST) => Some("is the broadcast address"),
            IpAddr::V4(v4) if v4.octets()[0] == 0 || v4.octets()[0] >= 240 => {
                Some("is in a range that no host has (0.0.0.0/8, 240.0.0.0/4)")
            }
            IpAddr::V4(v4) if v4.is_link_local() => Some("is a link-local address"),
            IpAddr::V6(v6) if v6.is_unicast_link_local() => Some("is a link-local address"),
            IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => Some("is an IPv4 address: name it as ipv4"),
            // Loopback is judged above.
            IpAddr::V6(v6) if !v6.is_loopback() && embeds_ipv4(v6) => {
                Some("stands for an IPv4 address: name that as ipv4")
            }
            IpAddr::V6(v6) if v6.segments()[0] & 0xffc0 == 0xfec0 => Some("is a site-local address"),
            IpAddr::V6(v6) if self.is_in_overlay(v6) => Some("is an address of the overlay itself"),
            IpAddr::V4(_) | IpAddr::V6(_) => None,
        }
    }

    fn is_in_overlay(&self, address: Ipv6Addr) -> bool {
        let prefix = self.addresses.prefix;
        let mut segments = prefix.segments().into_iter().zip(address.segments()).take(PREFIX_SEGMENTS);
        !prefix.is_unspecified() && segments.all(|(own, other)| own == other)
    }

    /// Refuses where another host of the tenant was seen itself, unless the caller is seen there too: hosts behind one
    /// translated address share it. What a host only names keeps nobody out: whoever names it first may be lying. `node` is
    /// none of a host that is to become one.
    pub fn check_not_anothers(
        &self,
        tenant: &TenantId,
        node: Option<&NodeId>,
        underlay: &Underlay,
        source: &Source,
    ) -> Result<(), Rejection> {
        let Some(overlay) = self.overlays.get(tenant) else { return Ok(()) };
        let from = source.address().map(|from| from.to_canonical());
        let proven = |id: &&NodeId| {
            let other = self.nodes.get(*id).filter(|other| other.state == NodeState::Active);
            Some(*id) != node && other.is_some_and(|other| other.underlay_proven)
        };
        let elsewhere = underlay.addresses().filter(|address| from != Some(*address));
        for address in elsewhere {
            if let Some(other) = overlay.reached_at(address, underlay.port).find(proven) {
                let port = underlay.port;
                let why = format!("host {other} of this tenant is reached at {address} port {port}");
                return Err(Rejection::EndpointInvalid { why });
            }
        }
        Ok(())
    }
}

/// Whether translators and tunnels send what goes there to an IPv4 address (::/96, 64:ff9b::/96, 2002::/16).
fn embeds_ipv4(address: Ipv6Addr) -> bool {
    matches!(address.segments(), [0x2002, ..] | [0, 0, 0, 0, 0, 0, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..])
}

/// A host is reached somewhere else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointChanged {
    pub node: NodeId,
    pub underlay: Underlay,
    /// Whether the request came from that address.
    pub proven: bool,
}

impl Happened for EndpointChanged {
    const NAME: &'static str = "host.endpoint_changed";

    fn fields(&self) -> AuditFields {
        host(&self.node, [("underlay_endpoint", AuditField::text(self.underlay))])
    }

    fn peer(&self) -> Option<&NodeId> {
        Some(&self.node)
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.change_node(&self.node, |node| {
            (node.underlay, node.underlay_proven) = (Some(self.underlay), self.proven);
        });
    }
}
