//! Refused attempts, counted at the edge: those of unauthenticated callers, and renewals of known nodes.

use crate::names::{NodeId, Serial, Source};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::recovery::Refused;
use crate::registry::recovery::recover::used_while_well;
use crate::registry::{AlertKind, Envelope, Event, NodeState, State};
use serde::{Deserialize, Serialize};

/// Refused attempts, counted at the edge so that a flood cannot grow the trail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusals {
    pub reason: String,
    /// The network they came from; none in the line that says `overflow`, and of renewals.
    pub network: Option<Source>,
    pub count: u64,
    pub samples: Vec<String>,
    /// Where they were attempts to recover.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<RefusedRecovery>,
    /// They want attention: an alert about the node is raised with their count. None in commands of before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alert: Option<AlertKind>,
    /// Where they were attempts to renew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewal: Option<RefusedRenewal>,
}

/// Which node's tokens were brought; none if they were nobody's.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RefusedRecovery {
    pub node: Option<NodeId>,
}

/// Which node asked, and with which certificate last; none in the line that says `overflow`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedRenewal {
    pub node: Option<NodeId>,
    pub serial: Option<Serial>,
}

pub(in crate::registry) fn record(state: &State, envelope: &Envelope, refusals: &Refusals) -> Decision {
    let event = match (&refusals.renewal, &refusals.recovery) {
        (Some(about), _) => {
            let (about, refusals) = (about.clone(), refusals.clone());
            Event::CertificateRefused(CertificateRefused { about, refusals })
        }
        (None, Some(about)) => {
            let (node, refusals) = (about.node.clone(), refusals.clone());
            Event::RecoveryRefused(RecoveryRefused { node, refusals })
        }
        (None, None) => Event::EnrollmentRefused(refusals.clone()),
    };
    Decision::granted([event].into_iter().chain(alert(state, envelope, refusals)).collect())
}

/// About a node that is well: one that is not may be looking for the control plane with its own token.
fn alert(state: &State, envelope: &Envelope, refusals: &Refusals) -> Option<Event> {
    let (kind, node) = (refusals.alert?, refusals.recovery.as_ref()?.node.as_ref()?);
    state.nodes.get(node).filter(|node| node.state == NodeState::Active && refusals.count > 0)?;
    Some(state.raising(envelope, kind, node, (used_while_well(envelope), refusals.count)))
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

/// A known node was refused its next certificate. The correlation id is the envelope's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateRefused {
    pub about: RefusedRenewal,
    pub refusals: Refusals,
}

impl Happened for CertificateRefused {
    const NAME: &'static str = "certificate.refused";

    fn fields(&self) -> AuditFields {
        vec![
            ("node_id", AuditField::maybe(self.about.node.as_ref())),
            ("cert_serial", AuditField::maybe(self.about.serial.as_ref())),
            ("reason", AuditField::text(&self.refusals.reason)),
            ("count", AuditField::Number(self.refusals.count)),
            ("samples", AuditField::texts(&self.refusals.samples)),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, _state: &mut State, _envelope: &Envelope) {}
}
