//! Tenants: sub-scopes of the domain.

use crate::registry::apply::Decision;
use crate::registry::{Actor, CreateTenant, Event, Rejection, State, Tenant};

pub(in crate::registry) fn create(state: &State, actor: &Actor, create: &CreateTenant) -> Decision {
    if state.tenants.contains_key(&create.tenant) {
        return Rejection::TenantExists { tenant: create.tenant.clone() }.into();
    }
    let tenant = Tenant { name: create.tenant.clone(), created_by: actor.to_string(), created_at: state.at };
    Decision::granted(vec![Event::TenantCreated(tenant)])
}
