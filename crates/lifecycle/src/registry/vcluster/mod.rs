//! vClusters: logical groups of nodes, and the configuration that their nodes are given. Being in one is independent of
//! everything else in a node's life.

pub(super) mod assign;
pub(super) mod configure;
pub(super) mod create;
pub(super) mod documents;
pub(super) mod remove;

use super::{Node, Rejection, State};
use crate::names::{TenantId, Timestamp, VclusterId};
use documents::{ConfigChange, Documents};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vcluster {
    pub id: VclusterId,
    pub tenant: TenantId,
    pub created_by: String,
    pub created_at: Timestamp,
    #[serde(default)]
    pub config: Documents,
}

/// A node came into a vCluster, or left one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    pub sequence: u64,
    pub at: Timestamp,
    /// None is maintenance mode.
    pub vcluster: Option<VclusterId>,
}

/// What a node's configuration is made of.
#[derive(Debug, Clone, Copy)]
pub struct NodeConfig<'a> {
    /// None is maintenance mode: the domain's defaults.
    pub vcluster: Option<&'a VclusterId>,
    /// That of the vCluster, or the domain's defaults.
    pub base: &'a Documents,
    /// What is said to this node alone.
    pub own: &'a Documents,
}

/// Something new about a node's configuration.
#[derive(Debug, Clone, Copy)]
pub enum ConfigNews<'a> {
    /// A new document of its vCluster, or of the domain's defaults.
    Base(&'a Arc<ConfigChange>),
    /// A new document for this node alone.
    Own(&'a Arc<ConfigChange>),
    /// It is in another vCluster now, or in none.
    Moved(&'a Assignment),
}

impl ConfigNews<'_> {
    pub fn sequence(&self) -> u64 {
        match self {
            ConfigNews::Base(change) | ConfigNews::Own(change) => change.sequence,
            ConfigNews::Moved(assignment) => assignment.sequence,
        }
    }

    pub fn at(&self) -> Timestamp {
        match self {
            ConfigNews::Base(change) | ConfigNews::Own(change) => change.at,
            ConfigNews::Moved(assignment) => assignment.at,
        }
    }
}

impl State {
    pub fn config_of<'a>(&'a self, node: &'a Node) -> NodeConfig<'a> {
        let vcluster = node.vcluster.as_ref().and_then(|id| self.vclusters.get(id));
        NodeConfig {
            vcluster: vcluster.map(|vcluster| &vcluster.id),
            base: vcluster.map_or(&self.defaults, |vcluster| &vcluster.config),
            own: &node.config,
        }
    }

    /// What is new about a node's configuration after a sequence, in order: what was said to it and to the vCluster that it is in.
    /// Nothing of another vCluster, and to who resumes and missed a move nothing of the new one from before it: its document is read
    /// whole then. Where it was put before it enrolled is no news: the answer to its enrollment said so.
    pub fn config_news<'a>(&'a self, node: &'a Node, after: u64) -> Vec<ConfigNews<'a>> {
        let config = self.config_of(node);
        let known = after.max(node.enrolled_sequence);
        let moved: Vec<_> = node.assignments.iter().filter(|moved| moved.sequence > known).collect();
        let joined = moved.last().map(|last| last.sequence).filter(|_| after > 0);
        let base = config.base.after(joined.unwrap_or(after)).map(ConfigNews::Base);
        let own = config.own.after(after).map(ConfigNews::Own);
        let mut news: Vec<_> = moved.into_iter().map(ConfigNews::Moved).chain(base).chain(own).collect();
        news.sort_by_key(ConfigNews::sequence);
        news
    }

    /// The sequence of the newest change that concerns a node.
    pub fn config_mark(&self, node: &Node) -> u64 {
        let config = self.config_of(node);
        let joined = node.assignments.last().map_or(0, |last| last.sequence);
        joined.max(config.base.sequence()).max(config.own.sequence())
    }

    /// Those of other tenants do not exist.
    pub(super) fn vcluster_in(&self, id: &VclusterId, tenant: &TenantId) -> Result<&Vcluster, Rejection> {
        let own = self.vclusters.get(id).filter(|vcluster| vcluster.tenant == *tenant);
        own.map(Arc::as_ref).ok_or_else(|| Rejection::VclusterNotFound { vcluster: id.clone() })
    }

    /// The living nodes in a vCluster.
    pub fn nodes_in<'a>(&'a self, id: &'a VclusterId) -> impl Iterator<Item = &'a Arc<Node>> {
        self.nodes.values().filter(move |node| node.vcluster.as_ref() == Some(id) && !node.state.is_gone())
    }

    fn next_sequence(&mut self) -> u64 {
        self.config_sequence += 1;
        self.config_sequence
    }
}
