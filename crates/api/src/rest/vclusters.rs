//! vClusters: groups of nodes with a configuration of their own.

use lifecycle::registry::Vcluster;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CreateVcluster)]
pub struct CreateVclusterRequest {
    pub name: String,
    /// The tenant of `X-Tenant`, else the operator's only one, else `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VclusterItem {
    pub name: String,
    pub tenant: String,
    /// Of its configuration document; 0 while it has none.
    pub version: u64,
    /// How many nodes are assigned to it.
    pub nodes: u64,
    pub created_by: String,
    pub created_at: String,
}

impl VclusterItem {
    /// `nodes` is how many are in it.
    pub fn of(vcluster: &Vcluster, nodes: u64) -> Self {
        Self {
            name: vcluster.id.to_string(),
            tenant: vcluster.tenant.to_string(),
            version: vcluster.config.version(),
            nodes,
            created_by: vcluster.created_by.clone(),
            created_at: vcluster.created_at.to_string(),
        }
    }
}

/// A vCluster with its configuration.
// Not flattened: a document is kept byte for byte, which serde cannot do inside of a flattened struct.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct VclusterDetail {
    pub name: String,
    pub tenant: String,
    pub version: u64,
    pub nodes: u64,
    pub created_by: String,
    pub created_at: String,
    /// Hex SHA-256 of the document.
    pub checksum: String,
    #[schema(value_type = Object)]
    pub config: Box<RawValue>,
}

/// The configuration of nodes that are in no vCluster.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct VclusterDefaults {
    /// 0 while it is the built-in document.
    pub version: u64,
    /// Hex SHA-256 of the document.
    pub checksum: String,
    #[schema(value_type = Object)]
    pub config: Box<RawValue>,
}

/// Any JSON object of at most 262,144 bytes, nested at most 64 deep, whose keys stand once each. It is kept byte for byte.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = Object)]
pub struct ConfigurationDocument(pub Box<RawValue>);
