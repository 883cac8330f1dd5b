//! Registering a machine by its hardware: from then on it may enroll without a token.

use super::HardwareIdentity;
use crate::names::{NodeId, ProfileName, TenantId, VclusterId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened, host};
use crate::registry::node::reinstate;
use crate::registry::vcluster::assign::join;
use crate::registry::{Documents, Envelope, Event, Node, Outcome, Rejection, State};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Makes a machine known. The id of a node that is gone begins a new life, with this hardware.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterHardware {
    pub node: NodeId,
    pub tenant: TenantId,
    /// That of the API by which the machine enrolls, if none.
    pub profile: Option<ProfileName>,
    pub identity: HardwareIdentity,
    pub vcluster: Option<VclusterId>,
}

pub(in crate::registry) fn decide(state: &State, register: &RegisterHardware) -> Decision {
    check(state, register).map_or_else(Decision::from, |()| {
        let id = &register.node;
        let gone = state.nodes.get(id);
        let mut events = gone.map(|node| reinstate::events(state, node)).unwrap_or_default();
        events.push(Event::HardwareRegistered(Box::new(HardwareRegistered {
            node: id.clone(),
            tenant: register.tenant.clone(),
            profile: register.profile.clone(),
            identity: Arc::new(register.identity.clone()),
            vcluster: register.vcluster.clone(),
        })));
        Decision { events, answer: Ok(Outcome::Registered { node: id.clone() }) }
    })
}

fn check(state: &State, register: &RegisterHardware) -> Result<(), Rejection> {
    let (id, tenant) = (&register.node, &register.tenant);
    if !state.tenants.contains_key(tenant) {
        return Err(Rejection::TenantNotFound { tenant: tenant.clone() });
    }
    if id.is_reserved() {
        return Err(Rejection::NodeIdInUse { node: id.clone() });
    }
    if let Some(node) = state.nodes.get(id)
        && (!node.state.is_gone() || node.tenant != *tenant)
    {
        let known = node.identity.as_deref().filter(|_| node.tenant == *tenant);
        let same = known == Some(&register.identity);
        return Err(Rejection::NodeAlreadyEnrolled { node: id.clone(), same });
    }
    if let Some(profile) = register.profile.as_ref().filter(|name| !state.policy.profiles.contains_key(*name))
    {
        return Err(Rejection::ProfileNotFound { profile: profile.clone() });
    }
    if let Some(vcluster) = &register.vcluster {
        state.vcluster_in(vcluster, tenant)?;
    }
    match state.hardware_holder(id, &register.identity) {
        // Whose it is in another tenant is not this one's to know.
        Some(holder) => Err(Rejection::HardwareIdentityConflict {
            node: (holder.tenant == *tenant).then(|| holder.id.clone()),
        }),
        None => Ok(()),
    }
}

/// A machine is known by its hardware, and has no certificate yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HardwareRegistered {
    pub node: NodeId,
    pub tenant: TenantId,
    pub profile: Option<ProfileName>,
    pub identity: Arc<HardwareIdentity>,
    pub vcluster: Option<VclusterId>,
}

impl Happened for HardwareRegistered {
    const NAME: &'static str = "host.registered";

    fn fields(&self) -> AuditFields {
        let hardware = Vec::from(self.identity.as_ref().clone());
        host(
            &self.node,
            [
                ("tenant", AuditField::text(&self.tenant)),
                ("profile", AuditField::maybe(self.profile.as_ref())),
                ("hardware", AuditField::texts(&hardware)),
                ("vcluster", AuditField::maybe(self.vcluster.as_ref())),
            ],
        )
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, envelope: &Envelope) {
        let profile = self.profile.clone().unwrap_or_else(|| state.policy.default_profile.clone());
        if !state.nodes.contains_key(&self.node) {
            let blank = Node::registered(self.node.clone(), self.tenant.clone(), profile.clone(), state.at);
            state.nodes.insert(self.node.clone(), Arc::new(blank));
        }
        state.hold_hardware(&self.node, &self.identity);
        let (actor, at) = (envelope.actor.to_string(), state.at);
        state.change_node(&self.node, |node| {
            // What was said to the machine before it is not for this one.
            node.config = Documents::default();
            node.profile = profile;
            node.registered_profile = self.profile.clone();
            node.registered_by = Some(actor);
            node.registered_at = Some(at);
        });
        if state.nodes.get(&self.node).is_some_and(|node| node.vcluster != self.vcluster) {
            join(state, &self.node, self.vcluster.as_ref());
        }
    }
}
