//! Taking a replica's wall clock to be right because other replicas, whose clocks did not jump, show the same time: its machine was
//! suspended, and time went on without it. Nobody has to be asked.

use super::accept_clock::ClockAccepted;
use crate::clock;
use crate::names::{ReplicaId, Timestamp};
use crate::registry::apply::Decision;
use crate::registry::{Event, Rejection, State};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CorroborateClock {
    /// Whose clock it is.
    pub replica: ReplicaId,
    /// The time that it went by until now.
    pub from: Timestamp,
    /// What its wall clock says.
    pub to: Timestamp,
    /// Who was asked and agrees; [`clock::borne_out`] says who counts.
    pub agreeing: Vec<ReplicaId>,
}

/// What the replica has found is held against what is known here: those that agree are members, and the leader, which dates this
/// entry by its own clock, is not far from that time either.
pub(in crate::registry) fn decide(state: &State, found: &CorroborateClock) -> Decision {
    let members = found.agreeing.iter().chain([&found.replica]).map(|id| state.member(*id));
    if let Some(rejection) = members.into_iter().find_map(Result::err) {
        return rejection.into();
    }
    let others = found.agreeing.iter().filter(|id| **id != found.replica);
    let others = others.collect::<std::collections::BTreeSet<_>>().len();
    let far = found.to.ahead_of(state.at).unsigned_abs() > clock::BEHIND.millis();
    if others < clock::WITNESSES || found.to <= found.from || far {
        return Rejection::PreparedStale.into();
    }
    Decision::granted(vec![Event::ClockAccepted(ClockAccepted {
        from: found.from,
        to: found.to,
        replica: Some(found.replica),
        agreeing: found.agreeing.clone(),
    })])
}
