//! The overlay as it is: what the registry says of each host, what the host was told, and what it says itself.

use super::nodes::NodeLiveness;
use lifecycle::registry::{Node, OverlayReport, OverlayState, State};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Which hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct OverlayStatusQuery {
    /// Only hosts of this tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// 1 to 1000; 100 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// `next_cursor` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// One host of the overlay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OverlayStatusItem {
    pub node_id: String,
    pub tenant: String,
    #[schema(required)]
    pub vcluster: Option<String>,
    /// Its address in the overlay; null if it has none, as of one that is revoked.
    #[schema(required)]
    pub address: Option<String>,
    /// Where the others reach it.
    #[schema(required)]
    pub underlay_endpoint: Option<String>,
    /// All places where the others reach it: of a host with IPv6 and IPv4 both.
    #[serde(default)]
    #[schema(required)]
    pub underlay_endpoints: Vec<String>,
    #[schema(required)]
    pub wireguard_public_key: Option<String>,
    pub connected: bool,
    /// `up`, `unavailable` or `off`, as the host says; null if it has said nothing.
    #[schema(required)]
    pub state: Option<String>,
    /// Why it is unavailable.
    #[schema(required)]
    pub reason: Option<String>,
    /// The revision of its tenant's overlay, and how many peers it should have.
    pub revision: u64,
    pub peers: u64,
    /// What was sent to it on its live stream; null while it has none.
    #[schema(required)]
    pub told: Option<OverlayPlace>,
    /// What it says that it has applied; null if it has said nothing.
    #[schema(required)]
    pub applied: Option<OverlayPlace>,
    /// Seconds since the last handshake with the peer whose last handshake is the oldest, when the host reported.
    #[schema(required)]
    pub oldest_handshake_s: Option<u64>,
    /// With how many peers there was a handshake in the three minutes before the host reported.
    #[schema(required)]
    pub recent_handshakes: Option<u32>,
    #[schema(required)]
    pub reported_at: Option<String>,
    /// Where registry and host differ: `not_reported`, `unavailable`, `key`, `peers`, `behind`; empty if nowhere.
    pub differs: Vec<String>,
}

/// A revision, and how many peers that comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OverlayPlace {
    pub revision: u64,
    pub peers: u64,
}

impl OverlayStatusItem {
    /// `peers` is how many peers the host should have.
    pub fn of(state: &State, node: &Node, live: &NodeLiveness, peers: u64) -> Self {
        let report = node.newest_report(live.report.as_ref());
        let said = report.and_then(|report| report.overlay.as_deref());
        let revision = state.overlay_revision(&node.tenant);
        Self {
            node_id: node.id.to_string(),
            tenant: node.tenant.to_string(),
            vcluster: node.vcluster.as_ref().map(ToString::to_string),
            address: node.address.map(|address| address.to_string()),
            underlay_endpoint: node.underlay.map(|underlay| underlay.to_string()),
            underlay_endpoints: node.underlay.map(|underlay| underlay.endpoints()).unwrap_or_default(),
            wireguard_public_key: node.wireguard.map(|held| super::nodes::wireguard_text(&held.key)),
            connected: live.connected,
            state: said.map(|said| said.state.as_str().to_owned()),
            reason: said.and_then(|said| said.reason).map(|reason| reason.as_str().to_owned()),
            revision,
            peers,
            told: live.overlay_told.map(|(revision, peers)| OverlayPlace { revision, peers }),
            applied: said.map(|said| OverlayPlace { revision: said.revision, peers: said.peers.into() }),
            oldest_handshake_s: said.and_then(|said| said.oldest_handshake_s),
            recent_handshakes: said.map(|said| said.recent_handshakes),
            reported_at: report.filter(|_| said.is_some()).map(|report| report.at.to_string()),
            differs: differences(node, live, said, peers),
        }
    }
}

fn differences(node: &Node, live: &NodeLiveness, said: Option<&OverlayReport>, peers: u64) -> Vec<String> {
    let Some(said) = said else { return vec!["not_reported".to_owned()] };
    let key = said.key.is_some() && said.key != node.wireguard.map(|held| held.key);
    let up = said.state == OverlayState::Up;
    let behind = live.overlay_told.is_some_and(|(revision, _)| said.revision < revision);
    let found = [
        (!up, "unavailable"),
        (up && key, "key"),
        (up && (said.differences > 0 || (!behind && u64::from(said.peers) != peers)), "peers"),
        (up && behind, "behind"),
    ];
    found.into_iter().filter(|(is, _)| *is).map(|(_, word)| word.to_owned()).collect()
}
