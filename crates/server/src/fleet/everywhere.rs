//! What is known of nodes beyond the registry, at all replicas: each remembers who is connected to it, and is asked when somebody
//! wants to know. An idle stream costs nothing more by that.

use crate::cluster::questions::{self, AT_ONCE, PeerAnswer, PeerQuestion};
use crate::fleet::presence::at_replica::{NodeAtReplica, ReportWanted};
use crate::process::app::App;
use api::rest::nodes::NodeLiveness;
use lifecycle::names::{NodeId, ReplicaId, Timestamp};
use std::collections::HashMap;

/// Some nodes, as the replicas know them.
#[derive(Debug, Default)]
pub struct Everywhere {
    nodes: HashMap<NodeId, NodeAtReplica>,
    /// A replica that can be reached did not answer in time.
    pub is_partial: bool,
}

impl Everywhere {
    pub fn get(&self, node: &NodeId) -> Option<&NodeAtReplica> {
        self.nodes.get(node)
    }

    pub fn live(&self, node: &NodeId) -> NodeLiveness {
        self.get(node).map(NodeAtReplica::live).unwrap_or_default()
    }

    pub fn last_seen(&self, node: &NodeId) -> Option<Timestamp> {
        self.get(node)?.last_seen
    }

    fn add(&mut self, known: NodeAtReplica) {
        let before = self.nodes.remove(&known.node);
        let joined = before.map_or_else(|| known.clone(), |before| before.and(known.clone()));
        self.nodes.insert(known.node, joined);
    }
}

/// What this replica and the others know of these nodes.
pub async fn nodes(app: &App, nodes: &[NodeId], report: ReportWanted) -> Everywhere {
    let mut known = elsewhere(app, nodes, report).await;
    let here = nodes.iter().filter_map(|node| app.fleet.presence.at_replica(node, ReportWanted::Latest));
    here.for_each(|node| known.add(node));
    known
}

/// What is shown of many nodes.
pub async fn listed(app: &App, ids: impl Iterator<Item = &NodeId>) -> Everywhere {
    let ids: Vec<NodeId> = ids.cloned().collect();
    nodes(app, &ids, ReportWanted::Unwritten).await
}

/// What is shown of one node.
pub async fn live(app: &App, node: &NodeId) -> NodeLiveness {
    nodes(app, std::slice::from_ref(node), ReportWanted::Latest).await.live(node)
}

/// One node, without its report.
pub async fn node(app: &App, node: &NodeId) -> Option<NodeAtReplica> {
    nodes(app, std::slice::from_ref(node), ReportWanted::None).await.nodes.remove(node)
}

/// What the other replicas know of these nodes.
pub async fn elsewhere(app: &App, nodes: &[NodeId], report: ReportWanted) -> Everywhere {
    let replicas = if nodes.is_empty() { Vec::new() } else { questions::reachable(app) };
    let asked = replicas.into_iter().map(|replica| at(app, replica, nodes, report));
    let mut known = Everywhere::default();
    for (there, is_partial) in futures::future::join_all(asked).await {
        known.is_partial |= is_partial;
        there.into_iter().for_each(|node| known.add(node));
    }
    known
}

/// As much as one replica answers in time, and whether that is not all.
async fn at(
    app: &App,
    replica: ReplicaId,
    nodes: &[NodeId],
    report: ReportWanted,
) -> (Vec<NodeAtReplica>, bool) {
    let mut known = Vec::new();
    for some in nodes.chunks(AT_ONCE) {
        let question = PeerQuestion::Nodes { nodes: some.to_vec(), report };
        let Some(PeerAnswer::Nodes(there)) = questions::ask(app, replica, &question).await else {
            return (known, true);
        };
        known.extend(there);
    }
    (known, false)
}
