//! Hosts as operators see them, in the words of the document.

use crate::rest::nodes::HardwareFacts;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lifecycle::names::Timestamp;
use lifecycle::registry::{Node, NodeState, State};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostItem {
    pub host_id: String,
    /// `registered`, `enrolled`, `active`, `draining`, `disabled` or `decommissioned`.
    pub state: String,
    pub cluster_id: String,
    /// `[v6]:port` or `a.b.c.d:port`.
    #[schema(required)]
    pub underlay_endpoint: Option<String>,
    #[schema(required)]
    pub overlay_ipv6: Option<String>,
    #[schema(required)]
    pub wireguard_public_key: Option<String>,
    #[schema(required)]
    pub hardware_facts: Option<HardwareFacts>,
    #[schema(required)]
    pub enrolled_at: Option<String>,
    #[schema(required)]
    pub last_seen: Option<String>,
    #[schema(required)]
    pub cert_serial: Option<String>,
    #[schema(required)]
    pub cert_not_after: Option<String>,
}

impl HostItem {
    /// `seen` is the last sign of life that has not been written down yet.
    pub fn of(state: &State, node: &Node, seen: Option<Timestamp>) -> Self {
        let certificate = state.current_certificate(node);
        Self {
            host_id: node.id.to_string(),
            state: state_word(node).to_owned(),
            cluster_id: state.domain.as_ref().map(|domain| domain.cluster.to_string()).unwrap_or_default(),
            underlay_endpoint: node.underlay.map(|underlay| underlay.to_string()),
            overlay_ipv6: node.address.map(|address| address.to_string()),
            wireguard_public_key: node.wireguard.map(|wireguard| STANDARD.encode(wireguard.key.as_bytes())),
            hardware_facts: node.hardware.as_ref().map(HardwareFacts::of),
            enrolled_at: node.enrolled_at.map(|at| at.to_string()),
            last_seen: node.last_seen.max(seen).map(|at| at.to_string()),
            cert_serial: node.current_serial().map(ToString::to_string),
            cert_not_after: certificate.map(|(_, certificate)| certificate.not_after.to_string()),
        }
    }
}

/// The document knows neither silence nor quarantine, and calls a revoked host disabled.
pub fn state_word(node: &Node) -> &'static str {
    match node.state {
        NodeState::Active | NodeState::Inactive if node.draining => "draining",
        NodeState::Active | NodeState::Inactive => "active",
        NodeState::Revoked => "disabled",
        NodeState::Registered | NodeState::Enrolled | NodeState::Decommissioned => node.state.as_str(),
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HostList {
    pub hosts: Vec<HostItem>,
    /// Pass it as `cursor` for the next page; null on the last one.
    #[schema(required)]
    pub next_cursor: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct HostQuery {
    /// 1 to 1000; 100 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// `next_cursor` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// The document knows no sessions; a host that has some is decommissioned only with this.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DecommissionHost {
    /// Ends the host's open sessions instead of refusing because of them (409 `active_sessions`); false when absent.
    pub force: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RevokeHost {
    /// 1 to 200 characters, for the audit trail; `unspecified` when absent.
    pub reason: Option<String>,
}

/// The host's confirmation with its new certificate. An empty body means success.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConfirmHost {
    /// `ok` (also when absent), or `failed` when the host could not store the identity.
    pub status: Option<String>,
    /// Why it failed, in the host's words.
    pub reason: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConfirmedHost {
    pub host_id: String,
    pub state: String,
}
