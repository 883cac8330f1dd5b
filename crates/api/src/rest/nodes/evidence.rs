//! What a host last said of itself on its live stream.

use super::EndpointProfile;
use lifecycle::names::Label;
use lifecycle::registry::{Attempt, FreeSpace, Report};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// As the host reported it; not verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EvidenceItem {
    /// When it reported this.
    pub at: String,
    /// Its failure, one of the eight classes; null when there is none.
    #[schema(required, example = "disk_full")]
    pub class: Option<String>,
    /// What shows it, in a sentence.
    #[schema(required)]
    pub detail: Option<String>,
    /// The correlation id of the operation that began with it.
    #[schema(required)]
    pub correlation_id: Option<String>,
    #[schema(required)]
    pub cert_serial: Option<String>,
    #[schema(required)]
    pub cert_not_after: Option<String>,
    /// The trust bundle on its disk.
    pub bundle_version: u64,
    #[schema(required)]
    pub last_renewal: Option<AttemptItem>,
    #[schema(required)]
    pub last_recovery: Option<AttemptItem>,
    /// The endpoint profile that it uses.
    #[schema(required)]
    pub endpoint_profile_id: Option<String>,
    /// Of that profile, as far as the control plane knows it.
    #[schema(required)]
    pub terminal_url: Option<String>,
    /// Whether it can write its diagnostics.
    #[schema(required)]
    pub diagnostic_writable: Option<bool>,
    pub free_space: Vec<FreeSpaceItem>,
    /// Its clock less the control plane's.
    pub clock_offset_ms: i64,
    pub disk_free_bytes: u64,
    /// Whether it holds what a recovery needs.
    pub recovery_ready: bool,
    /// How often it has found that its endpoint profile had drifted.
    pub drift_count: u64,
    /// Whether diagnostics or logs were dropped to keep space for the identity.
    pub observability_pressure: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AttemptItem {
    #[schema(required)]
    pub at: Option<String>,
    pub ok: bool,
    /// The error code, when not ok.
    #[schema(required)]
    pub code: Option<String>,
    #[schema(required)]
    pub correlation_id: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FreeSpaceItem {
    /// `cert`, `diagnostic`, `task_retry` or `runtime`.
    pub name: String,
    #[schema(required)]
    pub path: Option<String>,
    pub available_bytes: u64,
}

impl EvidenceItem {
    pub(super) fn of(report: &Report, profile: Option<&EndpointProfile>) -> Self {
        let id = text(&report.endpoint_profile_id);
        let profile = profile.filter(|profile| id.as_deref() == Some(&profile.id));
        Self {
            at: report.at.to_string(),
            class: report.class.map(|class| class.to_string()),
            detail: some(&report.detail),
            correlation_id: text(&report.correlation_id),
            cert_serial: report.cert_serial.as_ref().map(ToString::to_string),
            cert_not_after: report.cert_not_after.map(|at| at.to_string()),
            bundle_version: report.bundle_version,
            last_renewal: report.last_renewal.as_ref().map(AttemptItem::of),
            last_recovery: report.last_recovery.as_ref().map(AttemptItem::of),
            terminal_url: profile.and_then(|profile| some(&profile.terminal_url)),
            endpoint_profile_id: id,
            diagnostic_writable: report.diagnostic_writable,
            free_space: report.free_space.iter().map(FreeSpaceItem::of).collect(),
            clock_offset_ms: report.clock_offset_ms,
            disk_free_bytes: report.disk_free_bytes,
            recovery_ready: report.recovery_ready,
            drift_count: report.drift_count,
            observability_pressure: report.observability_pressure,
        }
    }
}

impl AttemptItem {
    fn of(attempt: &Attempt) -> Self {
        Self {
            at: attempt.at.map(|at| at.to_string()),
            ok: attempt.ok,
            code: text(&attempt.code),
            correlation_id: text(&attempt.correlation_id),
        }
    }
}

impl FreeSpaceItem {
    fn of(free: &FreeSpace) -> Self {
        Self {
            name: free.place.as_str().to_owned(),
            path: some(&free.path),
            available_bytes: free.available_bytes,
        }
    }
}

fn text(label: &Option<Label>) -> Option<String> {
    label.as_ref().map(ToString::to_string)
}

/// The empty text is what is missing.
fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}
