//! Everything that is known of one node.

use super::{EndpointProfile, EvidenceItem, NodeItem, NodeLiveness};
use crate::rest::alerts::AlertItem;
use lifecycle::names::{Serial, Timestamp};
use lifecycle::registry::{
    Account, Certificate, Hardware, Node, RecoveryToken, Report, Session, State, Verdict,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeDetail {
    #[serde(flatten)]
    pub item: NodeItem,
    #[schema(required)]
    pub agent_version: Option<String>,
    /// What identifies its hardware, and what the host has reported of it; null if neither is known.
    #[schema(required)]
    pub hardware: Option<NodeHardware>,
    /// For schedulers of vClusters.
    // A control plane of before has no vClusters.
    #[serde(default)]
    #[schema(required)]
    pub capability: Capability,
    /// The versions of its configuration.
    #[serde(default)]
    #[schema(required)]
    pub config: NodeConfigVersions,
    /// Who registered its hardware; null if nobody has.
    #[serde(default)]
    #[schema(required)]
    pub registered_by: Option<String>,
    pub overlay: NodeOverlay,
    /// When draining should end; null without a limit.
    #[schema(required)]
    pub drain_by: Option<String>,
    /// When a renewal was ordered that it has not carried out yet.
    #[schema(required)]
    pub rotation_ordered_at: Option<String>,
    /// The newest trust bundle that it was sent with a certificate, or is known to have stored.
    #[schema(required)]
    pub bundle_version: Option<u64>,
    /// The newest trust bundle that it has stored, as it says itself: adoption of a roll is measured by this one.
    #[schema(required)]
    pub stored_bundle_version: Option<u64>,
    /// The host's last report about itself.
    #[schema(required)]
    pub evidence: Option<EvidenceItem>,
    /// What it can recover with, as the control plane knows it.
    pub recovery: RecoveryItem,
    /// Who put it into quarantine, when and why; null when it is not there.
    #[schema(required)]
    pub quarantine: Option<AccountItem>,
    /// Who revoked or decommissioned it, when and why; null otherwise.
    #[schema(required)]
    pub ended: Option<AccountItem>,
    /// The shells and commands that are open on it, as its host reports; the longest known first.
    #[serde(default)]
    #[schema(required)]
    pub sessions: Vec<SessionItem>,
    /// Those still on record, oldest first.
    pub certificates: Vec<CertificateItem>,
    pub alerts: Vec<AlertItem>,
}

/// Who did something to the node, when and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AccountItem {
    pub by: String,
    pub at: String,
    pub reason: String,
}

/// A shell or a command that runs on the node, by its host's word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionItem {
    pub session_id: String,
    /// `shell` or `exec`.
    pub kind: String,
    /// Whom it runs for, on the host.
    pub user: String,
    pub opened_at: String,
}

/// Why a lost host does not recover: the host itself cannot report it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecoveryItem {
    /// Whether it keeps recovery tokens: settled when it enrolled, by API and profile.
    pub eligible: bool,
    /// How many recovery tokens of it are valid, that of a repair bundle included.
    pub tokens: usize,
    /// When the token ends that it was given last; null when it has none.
    #[schema(required)]
    pub token_expires_at: Option<String>,
    /// Whether it has reported that this token is on its disk.
    pub token_kept: bool,
    /// When one of its tokens was last refused, and with which code; null since it has recovered.
    #[schema(required)]
    pub last_refused: Option<RefusedItem>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RefusedItem {
    pub at: String,
    pub code: String,
}

impl RecoveryItem {
    fn of(node: &Node, at: Timestamp) -> Self {
        let recovery = &node.recovery;
        let valid = |token: &&RecoveryToken| token.is_valid() && !token.is_expired(at);
        let current = recovery.current();
        let refused = recovery.refused.as_ref();
        Self {
            eligible: node.keeps_recovery_tokens(),
            tokens: recovery.tokens.iter().filter(valid).count(),
            token_expires_at: current.map(|token| token.expires_at.to_string()),
            token_kept: current.is_some_and(RecoveryToken::is_kept),
            last_refused: refused
                .map(|last| RefusedItem { at: last.at.to_string(), code: last.reason.clone() }),
        }
    }
}

/// The hardware of a node: what it is registered with, then what the host has reported, which is not verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeHardware {
    #[serde(default)]
    #[schema(required)]
    pub macs: Vec<String>,
    #[serde(default)]
    #[schema(required)]
    pub bmc_serial: Option<String>,
    #[serde(default)]
    #[schema(required)]
    pub system_uuid: Option<String>,
    #[serde(default)]
    #[schema(required)]
    pub tpm_ek_hash: Option<String>,
    #[serde(flatten)]
    pub facts: HardwareFacts,
}

impl NodeHardware {
    fn of(node: &Node) -> Option<Self> {
        let (identity, facts) = (node.identity.as_deref(), node.hardware.as_ref());
        if identity.is_none() && facts.is_none() {
            return None;
        }
        let macs = identity.into_iter().flat_map(|identity| &identity.macs);
        Some(Self {
            macs: macs.map(ToString::to_string).collect(),
            bmc_serial: identity.and_then(|identity| identity.bmc_serial.clone()),
            system_uuid: identity.and_then(|identity| identity.system_uuid.clone()),
            tpm_ek_hash: identity.and_then(|identity| identity.tpm_ek_hash.clone()),
            facts: facts.map(HardwareFacts::of).unwrap_or_default(),
        })
    }
}

/// Whether a scheduler of vClusters may give it work.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Capability {
    /// Null in maintenance mode.
    #[schema(required)]
    pub vcluster: Option<String>,
    pub schedulable: bool,
    /// Every reason why not: those of `excluded`, and `unassigned` in maintenance mode.
    pub reasons: Vec<String>,
}

impl Capability {
    fn of(state: &State, node: &Node, report: Option<&Report>) -> Self {
        let reasons: Vec<String> = state.unschedulable(node, report).into_iter().map(str::to_owned).collect();
        let vcluster = node.vcluster.as_ref().map(ToString::to_string);
        Self { vcluster, schedulable: reasons.is_empty(), reasons }
    }
}

/// Which configuration it is given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeConfigVersions {
    /// Of its vCluster's document, or of the domain's defaults; 0 before the first.
    pub base_version: u64,
    /// Of its own document; 0 while it has none.
    pub node_version: u64,
    /// The newest change of configuration that concerns it.
    pub sequence: u64,
}

impl NodeConfigVersions {
    fn of(state: &State, node: &Node) -> Self {
        let config = state.config_of(node);
        Self {
            base_version: config.base.version(),
            node_version: config.own.version(),
            sequence: state.config_mark(node),
        }
    }
}

/// As the host reported it; not verified.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HardwareFacts {
    #[schema(required)]
    pub cpu_cores: Option<u64>,
    #[schema(required)]
    pub memory_bytes: Option<u64>,
    #[schema(required)]
    pub disk_bytes: Option<u64>,
    #[schema(required)]
    pub arch: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Overlay)]
pub struct NodeOverlay {
    #[schema(required)]
    pub address: Option<String>,
    #[schema(required)]
    pub wireguard_public_key: Option<String>,
    #[schema(required)]
    pub underlay_endpoint: Option<String>,
    /// All places where the others reach it: of a host with IPv6 and IPv4 both.
    #[serde(default)]
    #[schema(required)]
    pub underlay_endpoints: Vec<String>,
    /// Whether the host was seen at that address; if not, it is only what the host says.
    pub underlay_proven: bool,
    /// `up`, `unavailable` or `off`, as the host says; null if it has said nothing, and of one that is revoked or decommissioned.
    // A control plane of before knows no overlay on hosts.
    #[serde(default)]
    #[schema(required)]
    pub state: Option<String>,
    /// Why it is unavailable.
    #[serde(default)]
    #[schema(required)]
    pub reason: Option<String>,
    /// The revision that the host has applied, and how many peers its interface has; null if it has said nothing.
    #[serde(default)]
    #[schema(required)]
    pub revision: Option<u64>,
    #[serde(default)]
    #[schema(required)]
    pub peers: Option<u32>,
    /// When it was ordered to replace its WireGuard key, if it has not yet.
    #[serde(default)]
    #[schema(required)]
    pub rekey_ordered_at: Option<String>,
}

impl NodeOverlay {
    fn of(node: &Node, report: Option<&Report>) -> Self {
        // What a host said last is not what it is, once it is out of the overlay for good.
        let said = report.and_then(|report| report.overlay.as_deref()).filter(|_| !node.state.is_gone());
        Self {
            address: node.address.map(|address| address.to_string()),
            wireguard_public_key: node.wireguard.map(|held| super::wireguard_text(&held.key)),
            underlay_endpoint: node.underlay.map(|underlay| underlay.to_string()),
            underlay_endpoints: node.underlay.map(|underlay| underlay.endpoints()).unwrap_or_default(),
            underlay_proven: node.underlay_proven,
            state: said.map(|said| said.state.as_str().to_owned()),
            reason: said.and_then(|said| said.reason).map(|reason| reason.as_str().to_owned()),
            revision: said.map(|said| said.revision),
            peers: said.map(|said| said.peers),
            rekey_ordered_at: node.rekey.as_ref().map(|rekey| rekey.at.to_string()),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CertificateItem {
    pub serial: String,
    /// `sha256:` and 64 hex digits.
    pub fingerprint: String,
    pub issuer: String,
    pub issued_at: String,
    pub not_after: String,
    /// `live`, `superseded`, `expired`, `issuer_retired` (ended before its time) or `denied`.
    pub status: String,
}

impl NodeDetail {
    /// `profile` is the endpoint profile that hosts are given.
    pub fn of(state: &State, node: &Node, live: &NodeLiveness, profile: Option<&EndpointProfile>) -> Self {
        let alerts = state.alerts.values().filter(|alert| alert.node.as_ref() == Some(&node.id));
        let certificates = node.serials.iter().filter_map(|serial| {
            let certificate = state.certificates.get(serial)?;
            Some(CertificateItem::of(state, serial, certificate, state.at))
        });
        let report = node.newest_report(live.report.as_ref());
        Self {
            item: NodeItem::of(state, node, live),
            agent_version: node.agent_version.as_ref().map(ToString::to_string),
            hardware: NodeHardware::of(node),
            capability: Capability::of(state, node, report.map(AsRef::as_ref)),
            config: NodeConfigVersions::of(state, node),
            registered_by: node.registered_by.clone(),
            overlay: NodeOverlay::of(node, report.map(AsRef::as_ref)),
            drain_by: node.drain_by.map(|at| at.to_string()),
            rotation_ordered_at: node.rotation.as_ref().map(|rotation| rotation.at.to_string()),
            bundle_version: (node.bundle > 0).then_some(node.bundle),
            stored_bundle_version: (node.stored_bundle > 0).then_some(node.stored_bundle),
            evidence: report.map(|report| EvidenceItem::of(report, profile)),
            recovery: RecoveryItem::of(node, state.at),
            quarantine: node.quarantine.as_ref().map(AccountItem::of),
            ended: node.ended.as_ref().map(AccountItem::of),
            sessions: node.sessions.open.iter().map(SessionItem::of).collect(),
            certificates: certificates.collect(),
            alerts: alerts.map(AlertItem::of).collect(),
        }
    }
}

impl SessionItem {
    fn of(session: &Session) -> Self {
        Self {
            session_id: session.id.to_string(),
            kind: session.kind.to_string(),
            user: session.user.to_string(),
            opened_at: session.opened_at.to_string(),
        }
    }
}

impl AccountItem {
    fn of(account: &Account) -> Self {
        Self { by: account.by.clone(), at: account.at.to_string(), reason: account.reason.clone() }
    }
}

impl HardwareFacts {
    pub(crate) fn of(hardware: &Hardware) -> Self {
        Self {
            cpu_cores: hardware.cpu_cores,
            memory_bytes: hardware.memory_bytes,
            disk_bytes: hardware.disk_bytes,
            arch: hardware.arch.as_ref().map(ToString::to_string),
        }
    }
}

impl CertificateItem {
    /// A certificate whose owner is gone is denied, whatever its own record says.
    fn of(state: &State, serial: &Serial, certificate: &Certificate, at: Timestamp) -> Self {
        let status = match state.verdict(serial, at) {
            Verdict::Good => "live",
            Verdict::Grace { .. } | Verdict::Superseded { .. } => "superseded",
            Verdict::Denied(_) | Verdict::Unknown => "denied",
            Verdict::Expired if certificate.not_after > at => "issuer_retired",
            Verdict::Expired => "expired",
        };
        Self {
            serial: serial.to_string(),
            fingerprint: certificate.fingerprint.pin(),
            issuer: certificate.issuer.to_string(),
            issued_at: certificate.issued_at.to_string(),
            not_after: certificate.not_after.to_string(),
            status: status.to_owned(),
        }
    }
}
