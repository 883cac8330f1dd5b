//! What is known of a node beyond the registry: the memory of one process.

use crate::agent::{Attempt, Evidence};
use lifecycle::names::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// As the process that answers knows it now.
#[derive(Debug, Clone, Default)]
pub struct Live {
    pub last_seen: Option<Timestamp>,
    pub connected: bool,
    /// What the host said last of itself, and when.
    pub evidence: Option<(Timestamp, Evidence)>,
}

/// What the host said of itself on its live stream; nobody has checked it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EvidenceItem {
    /// When it said so.
    pub at: String,
    #[schema(required)]
    pub cert_serial: Option<String>,
    #[schema(required)]
    pub cert_not_after: Option<String>,
    /// The trust bundle on its disk.
    pub bundle_version: u64,
    #[schema(required)]
    pub last_renewal: Option<AttemptItem>,
    /// Its clock less the control plane's.
    pub clock_offset_ms: i64,
    pub disk_free_bytes: u64,
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

impl EvidenceItem {
    pub(super) fn of(at: Timestamp, evidence: &Evidence) -> Self {
        Self {
            at: at.to_string(),
            cert_serial: some(&evidence.cert_serial),
            cert_not_after: some(&evidence.cert_not_after),
            bundle_version: evidence.bundle_version,
            last_renewal: evidence.last_renewal.as_ref().map(AttemptItem::of),
            clock_offset_ms: evidence.clock_offset_ms,
            disk_free_bytes: evidence.disk_free_bytes,
        }
    }
}

impl AttemptItem {
    fn of(attempt: &Attempt) -> Self {
        Self {
            at: some(&attempt.at),
            ok: attempt.ok,
            code: some(&attempt.code),
            correlation_id: some(&attempt.correlation_id),
        }
    }
}

/// In the agent's protocol the empty text is what is missing.
fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}
