//! What an issuer's certificates are for.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IssuerUse {
    /// Nodes, operators and the control plane: an imported CA, and issuers of before there were two.
    #[default]
    Both,
    /// Client certificates, of nodes and operators.
    Node,
    /// The control plane's own certificates, and the audit key's.
    Server,
}

impl IssuerUse {
    pub fn as_str(self) -> &'static str {
        match self {
            IssuerUse::Both => "both",
            IssuerUse::Node => "node",
            IssuerUse::Server => "server",
        }
    }

    pub fn is_both(&self) -> bool {
        *self == IssuerUse::Both
    }

    /// Whether both sign for somebody in common.
    pub fn overlaps(self, other: Self) -> bool {
        self.signs_clients() && other.signs_clients() || self.signs_servers() && other.signs_servers()
    }

    /// Whether nodes and operators have certificates of it.
    pub fn signs_clients(self) -> bool {
        match self {
            IssuerUse::Both | IssuerUse::Node => true,
            IssuerUse::Server => false,
        }
    }

    /// Whether the control plane has certificates of it.
    pub fn signs_servers(self) -> bool {
        match self {
            IssuerUse::Both | IssuerUse::Server => true,
            IssuerUse::Node => false,
        }
    }
}

impl std::fmt::Display for IssuerUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
