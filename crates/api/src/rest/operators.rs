//! Operators: those who run the fleet.

use super::one_or_more::OneOrMore;
use super::scope::TenantScope;
use lifecycle::registry::{Operator, State, Vclusters};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

mod keys;

pub use keys::{CreateOperatorKeyRequest, CreatedKey, KeyItem};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = AddOperator)]
pub struct AddOperatorRequest {
    pub name: String,
    /// `viewer`, `operator` or `platform-admin`.
    pub role: String,
    /// All tenants when absent.
    pub tenant: Option<TenantScope>,
    /// Narrows the role `operator` to assigning, moving and reading nodes of these vClusters; not narrowed when absent.
    #[serde(default, skip_serializing_if = "OneOrMore::is_empty")]
    pub vcluster: OneOrMore,
    /// A PKCS#10 request, PEM: with it the operator gets a client certificate. The key stays with the caller.
    pub csr: Option<String>,
}

/// A new operator; the certificate fields are null without a request for one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AddedOperator {
    pub name: String,
    pub role: String,
    #[schema(required)]
    pub tenant: Option<TenantScope>,
    /// What the role is narrowed to; empty when it is not.
    #[serde(default)]
    #[schema(required)]
    pub vclusters: Vec<String>,
    /// The leaf, PEM.
    #[schema(required)]
    pub certificate: Option<String>,
    /// The intermediates between leaf and root, PEM.
    #[schema(required)]
    pub chain: Option<String>,
    /// What to trust to reach the control plane, PEM.
    #[schema(required)]
    pub ca: Option<String>,
    #[schema(required)]
    pub cert_serial: Option<String>,
    #[schema(required)]
    pub not_after: Option<String>,
    /// Where the control plane is reached from elsewhere.
    #[serde(default)]
    #[schema(required)]
    pub server_url: Option<String>,
    /// The same of every replica, in the order in which they are to be tried.
    #[serde(default)]
    #[schema(required)]
    pub server_urls: Vec<String>,
}

impl AddedOperator {
    /// Where the control plane is reached; one that is older names one address.
    pub fn servers(&self) -> Vec<String> {
        match self.server_urls.as_slice() {
            [] => self.server_url.iter().cloned().collect(),
            all => all.to_vec(),
        }
    }
}

/// A new certificate for the operator that the client certificate names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RenewOperator)]
pub struct RenewOperatorRequest {
    /// A PKCS#10 request for a new key, PEM. Only its key is used. The key stays with the caller.
    pub csr: String,
}

/// The certificate in use stays good until this one is first used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RenewedOperator {
    pub name: String,
    pub role: String,
    /// Null for all tenants.
    #[schema(required)]
    pub tenant: Option<TenantScope>,
    /// The leaf, PEM.
    pub certificate: String,
    /// The intermediates between leaf and root, PEM.
    pub chain: String,
    /// What to trust to reach the control plane, PEM.
    pub ca: String,
    pub cert_serial: String,
    pub not_after: String,
    /// The serials of certificates that an earlier renewal issued and nobody ever used: they are denied now.
    #[serde(default)]
    #[schema(required)]
    pub denied_serials: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperatorItem {
    pub name: String,
    pub role: String,
    /// Null for all tenants.
    #[schema(required)]
    pub tenant: Option<TenantScope>,
    /// What the role is narrowed to; empty when it is not.
    #[serde(default)]
    #[schema(required)]
    pub vclusters: Vec<String>,
    pub added_by: String,
    pub added_at: String,
    #[schema(required)]
    pub cert_serial: Option<String>,
    #[schema(required)]
    pub cert_not_after: Option<String>,
}

impl OperatorItem {
    pub fn of(state: &State, operator: &Operator) -> Self {
        let certificate = operator.serial.as_ref().and_then(|serial| state.certificates.get(serial));
        Self {
            name: operator.name.to_string(),
            role: operator.role.as_str().to_owned(),
            tenant: TenantScope::of(&operator.tenants),
            vclusters: vcluster_names(&operator.vclusters),
            added_by: operator.added_by.clone(),
            added_at: operator.added_at.to_string(),
            cert_serial: operator.serial.as_ref().map(ToString::to_string),
            cert_not_after: certificate.map(|certificate| certificate.not_after.to_string()),
        }
    }
}

/// An operator that is removed: its certificates are denied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RemovedOperator {
    pub name: String,
    /// Always true.
    pub removed: bool,
    /// The ids of the API keys that were revoked with it: those that carry its name, those that it made, and those that were made
    /// with any of these.
    pub keys_revoked: Vec<String>,
}

/// What a role is narrowed to, by name.
pub fn vcluster_names(vclusters: &Vclusters) -> Vec<String> {
    match vclusters {
        Vclusters::All => Vec::new(),
        Vclusters::Only(names) => names.iter().map(ToString::to_string).collect(),
    }
}
