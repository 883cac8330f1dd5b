//! Refused attempts of unauthenticated callers, counted at the edge.

use crate::names::{AlertId, NodeId, Source};
use crate::registry::apply::Decision;
use crate::registry::event::{AlertRaised, AuditField, AuditFields, Happened};
use crate::registry::recovery::Refused;
use crate::registry::recovery::recover::used_while_well;
use crate::registry::{AlertKind, Envelope, Event, State};
use serde::{Deserialize, Serialize};

/// Refused attempts of unauthenticated callers, counted at the edge so that a flood cannot grow the trail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusals {
    pub reason: String,
    /// The network they came from; none in the line that says `overflow`.
    pub network: Option<Source>,
    pub count: u64,
    pub samples: Vec<String>,
    /// Where they were attempts to recover.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<RefusedRecovery>,
    /// They want attention: an alert about the node is raised with their count. None in commands of before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alert: Option<AlertKind>,
}

/// Which node's tokens were brought; none if they were nobody's.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RefusedRecovery {
    pub node: Option<NodeId>,
}

pub(in crate::registry) fn record(state: &State, envelope: &Envelope, refusals: &Refusals) -> Decision {
    let event = match &refusals.recovery {
        None => Event::EnrollmentRefused(refusals.clone()),
        Some(about) => {
            let (node, refusals) = (about.node.clone(), refusals.clone());
            Event::RecoveryRefused(RecoveryRefused { node, refusals })
        }
    };
    Decision::granted([event].into_iter().chain(alert(state, envelope, refusals)).collect())
}

/// About a node that is there.
fn alert(state: &State, envelope: &Envelope, refusals: &Refusals) -> Option<Event> {
    let (kind, node) = (refusals.alert?, refusals.recovery.as_ref()?.node.as_ref()?);
    state.nodes.get(node).filter(|node| !node.state.is_gone() && refusals.count > 0)?;
    let open = state.open_alert(kind, Some(node));
    Some(Event::AlertRaised(AlertRaised {
        alert: open.map_or(AlertId(envelope.id.0), |open| open.id),
        kind,
        node: Some(node.clone()),
        detail: used_while_well(envelope),
        count: refusals.count,
    }))
}

impl Happened for Refusals {
    const NAME: &'static str = "enrollment.refused";

    fn fields(&self) -> AuditFields {
        vec![
            ("reason", AuditField::text(&self.reason)),
            ("network", AuditField::maybe(self.network)),
            ("count", AuditField::Number(self.count)),
            ("samples", AuditField::texts(&self.samples)),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, _state: &mut State, _envelope: &Envelope) {}
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveryRefused {
    /// Whose tokens were brought; none if they were nobody's.
    pub node: Option<NodeId>,
    pub refusals: Refusals,
}

impl Happened for RecoveryRefused {
    const NAME: &'static str = "recovery.refused";

    fn fields(&self) -> AuditFields {
        let mut fields = vec![("node_id", AuditField::maybe(self.node.as_ref()))];
        fields.extend(self.refusals.fields());
        fields
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        let refused = Refused { at: state.at, reason: self.refusals.reason.clone() };
        if let Some(node) = &self.node {
            state.change_node(node, |node| node.recovery.refused = Some(refused));
        }
    }
}
