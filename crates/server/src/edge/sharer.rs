//! Who shares the places of the known: first those for whose fleet a credential is, then those who have credentials. So a tenant with
//! many hosts or keys takes nothing from another, nor from those who run the domain.

use crate::edge::authenticate::CredentialHolder;
use lifecycle::names::TenantId;
use lifecycle::registry::{State, Tenants};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sharer {
    /// Whoever is at the operator socket.
    Machine,
    /// Those whose credential is good for more than one tenant.
    Domain,
    Tenant(TenantId),
    Holder(CredentialHolder),
}

/// Of the credential, the outermost first.
pub fn sharers(state: &State, holder: &CredentialHolder) -> [Sharer; 2] {
    let of = |tenants: &Tenants| match tenants {
        Tenants::Only(names) if names.len() == 1 => names.first().cloned().map(Sharer::Tenant),
        Tenants::Only(_) | Tenants::All => None,
    };
    let group = match holder {
        CredentialHolder::Local(_) => Some(Sharer::Machine),
        CredentialHolder::Operator(name) => {
            state.operators.get(name).and_then(|operator| of(&operator.tenants))
        }
        CredentialHolder::Key(id) => state.operator_keys.get(id).and_then(|key| of(&key.tenants)),
        CredentialHolder::Node(id) => state.nodes.get(id).map(|node| Sharer::Tenant(node.tenant.clone())),
    };
    [group.unwrap_or(Sharer::Domain), Sharer::Holder(holder.clone())]
}
