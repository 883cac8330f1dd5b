//! Removing a replica: its certificates are denied, its id is never given again, and what it signed stays good.

use crate::names::{IssuerId, NodeId, ReplicaId, Serial};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Confirmation, Envelope, Event, IssuerState, Rejection, ReplicaState, State};

/// Removing twice is removing once. Whether the others still have a majority is known to the replica that was asked; that
/// nobody would be left is known here.
pub(in crate::registry) fn remove(
    state: &State,
    id: ReplicaId,
    confirm: &Confirmation,
    forced: bool,
) -> Decision {
    let Some(replica) = state.replicas.get(&id) else {
        return Rejection::ReplicaNotFound { replica: id }.into();
    };
    if !replica.is_member() {
        return Decision::granted(Vec::new());
    }
    if state.members().count() == 1 {
        return Rejection::WouldLoseMajority.into();
    }
    if forced {
        let consequence = format!(
            "replica {id} is removed even if the replicas that are left cannot form a majority, in which case nothing can be changed until enough of them are back"
        );
        if let Err(needed) = confirm.check(&id.to_string(), &consequence, 0) {
            return needed.into();
        }
    }
    let serials: Vec<Serial> = replica.serials().cloned().collect();
    let denied = state.undenied(&serials);
    Decision::granted(vec![Event::ReplicaRemoved(ReplicaRemoved { replica: id, denied, forced })])
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaRemoved {
    pub replica: ReplicaId,
    pub denied: Vec<Serial>,
    pub forced: bool,
}

impl Happened for ReplicaRemoved {
    const NAME: &'static str = "cluster.removed";

    fn fields(&self) -> AuditFields {
        vec![
            ("replica_id", AuditField::text(self.replica)),
            ("denied_serials", AuditField::texts(&self.denied)),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        let at = state.at;
        state.deny(&self.denied);
        if let Some(replica) = state.replicas.get_mut(&self.replica) {
            (replica.state, replica.removed_at) = (ReplicaState::Removed, Some(at));
            replica.removed_by_force = self.forced;
        }
        // Nodes keep the certificates that it signed in its memory: these are good until they end.
        let issuer: Option<IssuerId> = state.ephemeral_issuer(self.replica).map(|issuer| issuer.id.clone());
        if let Some(id) = issuer {
            state.end_issuer(&id, IssuerState::Retiring);
        }
        state.forget_server_certificate(self.replica);
    }
}
