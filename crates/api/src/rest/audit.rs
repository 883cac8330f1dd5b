//! The audit trail as operators read it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

/// One line: what every line has, and the event's own fields beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditLine {
    pub seq: u64,
    pub at: String,
    #[schema(example = "host.enrolled")]
    pub event_type: String,
    #[schema(example = "user:alice")]
    pub actor: String,
    pub source: String,
    #[schema(required)]
    pub request_id: Option<String>,
    #[schema(required)]
    pub correlation_id: Option<String>,
    pub prev_hash: String,
    pub hash: String,
    #[serde(flatten)]
    #[schema(value_type = Object, additional_properties)]
    pub fields: Map<String, Value>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AuditQuery {
    /// Only lines about this node: those whose `node_id` it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Only lines of this kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    /// Only lines from then on: a time such as `2026-01-31T12:00:00Z`, or a duration before now such as `1h`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// `asc`, oldest first, when absent; `desc`: newest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
    /// 1 to 1000; 100 when absent. A page may hold fewer lines, or none, although there are more: `next_cursor` tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// `next_cursor` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// The result of verifying the whole trail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditVerify {
    pub ok: bool,
    /// Null when the trail is empty.
    #[schema(required)]
    pub first_seq: Option<u64>,
    #[schema(required)]
    pub last_seq: Option<u64>,
    /// Hash of the last line that holds.
    #[schema(required)]
    pub head: Option<String>,
    /// The newest line that a signed checkpoint covers.
    #[schema(required)]
    pub checkpoint: Option<u64>,
    /// The first thing that is wrong.
    #[schema(required)]
    pub fault: Option<AuditFault>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditFault {
    /// The line concerned; null when it is about the trail as a whole.
    #[schema(required)]
    pub seq: Option<u64>,
    pub what: String,
}
