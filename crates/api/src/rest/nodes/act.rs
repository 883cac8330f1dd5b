//! What can be done to a node, and with what words. Every act answers with the node as it is then.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// An act that needs no words.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plainly {}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Drain {
    /// How long the host may take, 1s to 30d. A different limit counts from now, the same limit
    /// changes nothing; no limit when absent.
    #[schema(example = "10m")]
    pub within: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateRequest {
    /// Replaces the WireGuard key of the host instead of its certificate; false when absent.
    pub overlay: Option<bool>,
    /// With `overlay`: takes the host's new key without a proof of the one on record, once, because the host has lost that;
    /// false when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replace: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Quarantine {
    /// 1 to 200 characters, for the audit trail; `unspecified` when absent.
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Revoke {
    /// 1 to 200 characters, for the audit trail; `unspecified` when absent.
    pub reason: Option<String>,
}

/// A certificate that was issued elsewhere, to be imported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportNode {
    /// PEM, issued by the imported CA. Its common name, `worker:ID` or `ID`, is the node's id.
    pub certificate: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Decommission {
    /// Ends the node's open sessions instead of refusing because of them (409 `active_sessions`); false when absent.
    pub force: Option<bool>,
}

/// Which labels change; the others stay. At least one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LabelNode {
    /// At most 32; a node has no more. A key is 1 to 63 characters, a value at most 128.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    /// Keys, at most 32. One that the node has not is no fault.
    #[serde(default)]
    pub remove: Vec<String>,
}
