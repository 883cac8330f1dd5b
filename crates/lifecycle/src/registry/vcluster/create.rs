//! Creating a vCluster. Names are unique in the domain.

use super::Vcluster;
use crate::names::{NodeId, TenantId, VclusterId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Actor, Envelope, Event, Rejection, State};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateVcluster {
    pub vcluster: VclusterId,
    pub tenant: TenantId,
}

pub(in crate::registry) fn create(state: &State, actor: &Actor, create: &CreateVcluster) -> Decision {
    if !state.tenants.contains_key(&create.tenant) {
        return Rejection::TenantNotFound { tenant: create.tenant.clone() }.into();
    }
    if state.vclusters.contains_key(&create.vcluster) {
        return Rejection::VclusterExists { vcluster: create.vcluster.clone() }.into();
    }
    Decision::granted(vec![Event::VclusterCreated(Vcluster {
        id: create.vcluster.clone(),
        tenant: create.tenant.clone(),
        created_by: actor.to_string(),
        created_at: state.at,
        config: super::Documents::default(),
    })])
}

impl Happened for Vcluster {
    const NAME: &'static str = "vcluster.created";

    fn fields(&self) -> AuditFields {
        vec![("vcluster", AuditField::text(&self.id)), ("tenant", AuditField::text(&self.tenant))]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.vclusters.insert(self.id.clone(), Arc::new(self.clone()));
    }
}
