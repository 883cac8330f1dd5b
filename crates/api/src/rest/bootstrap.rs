//! Bootstrap identities: certificates that hosts share until they have one of their own.

use lifecycle::registry::{Bootstrap, State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = IssueBootstrap)]
pub struct IssueBootstrapRequest {
    pub name: String,
    /// A PKCS#10 request, PEM.
    pub csr: String,
    /// A duration such as `90d`, which is also what it is when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IssuedBootstrap {
    pub name: String,
    pub spiffe_id: String,
    /// The leaf, PEM.
    pub certificate: String,
    /// The issuer, PEM.
    pub chain: String,
    /// What to trust to reach the control plane, PEM.
    pub ca: String,
    pub cert_serial: String,
    pub not_after: String,
    /// Whether that is earlier than was asked for: the issuer ends then.
    #[serde(default)]
    pub shortened: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BootstrapItem {
    pub name: String,
    pub spiffe_id: String,
    /// `valid`, `expired` or `revoked`.
    pub state: String,
    /// Of its certificates on record, the oldest first.
    pub cert_serials: Vec<String>,
    /// How many of these are good now.
    #[serde(default)]
    pub valid: u64,
    /// How many of these are revoked.
    #[serde(default)]
    pub revoked: u64,
    /// When the last of them ends.
    pub not_after: String,
    pub issued_by: String,
    pub issued_at: String,
}

impl BootstrapItem {
    pub fn of(state: &State, bootstrap: &Bootstrap) -> Self {
        let domain = state.domain.as_ref().map(|domain| domain.name.as_str()).unwrap_or_default();
        let word = match (
            bootstrap.serials.iter().any(|serial| state.is_good(serial)),
            bootstrap.serials.iter().all(|serial| state.is_denied(serial)),
        ) {
            (true, _) => "valid",
            (false, true) => "revoked",
            (false, false) => "expired",
        };
        Self {
            name: bootstrap.name.to_string(),
            spiffe_id: format!("spiffe://{domain}/bootstrap/{}", bootstrap.name),
            state: word.to_owned(),
            cert_serials: bootstrap.serials.iter().map(ToString::to_string).collect(),
            valid: bootstrap.serials.iter().filter(|serial| state.is_good(serial)).count() as u64,
            revoked: bootstrap.serials.iter().filter(|serial| state.is_denied(serial)).count() as u64,
            not_after: bootstrap.expires_at.to_string(),
            issued_by: bootstrap.issued_by.clone(),
            issued_at: bootstrap.issued_at.to_string(),
        }
    }
}
