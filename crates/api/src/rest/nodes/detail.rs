//! Everything that is known of one node.

use super::NodeItem;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lifecycle::names::{Serial, Timestamp};
use lifecycle::registry::{Alert, Certificate, CertificateStatus, Hardware, Node, State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeDetail {
    #[serde(flatten)]
    pub item: NodeItem,
    #[schema(required)]
    pub hostname: Option<String>,
    #[schema(required)]
    pub agent_version: Option<String>,
    #[schema(required)]
    pub hardware: Option<HardwareFacts>,
    pub overlay: Overlay,
    /// Those still on record, oldest first.
    pub certificates: Vec<CertificateItem>,
    pub alerts: Vec<AlertItem>,
}

/// As the host told; nobody has checked it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
pub struct Overlay {
    #[schema(required)]
    pub address: Option<String>,
    #[schema(required)]
    pub wireguard_public_key: Option<String>,
    #[schema(required)]
    pub underlay_endpoint: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CertificateItem {
    pub serial: String,
    /// `sha256:` and 64 hex digits.
    pub fingerprint: String,
    pub issuer: String,
    pub issued_at: String,
    pub not_after: String,
    /// `live`, `expired` or `denied`.
    pub status: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AlertItem {
    pub alert_id: String,
    pub kind: String,
    #[schema(required)]
    pub node_id: Option<String>,
    pub since: String,
    pub count: u64,
    pub detail: String,
    pub acknowledged: bool,
}

impl NodeDetail {
    pub fn of(state: &State, node: &Node) -> Self {
        let alerts = state.alerts.values().filter(|alert| alert.node.as_ref() == Some(&node.id));
        let certificates = node.serials.iter().filter_map(|serial| {
            let certificate = state.certificates.get(serial)?;
            Some(CertificateItem::of(state, serial, certificate, state.at))
        });
        Self {
            item: NodeItem::of(state, node),
            hostname: node.hostname.as_ref().map(ToString::to_string),
            agent_version: node.agent_version.as_ref().map(ToString::to_string),
            hardware: node.hardware.as_ref().map(HardwareFacts::of),
            overlay: Overlay {
                address: node.address.map(|address| address.to_string()),
                wireguard_public_key: node
                    .wireguard
                    .map(|wireguard| STANDARD.encode(wireguard.key.as_bytes())),
                underlay_endpoint: node.underlay.map(|underlay| underlay.to_string()),
            },
            certificates: certificates.collect(),
            alerts: alerts.map(AlertItem::of).collect(),
        }
    }
}

impl HardwareFacts {
    fn of(hardware: &Hardware) -> Self {
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
        let status = match certificate.status {
            CertificateStatus::Denied => "denied",
            CertificateStatus::Live if state.is_denied(serial) => "denied",
            CertificateStatus::Live if certificate.is_live(at) => "live",
            CertificateStatus::Live => "expired",
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

impl AlertItem {
    pub fn of(alert: &Alert) -> Self {
        Self {
            alert_id: alert.id.to_string(),
            kind: alert.kind.clone(),
            node_id: alert.node.as_ref().map(ToString::to_string),
            since: alert.since.to_string(),
            count: alert.count,
            detail: alert.detail.clone(),
            acknowledged: alert.acknowledged,
        }
    }
}
