//! For which tenants an operator or an API key is good.

use lifecycle::names::{Malformed, TenantId};
use lifecycle::registry::Tenants;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One tenant or several, as most callers have one. All tenants is the absence of this value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
#[schema(as = Scope)]
pub enum TenantScope {
    One(String),
    Several(Vec<String>),
}

impl TenantScope {
    pub fn of(tenants: &Tenants) -> Option<Self> {
        let Tenants::Only(names) = tenants else {
            return None;
        };
        let mut names: Vec<String> = names.iter().map(ToString::to_string).collect();
        Some(match names.pop() {
            Some(only) if names.is_empty() => TenantScope::One(only),
            Some(last) => {
                names.push(last);
                TenantScope::Several(names)
            }
            None => TenantScope::Several(names),
        })
    }

    /// An empty list is no tenant at all, never all of them.
    pub fn tenants(scope: Option<&Self>) -> Result<Tenants, Malformed> {
        let names = match scope {
            None => return Ok(Tenants::All),
            Some(TenantScope::One(name)) => std::slice::from_ref(name),
            Some(TenantScope::Several(names)) => names.as_slice(),
        };
        names.iter().map(|name| TenantId::parse(name)).collect::<Result<_, _>>().map(Tenants::Only)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_reads_back_as_written() {
        let one = TenantScope::One("acme".to_owned());
        let two = TenantScope::Several(vec!["acme".to_owned(), "globex".to_owned()]);
        for scope in [None, Some(one), Some(two), Some(TenantScope::Several(Vec::new()))] {
            let tenants = TenantScope::tenants(scope.as_ref());
            assert_eq!(tenants.map(|tenants| TenantScope::of(&tenants)), Ok(scope));
        }
        assert!(TenantScope::tenants(Some(&TenantScope::One("no such/name".to_owned()))).is_err());
    }
}
