//! Describing: what people call a node and what they sort it by. No rule looks at either, so a tombstone may be
//! described too.

use crate::names::{LabelKey, Labels, NodeId, Title};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened, host};
use crate::registry::{Envelope, Event, Rejection, State};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Changes what people call a node and what they sort it by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Describe {
    pub node: NodeId,
    pub name: Change<Title>,
    pub labels: Change<Labels>,
    /// Labels that change one by one, after `labels`.
    #[serde(default, skip_serializing_if = "Relabel::is_nothing")]
    pub relabel: Relabel,
}

/// Some labels of a node, and not the others: what two operators change at the same time is both there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relabel {
    pub remove: BTreeSet<LabelKey>,
    pub set: Labels,
}

impl Relabel {
    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change<T> {
    Keep,
    Forget,
    Set(T),
}

impl<T: Clone> Change<T> {
    /// What it leaves of what was there.
    pub fn of(&self, was: Option<T>) -> Option<T> {
        match self {
            Change::Keep => was,
            Change::Forget => None,
            Change::Set(value) => Some(value.clone()),
        }
    }
}

pub(in crate::registry) fn decide(state: &State, describe: &Describe) -> Decision {
    let Some(node) = state.nodes.get(&describe.node) else {
        return Rejection::NodeNotFound { node: describe.node.clone() }.into();
    };
    let name = describe.name.of(node.name.clone());
    let labels = describe.labels.of(Some(node.labels.clone())).unwrap_or_default();
    let Some(labels) = labels.changed(&describe.relabel.remove, &describe.relabel.set) else {
        return Rejection::TooManyLabels { node: node.id.clone() }.into();
    };
    if (&name, &labels) == (&node.name, &node.labels) {
        return Decision::granted(Vec::new());
    }
    Decision::granted(vec![Event::NodeDescribed(NodeDescribed { node: node.id.clone(), name, labels })])
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeDescribed {
    pub node: NodeId,
    pub name: Option<Title>,
    pub labels: Labels,
}

/// `KEY=VALUE` each.
pub(in crate::registry) fn label_field(labels: &Labels) -> AuditField {
    AuditField::Texts(labels.pairs().iter().map(|(key, value)| format!("{key}={value}")).collect())
}

impl Happened for NodeDescribed {
    const NAME: &'static str = "host.described";

    fn fields(&self) -> AuditFields {
        host(
            &self.node,
            [("name", AuditField::maybe(self.name.as_ref())), ("labels", label_field(&self.labels))],
        )
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.change_node(&self.node, |node| {
            (node.name, node.labels) = (self.name.clone(), self.labels.clone());
        });
    }
}
