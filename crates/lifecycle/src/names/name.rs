//! Names that people choose: nodes, tenants, operators, vClusters, profiles, issuers.

use super::Malformed;
use std::sync::Arc;

const EXPECTED: &str =
    "1 to 63 characters from A-Z, a-z, 0-9, '.', '_' and '-', beginning with a letter or digit";

fn well_formed(text: &str) -> bool {
    let mut bytes = text.bytes();
    text.len() <= 63
        && bytes.next().is_some_and(|b| b.is_ascii_alphanumeric())
        && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(Arc<str>);

        impl $type {
            pub fn parse(text: &str) -> Result<Self, Malformed> {
                if well_formed(text) {
                    Ok(Self(text.into()))
                } else {
                    Err(Malformed { what: $what, expected: EXPECTED })
                }
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $type {
            type Error = Malformed;
            fn try_from(text: String) -> Result<Self, Malformed> {
                Self::parse(&text)
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.0.as_ref().to_owned()
            }
        }
    };
}

name!(
    /// A machine in the registry. Unique in the domain, tombstones included.
    NodeId,
    "a node id"
);
/// Words that stand where a node's id would, in paths of the operator API and of the doors.
const RESERVED: [&str; 3] = ["enroll", "enroll-tokens", "import"];

impl NodeId {
    /// Whether a node of this name could not be spoken of. No new one gets it.
    pub fn is_reserved(&self) -> bool {
        RESERVED.contains(&self.as_str())
    }

    /// The first in order: no id comes before it.
    pub(crate) fn least() -> Self {
        Self("0".into())
    }
}

name!(
    /// A sub-scope of the domain; every node belongs to one.
    TenantId,
    "a tenant name"
);
name!(
    /// A person or a robot that runs the fleet.
    OperatorName,
    "an operator name"
);
name!(
    /// An identity that many hosts share until they have one of their own.
    BootstrapName,
    "a bootstrap identity's name"
);
name!(
    /// A logical group of nodes.
    VclusterId,
    "a vCluster name"
);
name!(
    /// A set of rules for leaf certificates.
    ProfileName,
    "a profile name"
);
name!(
    /// What signs leaf certificates.
    IssuerId,
    "an issuer id"
);

impl TenantId {
    /// The tenant of those who name none.
    pub fn default_tenant() -> Self {
        Self("default".into())
    }
}

impl ProfileName {
    /// The profile of those who name none.
    pub fn default_profile() -> Self {
        Self("default".into())
    }

    /// The profile of hosts that come by the plfm API, all of which have a WireGuard key.
    pub fn plfm() -> Self {
        Self("plfm".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_plain_and_begins_with_a_letter_or_digit() {
        for good in ["a", "0", "rack-7.node_3", "01JHOST", &"x".repeat(63)] {
            assert!(NodeId::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", ".a", "_a", "a b", "a/b", "ä", "a\0", &"x".repeat(64)] {
            assert!(NodeId::parse(bad).is_err(), "{bad}");
        }
    }
}
