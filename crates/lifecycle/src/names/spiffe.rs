//! SPIFFE identities: `spiffe://<trust domain>/tenant/<tenant>/agent/<node>` and its siblings.

use super::{BootstrapName, Malformed, NodeId, OperatorName, ReplicaId, TenantId};
use std::sync::Arc;

const DOMAIN: Malformed = Malformed {
    what: "a domain",
    expected: "1 to 63 characters from a-z, 0-9, '.', '-' and '_', beginning with a letter or digit",
};
const ID: Malformed = Malformed { what: "a SPIFFE id", expected: "spiffe:// with a path that Enlist issues" };

/// The name under which one control plane issues identities.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TrustDomain(Arc<str>);

impl TrustDomain {
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let first = text.bytes().next().is_some_and(plain);
        if first && text.len() <= 63 && text.bytes().all(|b| plain(b) || matches!(b, b'.' | b'-' | b'_')) {
            Ok(Self(text.into()))
        } else {
            Err(DOMAIN)
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for TrustDomain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for TrustDomain {
    type Error = Malformed;
    fn try_from(text: String) -> Result<Self, Malformed> {
        Self::parse(&text)
    }
}

impl From<TrustDomain> for String {
    fn from(domain: TrustDomain) -> String {
        domain.0.as_ref().to_owned()
    }
}

/// Who a certificate speaks for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpiffePath {
    Agent {
        tenant: TenantId,
        node: NodeId,
    },
    Operator {
        name: OperatorName,
    },
    Replica {
        id: ReplicaId,
    },
    /// Shared by hosts that have no identity of their own yet.
    Bootstrap {
        name: BootstrapName,
    },
}

/// A whole identity.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct SpiffeId {
    pub domain: TrustDomain,
    pub path: SpiffePath,
}

impl SpiffeId {
    pub fn agent(domain: &TrustDomain, tenant: &TenantId, node: &NodeId) -> Self {
        let path = SpiffePath::Agent { tenant: tenant.clone(), node: node.clone() };
        Self { domain: domain.clone(), path }
    }

    pub fn operator(domain: &TrustDomain, name: &OperatorName) -> Self {
        Self { domain: domain.clone(), path: SpiffePath::Operator { name: name.clone() } }
    }

    pub fn replica(domain: &TrustDomain, id: ReplicaId) -> Self {
        Self { domain: domain.clone(), path: SpiffePath::Replica { id } }
    }

    pub fn bootstrap(domain: &TrustDomain, name: &BootstrapName) -> Self {
        Self { domain: domain.clone(), path: SpiffePath::Bootstrap { name: name.clone() } }
    }

    pub fn parse(uri: &str) -> Result<Self, Malformed> {
        let (domain, path) = uri.strip_prefix("spiffe://").and_then(|rest| rest.split_once('/')).ok_or(ID)?;
        let domain = TrustDomain::parse(domain)?;
        let segments: Vec<&str> = path.split('/').collect();
        let path = match segments.as_slice() {
            ["tenant", tenant, "agent", node] => {
                SpiffePath::Agent { tenant: TenantId::parse(tenant)?, node: NodeId::parse(node)? }
            }
            ["operator", name] => SpiffePath::Operator { name: OperatorName::parse(name)? },
            ["replica", id] => SpiffePath::Replica { id: ReplicaId::parse(id)? },
            ["bootstrap", name] => SpiffePath::Bootstrap { name: BootstrapName::parse(name)? },
            _ => return Err(ID),
        };
        Ok(Self { domain, path })
    }
}

impl std::fmt::Display for SpiffeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "spiffe://{}/", self.domain)?;
        match &self.path {
            SpiffePath::Agent { tenant, node } => write!(f, "tenant/{tenant}/agent/{node}"),
            SpiffePath::Operator { name } => write!(f, "operator/{name}"),
            SpiffePath::Replica { id } => write!(f, "replica/{id}"),
            SpiffePath::Bootstrap { name } => write!(f, "bootstrap/{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_read_back_as_written() {
        for uri in [
            "spiffe://probectl/tenant/acme/agent/n-1",
            "spiffe://a.example/operator/alice",
            "spiffe://a.example/replica/2",
            "spiffe://a.example/bootstrap/image-7",
        ] {
            assert_eq!(SpiffeId::parse(uri).map(|id| id.to_string()), Ok(uri.to_owned()));
        }
    }

    #[test]
    fn what_enlist_does_not_issue_is_no_identity() {
        for bad in [
            "https://a/operator/alice",
            "spiffe://A/operator/alice",
            "spiffe:///operator/alice",
            "spiffe://a",
            "spiffe://a/operator/alice/",
            "spiffe://a/tenant/t/agent/",
            "spiffe://a/tenant/t/agent/n?x",
            "spiffe://a:1/operator/alice",
            "spiffe://a/replica/02",
            "spiffe://a/replica/0",
        ] {
            assert!(SpiffeId::parse(bad).is_err(), "{bad}");
        }
    }
}
