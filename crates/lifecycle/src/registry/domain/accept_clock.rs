//! An operator's word that the wall clock of a control plane is right.

use crate::clock;
use crate::names::{NodeId, ReplicaId, Serial, Timestamp};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Alert, AlertKind, Confirmation, Envelope, Event, Rejection, State, Token, TokenState};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What a caller repeats to confirm.
const CLOCK: &str = "clock";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptClock {
    /// The time until now.
    pub from: Timestamp,
    /// What the wall clock says.
    pub to: Timestamp,
    /// Not asked at a start (`--accept-clock`), where somebody has just typed it, and where a clock that is behind does
    /// no harm: time goes on from the last entry.
    #[serde(default, skip_serializing_if = "Confirmation::is_not_asked")]
    pub confirm: Confirmation,
}

/// What ends when the time goes from one moment to a later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndsByThen {
    /// Nodes that have a good certificate now and none then.
    pub nodes: u64,
    pub operators: u64,
    pub tokens: u64,
    pub keys: u64,
    pub issuers: u64,
}

impl State {
    pub fn ends_by(&self, from: Timestamp, to: Timestamp) -> EndsByThen {
        let within = |end: Timestamp| from < end && end <= to;
        let loses = |serials: &mut dyn Iterator<Item = &Serial>| {
            let (mut before, mut after) = (false, false);
            for serial in serials {
                before |= self.verdict(serial, from).is_accepted();
                after |= self.verdict(serial, to).is_accepted();
            }
            before && !after
        };
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let unused = |token: &&Arc<Token>| token.state == TokenState::Unused && within(token.expires_at);
        EndsByThen {
            nodes: count(self.nodes.values().filter(|node| loses(&mut node.serials.iter())).count()),
            operators: count(self.operators.values().filter(|one| loses(&mut one.serials())).count()),
            tokens: count(
                self.tokens.values().filter(unused).count()
                    + self.unused_replica_tokens().filter(|token| within(token.expires_at)).count(),
            ),
            keys: count(
                self.operator_keys.values().filter(|key| key.is_good(from) && !key.is_good(to)).count(),
            ),
            issuers: count(
                // An ephemeral one is replaced by its replica itself.
                self.issuers
                    .values()
                    .filter(|one| !one.is_ephemeral() && one.state.is_trusted() && within(one.not_after))
                    .count(),
            ),
        }
    }
}

/// Time never runs backwards, so a clock that is behind cannot be accepted while a control plane runs. The alert about
/// the clock ends with it.
pub(in crate::registry) fn decide(state: &State, accept: &AcceptClock) -> Decision {
    if !accept.confirm.is_not_asked() && clock::is_behind(accept.to, state.at) {
        return Rejection::ClockBehind { wall: accept.to, last: state.at }.into();
    }
    let ends = state.ends_by(accept.from, accept.to);
    let consequence = format!(
        "the time goes from {} to {}; what ends by then: certificates of {} nodes and {} operators, {} unused tokens, {} \
         API keys, {} issuers",
        accept.from, accept.to, ends.nodes, ends.operators, ends.tokens, ends.keys, ends.issuers
    );
    if let Err(rejection) = accept.confirm.check(CLOCK, &consequence, ends.nodes) {
        return rejection.into();
    }
    let alert = state.open_alert(AlertKind::ClockSkew, None).map(Alert::cleared);
    let accepted = Event::ClockAccepted(ClockAccepted {
        from: accept.from,
        to: accept.to,
        replica: None,
        agreeing: Vec::new(),
    });
    Decision::granted(std::iter::once(accepted).chain(alert).collect())
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClockAccepted {
    pub from: Timestamp,
    pub to: Timestamp,
    /// Whose clock it is, where others agreed with it and nobody was asked; and who agreed.
    pub replica: Option<ReplicaId>,
    pub agreeing: Vec<ReplicaId>,
}

impl Happened for ClockAccepted {
    const NAME: &'static str = "clock.accepted";

    fn fields(&self) -> AuditFields {
        let corroborated = self.replica.map(|replica| {
            [
                ("replica_id", AuditField::text(replica)),
                ("agreeing_replicas", AuditField::texts(&self.agreeing)),
            ]
        });
        [
            ("from", AuditField::text(self.from)),
            ("to", AuditField::text(self.to)),
            ("offset", AuditField::Text(offset(self.from, self.to))),
        ]
        .into_iter()
        .chain(corroborated.into_iter().flatten())
        .collect()
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    /// The clock is each process's own: the registry learns the time from the next entry.
    fn fold(&self, _state: &mut State, _envelope: &Envelope) {}
}

/// How far and in which direction: `+2d`, `-90s`.
pub(super) fn offset(from: Timestamp, to: Timestamp) -> String {
    if to < from { format!("-{}", from.since(to)) } else { format!("+{}", to.since(from)) }
}
