//! Setting a configuration document: of a vCluster, of the domain's defaults, of one node.

use super::documents::{ConfigChange, ConfigDocument, DOCUMENT_MAX, Documents};
use crate::names::{NodeId, VclusterId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened, host};
use crate::registry::node::living;
use crate::registry::{Envelope, Event, Rejection, State};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetConfig {
    pub target: ConfigTarget,
    pub document: ConfigDocument,
}

/// Whose configuration it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfigTarget {
    /// That of nodes in no vCluster.
    Defaults,
    Vcluster(VclusterId),
    /// One node's own, beside that of its vCluster.
    Node(NodeId),
}

/// What nodes in no vCluster are given until an operator says otherwise: watch, and allow nothing.
pub const MAINTENANCE_DEFAULTS: &str = r#"{"enforcement_mode":"observe","whitelists":[],"regulated":false}"#;
/// What a vCluster says before it is told.
pub const EMPTY_DOCUMENT: &str = "{}";

/// The same document again changes nothing.
pub(in crate::registry) fn set(state: &State, set: &SetConfig) -> Decision {
    match documents(state, &set.target) {
        Err(rejection) => rejection.into(),
        Ok(_) if set.document.text.len() > DOCUMENT_MAX => {
            Rejection::DocumentTooLarge { max: DOCUMENT_MAX }.into()
        }
        Ok(documents) if documents.current().is_some_and(|now| now.document == set.document) => {
            Decision::granted(Vec::new())
        }
        Ok(documents) => Decision::granted(vec![configured(documents.version() + 1, set)]),
    }
}

fn configured(version: u64, set: &SetConfig) -> Event {
    let document = set.document.clone();
    match &set.target {
        ConfigTarget::Defaults => Event::Configured(Configured { vcluster: None, version, document }),
        ConfigTarget::Vcluster(vcluster) => {
            Event::Configured(Configured { vcluster: Some(vcluster.clone()), version, document })
        }
        ConfigTarget::Node(node) => {
            Event::NodeConfigured(NodeConfigured { node: node.clone(), version, document })
        }
    }
}

fn documents<'a>(state: &'a State, target: &ConfigTarget) -> Result<&'a Documents, Rejection> {
    match target {
        ConfigTarget::Defaults => Ok(&state.defaults),
        ConfigTarget::Vcluster(id) => match state.vclusters.get(id) {
            Some(vcluster) => Ok(&vcluster.config),
            None => Err(Rejection::VclusterNotFound { vcluster: id.clone() }),
        },
        ConfigTarget::Node(id) => living(state, id).map(|node| &node.config),
    }
}

fn change(state: &mut State, version: u64, document: &ConfigDocument) -> ConfigChange {
    ConfigChange { sequence: state.next_sequence(), version, at: state.at, document: document.clone() }
}

/// A vCluster, or the domain's defaults, have a new document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configured {
    pub vcluster: Option<VclusterId>,
    pub version: u64,
    pub document: ConfigDocument,
}

impl Happened for Configured {
    const NAME: &'static str = "vcluster.configured";

    fn fields(&self) -> AuditFields {
        vec![
            ("vcluster", AuditField::maybe(self.vcluster.as_ref())),
            ("version", AuditField::Number(self.version)),
            ("checksum", AuditField::text(self.document.checksum.hex())),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        let change = change(state, self.version, &self.document);
        match &self.vcluster {
            None => state.defaults.push(change),
            Some(id) => {
                if let Some(vcluster) = state.vclusters.get_mut(id).map(Arc::make_mut) {
                    vcluster.config.push(change);
                }
            }
        }
    }
}

/// A node has a new document of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeConfigured {
    pub node: NodeId,
    pub version: u64,
    pub document: ConfigDocument,
}

impl Happened for NodeConfigured {
    const NAME: &'static str = "host.configured";

    fn fields(&self) -> AuditFields {
        host(
            &self.node,
            [
                ("version", AuditField::Number(self.version)),
                ("checksum", AuditField::text(self.document.checksum.hex())),
            ],
        )
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        let change = change(state, self.version, &self.document);
        state.change_node(&self.node, |node| node.config.push(change));
    }
}
