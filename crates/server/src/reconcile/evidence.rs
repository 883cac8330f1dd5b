//! Alerts that follow from what hosts say of themselves: raised when it begins, cleared when a newer report says that it
//! is over. Hosts that have said something new wait in a queue; after a start, and when another tolerance is set, what
//! is on record is gone through once, a part of the fleet at a time.

use super::{propose, record};
use crate::process::app::App;
use journal::Leadership;
use lifecycle::names::{AlertId, NodeId, Span};
use lifecycle::registry::{AlertKind, Command, Node, REPORTED, RaiseAlert, Report, State};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// How many nodes of the fleet one tick looks at.
const AT_ONCE: usize = 1000;
/// How many of those that say something new; each may lead to several entries.
const HEARD: usize = 100;
/// How many alerts one tick raises or clears about the rest.
const CHANGES: usize = 100;

pub struct Evidence {
    /// Where the last look at the fleet ended; none when all of it was seen.
    walk: Option<Bound<NodeId>>,
    /// By which clocks were judged then.
    tolerance: Option<Span>,
}

/// The open alerts of these kinds, with their words.
type OpenAlerts<'a> = BTreeMap<(&'a NodeId, AlertKind), (AlertId, &'a str)>;

impl Evidence {
    pub fn new() -> Self {
        Self { walk: Some(Bound::Unbounded), tolerance: None }
    }

    /// What this replica has heard itself.
    pub async fn hear(app: &App) {
        let heard = app.fleet.presence.reports(app.now(), HEARD);
        if heard.is_empty() {
            return;
        }
        let view = app.view();
        let (state, mut due) = (&view.state, Vec::new());
        let open = open(state);
        for (id, report) in &heard {
            if let Some(node) = state.nodes.get(id) {
                let changes = changes(state, &open, node, node.newest_report(Some(report)));
                due.extend(changes.into_iter().map(|command| (id, command)));
            }
        }
        for (id, command) in due {
            if record(app, command).await.is_none() {
                app.fleet.presence.not_looked(id);
            }
        }
    }

    /// What is on record, gone through by the leader.
    pub async fn tick(&mut self, app: &App, leadership: &Leadership) {
        let view = app.view();
        let state = &view.state;
        if self.tolerance.replace(state.policy.clock_tolerance) != Some(state.policy.clock_tolerance) {
            self.walk = Some(Bound::Unbounded);
        }
        if self.walk.is_none() {
            return;
        }
        let open = open(state);
        for command in self.walk(app, state, &open) {
            propose(app, leadership, command).await;
        }
    }

    /// A part of the fleet, after the one before.
    fn walk(&mut self, app: &App, state: &State, open: &OpenAlerts<'_>) -> Vec<Command> {
        let mut due = Vec::new();
        let Some(from) = self.walk.take() else { return due };
        for (looked, (id, node)) in state.nodes.range((from, Bound::Unbounded)).enumerate() {
            let live = app.fleet.presence.report(id);
            due.extend(changes(state, open, node, node.newest_report(live.as_ref())));
            if looked + 1 == AT_ONCE || due.len() >= CHANGES {
                self.walk = Some(Bound::Excluded(id.clone()));
                break;
            }
        }
        due
    }
}

fn open(state: &State) -> OpenAlerts<'_> {
    let about = state.alerts.values().filter(|alert| REPORTED.contains(&alert.kind));
    about
        .filter_map(|alert| Some(((alert.node.as_ref()?, alert.kind), (alert.id, alert.detail.as_str()))))
        .collect()
}

/// What is to be raised or cleared about a node. Of one that has said nothing, nothing.
fn changes(state: &State, open: &OpenAlerts<'_>, node: &Node, report: Option<&Arc<Report>>) -> Vec<Command> {
    let Some(report) = report.filter(|_| !node.state.is_gone()) else { return Vec::new() };
    let found: BTreeMap<AlertKind, String> = state.reported(node, report).into_iter().collect();
    let change = |kind: AlertKind| match (found.get(&kind), open.get(&(&node.id, kind))) {
        (Some(detail), Some((_, reported))) if detail == reported => None,
        (Some(detail), _) => {
            let (node, detail) = (Some(node.id.clone()), detail.clone());
            Some(Command::RaiseAlert(RaiseAlert { kind, node, detail }))
        }
        (None, Some((alert, _))) => Some(Command::ClearAlert { alert: *alert }),
        (None, None) => None,
    };
    REPORTED.into_iter().filter_map(change).collect()
}
