//! Nodes.

pub(super) mod confirm;
pub(super) mod contact;
pub(super) mod copied;
pub(super) mod credential;
pub(super) mod decommission;
pub(super) mod describe;
pub(super) mod drain;
pub(super) mod enroll;
pub(super) mod enrolled;
pub(super) mod import;
pub(super) mod mark_inactive;
pub(super) mod observe;
pub(super) mod place;
pub(super) mod quarantine;
pub(super) mod register;
pub(super) mod reinstate;
pub(super) mod report;
pub(super) mod revoke;
pub(super) mod rotate;
pub(super) mod scheduling;
mod tombstone;

use super::{
    Assignment, Documents, Envelope, HardwareIdentity, NodeSessions, Recovery, Rejection, Report, State,
    Underlay, Wireguard,
};
use crate::names::{
    IdempotencyHash, Label, Labels, NodeId, ProfileName, RequestId, Serial, Source, Span, TenantId,
    Timestamp, Title, TokenId, VclusterId,
};
use serde::{Deserialize, Serialize};
use std::net::Ipv6Addr;
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hardware {
    pub cpu_cores: Option<u64>,
    pub memory_bytes: Option<u64>,
    pub disk_bytes: Option<u64>,
    pub arch: Option<Label>,
}

/// Where a node is in its life. `draining` and `quarantined` are independent of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// Known, no certificate yet.
    Registered,
    /// Certificate issued, not yet seen in use.
    Enrolled,
    Active,
    Inactive,
    Revoked,
    Decommissioned,
}

impl NodeState {
    pub const ALL: [NodeState; 6] = [
        NodeState::Registered,
        NodeState::Enrolled,
        NodeState::Active,
        NodeState::Inactive,
        NodeState::Revoked,
        NodeState::Decommissioned,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            NodeState::Registered => "registered",
            NodeState::Enrolled => "enrolled",
            NodeState::Active => "active",
            NodeState::Inactive => "inactive",
            NodeState::Revoked => "revoked",
            NodeState::Decommissioned => "decommissioned",
        }
    }

    /// A tombstone: the record stays, the identity is denied.
    pub fn is_gone(self) -> bool {
        matches!(self, NodeState::Revoked | NodeState::Decommissioned)
    }

    /// The arrows of a node's life; every other change is a fault.
    pub fn may_become(self, next: NodeState) -> bool {
        use NodeState::{Active, Decommissioned, Enrolled, Inactive, Registered, Revoked};
        matches!(
            (self, next),
            (Registered, Enrolled | Active)
                | (Enrolled, Enrolled | Active)
                | (Active, Enrolled | Inactive)
                | (Inactive, Enrolled | Active)
                | (Revoked | Decommissioned, Registered)
        ) || (next == Revoked && self != Revoked)
            || (next == Decommissioned && self != Revoked)
    }
}

impl std::fmt::Display for NodeState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub id: NodeId,
    pub tenant: TenantId,
    pub state: NodeState,
    /// Since when it has been in that state.
    pub state_since: Timestamp,
    pub draining: bool,
    pub quarantined: bool,
    pub vcluster: Option<VclusterId>,
    pub profile: ProfileName,
    /// Counts its lives: raised by every reinstatement.
    pub generation: u32,
    pub enrolled_at: Option<Timestamp>,
    pub last_seen: Option<Timestamp>,
    /// When it was last heard with an SVID, which is on no record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub svid_seen: Option<Timestamp>,
    pub ever_active: bool,
    /// The token of its latest enrollment, and the caller's idempotency key with it.
    pub token: Option<TokenId>,
    pub idempotency: Option<IdempotencyHash>,
    pub wireguard: Option<Wireguard>,
    pub address: Option<Ipv6Addr>,
    pub underlay: Option<Underlay>,
    /// Whether the host was seen at its underlay address: a request came from there. What a host merely says of itself could
    /// be anybody's address.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub underlay_proven: bool,
    pub hardware: Option<Hardware>,
    pub hostname: Option<Label>,
    pub agent_version: Option<Label>,
    /// Serials on record, oldest first; the last one is current.
    pub serials: Vec<Serial>,
    /// When draining should be over.
    #[serde(default)]
    pub drain_by: Option<Timestamp>,
    /// A renewal ordered by an operator and not yet obeyed.
    #[serde(default)]
    pub rotation: Option<Rotation>,
    /// An order to replace its WireGuard key, not yet obeyed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rekey: Option<Rotation>,
    /// Whether its silence means anything: it had a live stream, or it enrolled by its hardware, and a machine that does
    /// so has one soon.
    #[serde(default)]
    pub streamed: bool,
    /// The latest starts of its agent, the newest last.
    #[serde(default)]
    pub instances: Vec<Label>,
    /// The newest trust bundle that it was sent.
    #[serde(default)]
    pub bundle: u64,
    /// The newest trust bundle that it has stored: by its own word or, of a host that says nothing, because it uses the
    /// certificate that came with it.
    #[serde(default)]
    pub stored_bundle: u64,
    /// Whether it says on its live stream which trust bundle it has stored. What other hosts use as a stream does not.
    #[serde(default)]
    pub says_bundle: bool,
    /// The revision of its tenant's overlay when it enrolled last.
    #[serde(default)]
    pub overlay_seen: u64,
    /// What people call it.
    #[serde(default)]
    pub name: Option<Title>,
    /// What people sort it by.
    #[serde(default)]
    pub labels: Labels,
    /// What kind of collector it was registered as.
    #[serde(default)]
    pub plane: Option<Label>,
    /// How long draining was given, so that the same order again changes nothing.
    #[serde(default)]
    pub drain_within: Option<Span>,
    /// Who put it into quarantine, while it is there.
    #[serde(default)]
    pub quarantine: Option<Account>,
    /// Who revoked or decommissioned it, while it is a tombstone.
    #[serde(default)]
    pub ended: Option<Account>,
    /// What brings it back when its certificate no longer does.
    #[serde(default)]
    pub recovery: Recovery,
    /// What it last said of itself.
    #[serde(default)]
    pub report: Option<Arc<Report>>,
    /// The machine that it is, if it was registered by its hardware.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Arc<HardwareIdentity>>,
    /// The profile that it was registered with; without one, that of the API by which it enrolls counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registered_profile: Option<ProfileName>,
    /// Who registered it by its hardware.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registered_by: Option<String>,
    /// When that was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registered_at: Option<Timestamp>,
    /// Where it enrolled from by its hardware last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enrolled_from: Option<Source>,
    /// Its latest vClusters, the present one last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assignments: Vec<Assignment>,
    /// The sequence of the configuration when it enrolled last.
    #[serde(default)]
    pub enrolled_sequence: u64,
    /// Configuration for this node alone.
    #[serde(default, skip_serializing_if = "Documents::is_empty")]
    pub config: Documents,
    /// The sessions that are open on it, by its host's own word.
    #[serde(default, skip_serializing_if = "NodeSessions::is_blank")]
    pub sessions: NodeSessions,
}

/// Who did something to a node, when and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    pub by: String,
    pub at: Timestamp,
    pub reason: String,
}

impl Account {
    pub(super) fn of(envelope: &Envelope, at: Timestamp, reason: &str) -> Self {
        Self { by: envelope.actor.to_string(), at, reason: reason.to_owned() }
    }
}

/// An order to renew, or to replace a WireGuard key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rotation {
    pub order: RequestId,
    pub at: Timestamp,
    /// Of a host that has lost its WireGuard key: it need not prove that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replace: bool,
}

impl Node {
    /// Known, and nothing more.
    pub fn registered(id: NodeId, tenant: TenantId, profile: ProfileName, at: Timestamp) -> Self {
        Self {
            id,
            tenant,
            state: NodeState::Registered,
            state_since: at,
            draining: false,
            quarantined: false,
            vcluster: None,
            profile,
            generation: 1,
            enrolled_at: None,
            last_seen: None,
            svid_seen: None,
            ever_active: false,
            token: None,
            idempotency: None,
            wireguard: None,
            address: None,
            underlay: None,
            underlay_proven: false,
            hardware: None,
            hostname: None,
            agent_version: None,
            serials: Vec::new(),
            drain_by: None,
            rotation: None,
            rekey: None,
            streamed: false,
            instances: Vec::new(),
            bundle: 0,
            stored_bundle: 0,
            says_bundle: false,
            overlay_seen: 0,
            name: None,
            labels: Labels::default(),
            plane: None,
            drain_within: None,
            quarantine: None,
            ended: None,
            recovery: Recovery::default(),
            report: None,
            identity: None,
            registered_profile: None,
            registered_by: None,
            registered_at: None,
            enrolled_from: None,
            assignments: Vec::new(),
            enrolled_sequence: 0,
            config: Documents::default(),
            sessions: NodeSessions::default(),
        }
    }

    pub fn current_serial(&self) -> Option<&Serial> {
        self.serials.last()
    }

    pub(super) fn end_drain(&mut self) {
        (self.draining, self.drain_by, self.drain_within) = (false, None, None);
    }

    pub(super) fn end_quarantine(&mut self) {
        (self.quarantined, self.quarantine) = (false, None);
    }

    /// A new life has had no live stream yet, so its silence means nothing, no start of its agent is old, and nothing
    /// was said on it.
    pub(super) fn forget_streams(&mut self) {
        self.streamed = false;
        self.svid_seen = None;
        self.says_bundle = false;
        self.instances.clear();
        self.report = None;
    }
}

/// A node that is not a tombstone.
pub(in crate::registry) fn living<'a>(state: &'a State, id: &NodeId) -> Result<&'a Node, Rejection> {
    match state.nodes.get(id) {
        None => Err(Rejection::NodeNotFound { node: id.clone() }),
        Some(node) if node.state.is_gone() => Err(Rejection::NodeRevoked { node: id.clone() }),
        Some(node) => Ok(node),
    }
}

impl State {
    pub(super) fn change_node(&mut self, id: &NodeId, how: impl FnOnce(&mut Node)) {
        if let Some(node) = self.nodes.get_mut(id).map(Arc::make_mut) {
            how(node);
        }
    }
}
