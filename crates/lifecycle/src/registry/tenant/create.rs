//! Creating a tenant.

use crate::names::{NodeId, TenantId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Actor, Envelope, Event, Rejection, State, Tenant};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateTenant {
    pub tenant: TenantId,
}

pub(in crate::registry) fn create(state: &State, actor: &Actor, create: &CreateTenant) -> Decision {
    if state.tenants.contains_key(&create.tenant) {
        return Rejection::TenantExists { tenant: create.tenant.clone() }.into();
    }
    let tenant = Tenant { name: create.tenant.clone(), created_by: actor.to_string(), created_at: state.at };
    Decision::granted(vec![Event::TenantCreated(tenant)])
}

impl Happened for Tenant {
    const NAME: &'static str = "tenant.created";

    fn fields(&self) -> AuditFields {
        vec![("tenant", AuditField::text(&self.name))]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.tenants.insert(self.name.clone(), self.clone());
    }
}
