//! Registering a machine by its hardware: from then on it may enroll without a token.

use super::HardwareIdentity;
use crate::names::{AlertId, NodeId, ProfileName, TenantId, VclusterId};
use crate::registry::apply::Decision;
use crate::registry::event::{AlertRaised, AuditField, AuditFields, Happened, host};
use crate::registry::node::reinstate;
use crate::registry::vcluster::assign::join;
use crate::registry::{
    AlertKind, Documents, Envelope, Event, Node, Outcome, Rejection, State, Tenants, permissions,
};
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
    /// The id of the alert that the tenant gets if another one has this hardware. Commands of older versions have none: the
    /// platform-admins of every tenant could register any number of machines, and a conflict raised nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alert: Option<AlertId>,
}

pub(in crate::registry) fn decide(
    state: &State,
    envelope: &Envelope,
    register: &RegisterHardware,
) -> Decision {
    if let Err(rejection) = check_quota(state, envelope, register) {
        return rejection.into();
    }
    let refused = |rejection: Rejection| Decision {
        events: conflict(state, envelope, register, &rejection),
        answer: Err(rejection),
    };
    check(state, register).map_or_else(refused, |()| {
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

/// Hardware is first come, first served: whoever is not an operator of all tenants may not take it all. Asked before anything is looked
/// up, so that nothing can be found out beyond it.
fn check_quota(state: &State, envelope: &Envelope, register: &RegisterHardware) -> Result<(), Rejection> {
    let everywhere =
        permissions(state, &envelope.actor).is_some_and(|granted| granted.tenants == Tenants::All);
    if everywhere || register.alert.is_none() { Ok(()) } else { state.has_room_for_machine(&register.tenant) }
}

impl State {
    /// Whether the platform-admins of a tenant may bring it to one machine more.
    pub(in crate::registry) fn has_room_for_machine(&self, tenant: &TenantId) -> Result<(), Rejection> {
        let max = self.policy.hardware_max_per_tenant;
        if max == 0 || self.machines_of(tenant) < u64::from(max) {
            Ok(())
        } else {
            Err(Rejection::HardwareQuota { max })
        }
    }
}

/// Both tenants hear that there is a conflict, once while the alert is open; neither is told which tenant or node the other is.
fn conflict(
    state: &State,
    envelope: &Envelope,
    register: &RegisterHardware,
    rejection: &Rejection,
) -> Vec<Event> {
    let foreign = matches!(rejection, Rejection::HardwareIdentityConflict { node: None });
    let holder = state.hardware_holder(&register.node, &register.identity).filter(|_| foreign);
    let (Some(alert), Some(holder)) = (register.alert, holder) else { return Vec::new() };
    let raised = |alert: AlertId, tenant: &TenantId, detail: String| {
        let kind = AlertKind::HardwareConflict;
        let open = state.alerts.with_subject(kind, None, Some(tenant));
        let tenant = Some(tenant.clone());
        let raised = AlertRaised { alert, kind, node: None, tenant, detail, count: 1 };
        open.is_none().then_some(Event::AlertRaised(raised))
    };
    let (own, other) = (&register.node, &holder.id);
    let claimed = format!("the hardware of node {own} could not be registered: another tenant has it");
    let held = format!("another tenant tried to register the hardware of node {other}");
    let claimed = raised(alert, &register.tenant, claimed);
    claimed.into_iter().chain(raised(AlertId(envelope.id.0), &holder.tenant, held)).collect()
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
