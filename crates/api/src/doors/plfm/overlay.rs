//! What a host needs to talk to the others.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lifecycle::names::Span;
use lifecycle::registry::{Families, Node, Peer, overlay};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::{IntoParams, ToSchema};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OverlayConfig {
    pub host_overlay_ipv6: String,
    pub listen_port: u16,
    pub mtu: u16,
    pub peers: Vec<OverlayPeer>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OverlayPeer {
    pub public_key: String,
    /// `[v6]:port` or `a.b.c.d:port`, of an address family that both hosts have, IPv6 first; null if there is none.
    #[schema(required)]
    pub endpoint: Option<String>,
    pub allowed_ips: Vec<String>,
}

impl OverlayConfig {
    /// None for a host without a WireGuard key.
    pub fn of<'a>(node: &Node, peers: impl Iterator<Item = &'a Peer>) -> Option<Self> {
        node.wireguard?;
        Some(Self {
            host_overlay_ipv6: node.address?.to_string(),
            listen_port: node.underlay.map_or(overlay::PORT, |underlay| underlay.port),
            mtu: overlay::MTU,
            peers: peers.map(|peer| OverlayPeer::of(peer, Families::of(node.underlay.as_ref()))).collect(),
        })
    }
}

impl OverlayPeer {
    /// As hosts read it that have these address families.
    pub fn of(peer: &Peer, families: Families) -> Self {
        Self {
            public_key: STANDARD.encode(peer.key.as_bytes()),
            endpoint: peer.underlay.and_then(|at| at.for_families(families)).map(|at| at.to_string()),
            allowed_ips: vec![format!("{}/128", peer.address)],
        }
    }
}

/// The overlay as a host may know it now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostOverlay {
    pub overlay_config: OverlayConfig,
    /// Rises whenever a peer of the tenant comes, goes or changes.
    pub revision: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct OverlayQuery {
    /// The `revision` that the host knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Wait so long for a newer one, at most 5m, then answer with what there is.
    #[serde(default, deserialize_with = "duration", skip_serializing_if = "Option::is_none")]
    pub wait: Option<String>,
}

/// Looked at here, where the field still has its name.
fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    text.as_deref().map(Span::parse).transpose().map_err(D::Error::custom)?;
    Ok(text)
}
