//! Reinstating: the name of a node that is gone begins a new life. What was denied stays denied.

use crate::names::{NodeId, TenantId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened, host};
use crate::registry::{
    Act, Actor, AlertKind, Envelope, Event, Node, NodeSessions, NodeState, Rejection, State, Tenants,
    permissions,
};

/// A node that is not gone is left as it is. A machine belongs to whoever registered it again, so that it takes the same right.
pub(in crate::registry) fn reinstate(
    state: &State,
    envelope: &Envelope,
    id: &NodeId,
    as_registered: bool,
) -> Decision {
    match state.nodes.get(id) {
        None => Rejection::NodeNotFound { node: id.clone() }.into(),
        Some(node) if node.state.is_gone() => {
            if as_registered
                && node.identity.is_some()
                && let Err(rejection) = check_machine(state, &envelope.actor, &node.tenant)
            {
                return rejection.into();
            }
            // The machine may be registered as another node by now.
            let taken = node.identity.as_ref().and_then(|identity| state.hardware_holder(id, identity));
            match taken {
                Some(holder) => Rejection::HardwareIdentityConflict {
                    node: (holder.tenant == node.tenant).then(|| holder.id.clone()),
                }
                .into(),
                None => Decision::granted(events(state, node)),
            }
        }
        Some(_) => Decision::granted(Vec::new()),
    }
}

/// What a machine of a tenant asks of whoever is not an operator of all tenants.
fn check_machine(state: &State, actor: &Actor, tenant: &TenantId) -> Result<(), Rejection> {
    if permissions(state, actor).is_some_and(|granted| granted.tenants == Tenants::All) {
        return Ok(());
    }
    if !state.policy.hardware_tenants.contains(tenant) {
        let needs = Act::RegisterHardware.who().needs();
        return Err(Rejection::NotAllowed { actor: actor.to_string(), needs });
    }
    state.has_room_for_machine(tenant)
}

/// A node that is gone begins a new life.
pub(in crate::registry) fn events(state: &State, node: &Node) -> Vec<Event> {
    let (id, generation) = (&node.id, node.generation.saturating_add(1));
    let reinstated = Event::NodeReinstated(NodeReinstated { node: id.clone(), generation });
    // What was copied is denied; the new life begins without suspicion.
    let unsuspected = state.clearing(&[AlertKind::CloneSuspected], id);
    [reinstated].into_iter().chain(unsuspected).collect()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeReinstated {
    pub node: NodeId,
    pub generation: u32,
}

impl Happened for NodeReinstated {
    const NAME: &'static str = "host.reinstated";

    fn fields(&self) -> AuditFields {
        host(&self.node, [("generation", AuditField::Number(u64::from(self.generation)))])
    }

    fn peer(&self) -> Option<&NodeId> {
        Some(&self.node)
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        let at = state.at;
        state.change_node(&self.node, |node| {
            node.state = NodeState::Registered;
            node.state_since = at;
            node.generation = self.generation;
            node.ended = None;
            node.end_drain();
            node.end_quarantine();
            node.forget_streams();
            node.recovery.repairing = false;
            node.sessions = NodeSessions::default();
        });
        state.reclaim_hardware(&self.node);
    }
}
