//! What replicas ask each other about nodes and alerts. Nothing of it is needed for correct changes to the registry: a replica that does not
//! answer in time adds nothing.

use crate::fleet::presence::at_replica::{HeldStream, NodeAtReplica, ReportWanted};
use crate::process::app::App;
use journal::{BoxedFuture, PeerAnswers};
use lifecycle::names::{NodeId, ReplicaId, Serial};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long an answer is waited for.
const ANSWER: Duration = Duration::from_secs(1);
/// One that was not heard of for so long is not asked.
const UNREACHABLE: Duration = Duration::from_secs(5);
/// How many nodes or streams one question is about, and how long it may be: a name and a serial of each. Longer ones are not decoded,
/// which takes many times their length.
pub const AT_ONCE: usize = 1000;
const QUESTION_BYTES: usize = 256 * AT_ONCE;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerQuestion {
    /// What does this replica know of these nodes?
    Nodes { nodes: Vec<NodeId>, report: ReportWanted },
    /// Which of these certificates are shown on live streams here?
    Streams { shown: Vec<(NodeId, Serial)> },
    /// Up to which entry of the log is what happened to alerts delivered to the webhook?
    AlertsDelivered,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerAnswer {
    Nodes(Vec<NodeAtReplica>),
    Streams(Vec<HeldStream>),
    /// None where no webhook is configured.
    AlertsDelivered {
        until: Option<u64>,
    },
    /// A question of a newer version, or too large a one.
    Unanswered,
}

/// The other members that can be reached, as far as this replica knows.
pub fn reachable(app: &App) -> Vec<ReplicaId> {
    let (view, own) = (app.view(), app.journal.replica());
    let others = view.state.members().map(|member| member.id).filter(|id| *id != own);
    others.filter(|id| app.journal.standing(*id).is_reachable(UNREACHABLE)).collect()
}

/// None if there is no answer in time.
pub async fn ask(app: &App, replica: ReplicaId, question: &PeerQuestion) -> Option<PeerAnswer> {
    let question = rmp_serde::to_vec_named(question).ok()?;
    let asked = tokio::time::timeout(ANSWER, app.journal.ask_peer(replica, question)).await;
    rmp_serde::from_slice(&asked.ok()??).ok()
}

/// Answers what other replicas ask this one.
pub struct FleetAnswers {
    /// The journal holds this, and the app the journal.
    app: Weak<App>,
}

impl FleetAnswers {
    pub fn new(app: &Arc<App>) -> Self {
        Self { app: Arc::downgrade(app) }
    }
}

impl PeerAnswers for FleetAnswers {
    fn answer(&self, _from: ReplicaId, question: Vec<u8>) -> BoxedFuture<Vec<u8>> {
        let app = self.app.upgrade();
        Box::pin(async move {
            let asked =
                (question.len() <= QUESTION_BYTES).then(|| rmp_serde::from_slice(&question).ok()).flatten();
            let answer = app.zip(asked).map_or(PeerAnswer::Unanswered, |(app, asked)| answer(&app, asked));
            rmp_serde::to_vec_named(&answer).unwrap_or_default()
        })
    }
}

fn answer(app: &App, question: PeerQuestion) -> PeerAnswer {
    let (presence, now) = (&app.fleet.presence, app.now());
    match question {
        PeerQuestion::Nodes { nodes, report } if nodes.len() <= AT_ONCE => {
            PeerAnswer::Nodes(nodes.iter().filter_map(|node| presence.at_replica(node, report)).collect())
        }
        PeerQuestion::Streams { shown } if shown.len() <= AT_ONCE => PeerAnswer::Streams(
            shown.iter().flat_map(|(node, serial)| presence.held(node, serial, now)).collect(),
        ),
        PeerQuestion::AlertsDelivered => {
            PeerAnswer::AlertsDelivered { until: app.alert_queue.delivered_until() }
        }
        PeerQuestion::Nodes { .. } | PeerQuestion::Streams { .. } => PeerAnswer::Unanswered,
    }
}
