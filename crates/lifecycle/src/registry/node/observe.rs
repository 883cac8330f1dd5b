//! Observing: nodes that were heard of, in bulk.

use super::contact::returned;
use crate::names::{Label, NodeId, Timestamp, TokenId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditFields, Happened};
use crate::registry::recovery::mint;
use crate::registry::{
    Envelope, Event, Node, NodeState, Report, State, remember_earlier_start, remember_start,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A node was heard of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sighting {
    pub node: NodeId,
    pub seen: Timestamp,
    /// Which start of the agent spoke, on its live stream; none for other requests.
    pub instance: Option<Label>,
    /// The trust bundle that the host says it has on disk; none of a host that does not say.
    pub bundle: Option<u64>,
    pub agent_version: Option<Label>,
    /// The recovery token that the host says it has on disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery_kept: Option<TokenId>,
    /// What the host said of itself, when that is news.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<Arc<Report>>,
    /// Whether it showed an SVID.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_svid: bool,
}

/// Observations come in bulk. Those that tell nothing new are left out.
pub(in crate::registry) fn observe(state: &State, sightings: &[Sighting]) -> Decision {
    let mut events = Vec::new();
    let (mut woken, mut keeping) = (BTreeSet::new(), BTreeSet::new());
    for sighting in sightings {
        let sighting = &believable(state, sighting);
        let Some(node) = state.nodes.get(&sighting.node) else { continue };
        if node.state.is_gone() {
            events.extend(last_sign(node, sighting).map(Event::NodeSeen));
            continue;
        }
        if tells(state, node, sighting) {
            events.push(Event::NodeSeen(sighting.clone()));
        }
        if node.state == NodeState::Inactive && !is_silent(state, sighting.seen) && woken.insert(&node.id) {
            events.extend(returned(state, node, None));
        }
        let kept = mint::keep(node, sighting.recovery_kept);
        events.extend(kept.filter(|_| keeping.insert(&node.id)));
    }
    Decision::granted(events)
}

/// Of a node that is gone only when it was last heard before its end still counts.
fn last_sign(node: &Node, sighting: &Sighting) -> Option<Sighting> {
    let heard = sighting.seen <= node.state_since && node.last_seen.is_none_or(|last| last < sighting.seen);
    heard.then(|| Sighting {
        node: node.id.clone(),
        seen: sighting.seen,
        instance: None,
        bundle: None,
        agent_version: None,
        report: None,
        recovery_kept: None,
        by_svid: false,
    })
}

/// A replica's clock may be ahead, and a host may claim a bundle that does not exist: neither may count for
/// longer than the truth.
fn believable(state: &State, sighting: &Sighting) -> Sighting {
    Sighting {
        seen: sighting.seen.min(state.at),
        bundle: sighting.bundle.map(|bundle| bundle.min(state.bundle_version)),
        report: sighting.report.as_ref().and_then(|report| own(state, &sighting.node, report)),
        ..sighting.clone()
    }
}

/// Nothing that was said before the node enrolled last: that was another life.
fn own(state: &State, id: &NodeId, report: &Arc<Report>) -> Option<Arc<Report>> {
    let since = state.nodes.get(id)?.enrolled_at;
    let own = since.is_none_or(|since| since <= report.at);
    own.then(|| match report.at <= state.at {
        true => report.clone(),
        false => {
            let (at, since) = (state.at, report.since.min(state.at));
            Arc::new(Report { at, since, ..report.as_ref().clone() })
        }
    })
}

fn tells(state: &State, node: &Node, sighting: &Sighting) -> bool {
    node.last_seen.is_none_or(|last| last < sighting.seen)
        || sighting.by_svid && node.svid_seen.is_none_or(|last| last < sighting.seen)
        || sighting.bundle.is_some_and(|bundle| bundle > node.stored_bundle)
        || sighting.instance.as_ref().is_some_and(|instance| node.instances.last() != Some(instance))
        || sighting.agent_version.as_ref().is_some_and(|version| node.agent_version.as_ref() != Some(version))
        || sighting.report.as_ref().is_some_and(|report| is_news(state, node, report))
}

fn is_news(state: &State, node: &Node, report: &Report) -> bool {
    let known = node.report.as_ref();
    known.is_none_or(|known| known.at <= report.at && report.is_news(known, state.policy.clock_tolerance))
}

pub(super) fn is_silent(state: &State, since: Timestamp) -> bool {
    since.plus(state.policy.liveness_grace) <= state.at
}

impl Happened for Sighting {
    const NAME: &'static str = "host.seen";
    const AUDITED: bool = false;

    fn fields(&self) -> AuditFields {
        Vec::new()
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.change_node(&self.node, |node| {
            // Two replicas may write down what they heard in the wrong order.
            let is_newest = node.last_seen <= Some(self.seen);
            node.last_seen = node.last_seen.max(Some(self.seen));
            if self.by_svid {
                node.svid_seen = node.svid_seen.max(Some(self.seen));
            }
            node.bundle = node.bundle.max(self.bundle.unwrap_or(0));
            node.stored_bundle = node.stored_bundle.max(self.bundle.unwrap_or(0));
            if let Some(version) = self.agent_version.as_ref().filter(|_| is_newest) {
                node.agent_version = Some(version.clone());
            }
            if let Some(report) = &self.report
                && node.report.as_ref().is_none_or(|known| known.at <= report.at)
            {
                node.report = Some(report.clone());
            }
            if let Some(instance) = &self.instance {
                node.streamed = true;
                node.says_bundle = self.bundle.is_some();
                match is_newest {
                    true => remember_start(&mut node.instances, instance),
                    false => remember_earlier_start(&mut node.instances, instance),
                }
            }
        });
    }
}
