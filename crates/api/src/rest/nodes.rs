//! Nodes: the item of lists, and the query that chooses which.

use crate::agent::EndpointProfile;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lifecycle::host::IdentityProvider;
use lifecycle::names::{SpiffeId, WireguardKey};
use lifecycle::registry::{Node, State};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};

mod act;
mod detail;
mod evidence;
mod health;
mod live;
mod register;
mod repair;

pub use act::{Decommission, Drain, ImportNode, LabelNode, Plainly, Quarantine, Revoke, RotateRequest};
pub use detail::{
    AccountItem, Capability, CertificateItem, HardwareFacts, NodeConfigVersions, NodeDetail, NodeHardware,
    NodeOverlay, RecoveryItem, RefusedItem, SessionItem,
};
pub use evidence::{AttemptItem, EvidenceItem, FreeSpaceItem};
pub use health::NodeHealth;
pub use live::{NodeLiveness, SvidInUse};
pub use register::{
    BATCH_MAX, IntoVcluster, RegisterNodeRequest, RegisterNodesRequest, RegisteredNodes, RegistrationResult,
};
pub use repair::{IssueRepairBundleRequest, RepairBundle};

/// A WireGuard public key, base64 as `wg pubkey` prints it.
pub fn wireguard_text(key: &WireguardKey) -> String {
    STANDARD.encode(key.as_bytes())
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeItem {
    pub node_id: String,
    /// As the host named itself when it enrolled: not verified, and not unique.
    // A control plane of before says it of one node at a time only.
    #[serde(default)]
    #[schema(required)]
    pub hostname: Option<String>,
    /// What operators sort it by.
    #[serde(default)]
    #[schema(required)]
    pub labels: BTreeMap<String, String>,
    pub tenant: String,
    /// `registered`, `enrolled`, `active`, `inactive`, `revoked` or `decommissioned`.
    pub state: String,
    pub draining: bool,
    pub quarantined: bool,
    #[schema(required)]
    pub vcluster: Option<String>,
    pub profile: String,
    /// The MAC addresses with which it is registered.
    // A control plane of before registers none.
    #[serde(default)]
    #[schema(required)]
    pub macs: Vec<String>,
    /// Where the identity in use comes from: `spire` (it is connected by an SVID), `control-plane` or `none`. The next three fields
    /// describe that identity.
    // A control plane of before knows its own certificates only.
    #[serde(default = "own_certificate")]
    pub identity_provider: String,
    #[schema(required)]
    pub spiffe_id: Option<String>,
    /// Lower-case hex without leading zeros.
    #[schema(required)]
    pub cert_serial: Option<String>,
    #[schema(required)]
    pub cert_not_after: Option<String>,
    #[schema(required)]
    pub last_seen: Option<String>,
    /// Whether it has a live stream to any replica that can be reached.
    // A control plane of before says it of one node at a time only.
    #[serde(default)]
    #[schema(required)]
    pub connected: bool,
    #[schema(required)]
    pub enrolled_at: Option<String>,
    /// How often the node was reinstated, plus one.
    pub generation: u32,
    /// How many shells and commands are open on it, as its host reports.
    // A control plane of before knows none.
    #[serde(default)]
    #[schema(required)]
    pub active_sessions: u32,
    pub health: NodeHealth,
    /// Whether it is schedulable.
    pub schedulable: bool,
    /// Every reason why not: its state if that is not `active`, `draining`, `quarantined`, `cert_expired`, what it says
    /// is wrong with it, `node_observability_disk_pressure`.
    pub excluded: Vec<String>,
}

fn own_certificate() -> String {
    IdentityProvider::ControlPlane.to_string()
}

impl NodeItem {
    /// `live` is what has not been written down yet.
    pub fn of(state: &State, node: &Node, live: &NodeLiveness) -> Self {
        let domain = state.domain.as_ref();
        let certificate = state.current_certificate(node);
        let report = node.newest_report(live.report.as_ref()).map(AsRef::as_ref);
        let excluded: Vec<String> = state.exclusions(node, report).into_iter().map(str::to_owned).collect();
        Self {
            node_id: node.id.to_string(),
            hostname: node.hostname.as_ref().map(ToString::to_string),
            labels: node.labels.pairs().clone(),
            tenant: node.tenant.to_string(),
            state: node.state.to_string(),
            draining: node.draining,
            quarantined: node.quarantined,
            vcluster: node.vcluster.as_ref().map(ToString::to_string),
            profile: node.profile.to_string(),
            macs: node.identity.iter().flat_map(|known| &known.macs).map(ToString::to_string).collect(),
            identity_provider: match (&live.svid, node.current_serial()) {
                (Some(_), _) => IdentityProvider::Spire,
                (None, Some(_)) => IdentityProvider::ControlPlane,
                (None, None) => IdentityProvider::None,
            }
            .to_string(),
            spiffe_id: match &live.svid {
                Some(svid) => Some(svid.spiffe_id.clone()),
                None => {
                    domain.map(|domain| SpiffeId::agent(&domain.name, &node.tenant, &node.id).to_string())
                }
            },
            // The serial outlives the certificate's own record, which goes when it expires.
            cert_serial: match &live.svid {
                Some(svid) => Some(svid.serial.to_string()),
                None => node.current_serial().map(ToString::to_string),
            },
            cert_not_after: match &live.svid {
                Some(svid) => Some(svid.not_after.to_string()),
                None => certificate.map(|(_, certificate)| certificate.not_after.to_string()),
            },
            last_seen: node.last_seen.max(live.last_seen).map(|at| at.to_string()),
            connected: live.connected,
            enrolled_at: node.enrolled_at.map(|at| at.to_string()),
            generation: node.generation,
            active_sessions: node.sessions.count(),
            health: NodeHealth::of(state, node, live),
            schedulable: excluded.is_empty(),
            excluded,
        }
    }
}

/// A node that has just changed: what `/v1/events` tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEvent {
    /// When the newest change happened; a control plane of before does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    #[serde(flatten)]
    pub item: NodeItem,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct NodeQuery {
    /// Only nodes in this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Only nodes of this vCluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vcluster: Option<String>,
    /// Only nodes of no vCluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unassigned: Option<bool>,
    /// Only nodes with this hostname, in upper or lower case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// Only nodes with all of these labels: `KEY=VALUE` pairs separated by commas, with a backslash before a comma or a
    /// backslash in a value.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(example = "env=prod,rack=7")]
    pub label: Option<String>,
    /// Only nodes with this text in their id, their hostname or a label (`KEY=VALUE`), in upper or lower case; 1 to 128 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search: Option<String>,
    /// 1 to 1000; 100 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// `next_cursor` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
