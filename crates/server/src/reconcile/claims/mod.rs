//! Claims between domains: which machines are active here is published, signed, and what others publish is held against it. A
//! machine that is active in two domains is an alert and nothing else. What does not answer, or answers nonsense, changes
//! nothing: neither readiness, nor any enrollment, which knows nothing of this.

mod board;
mod judge;
mod own;

use super::propose;
use crate::process::app::App;
use crate::process::config::ClaimsConfig;
use journal::Leadership;
use judge::{ClaimJudge, NeighbourClaims};
use lifecycle::names::{NodeId, Timestamp};
use lifecycle::registry::{AlertKind, Command, NodeState, RaiseAlert, State};
use own::ActiveMachines;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const TICK: Duration = Duration::from_secs(1);
/// A change of what is active here is told this soon at the earliest.
const COALESCE: Duration = Duration::from_secs(5);
/// How many alerts one round raises or clears.
const CHANGES: usize = 100;
/// Domains that one alert names.
const NAMED: usize = 4;
/// Alerts wait for a round that has read something; of a node that is not active any more they do not.
const KIND: AlertKind = AlertKind::ClaimedElsewhere;

/// Runs until the process stops.
pub async fn run(app: Arc<App>, config: ClaimsConfig) {
    tokio::select! {
        () = app.stopped() => {}
        () = exchange(&app, config) => {}
    }
}

/// Clears what an earlier run left, when no claims are read any more.
pub async fn forget(app: &App, leadership: &Leadership) {
    if app.config.claims.is_some() {
        return;
    }
    let view = app.view();
    for alert in view.state.alerts.values().filter(|alert| alert.kind == KIND).take(CHANGES) {
        propose(app, leadership, Command::ClearAlert { alert: alert.id }).await;
    }
}

async fn exchange(app: &Arc<App>, config: ClaimsConfig) {
    let interval = Duration::from_millis(config.interval.millis());
    let mut rounds = ClaimRounds::new(config);
    let (mut last, mut revision) = (None::<Instant>, 0);
    loop {
        tokio::time::sleep(TICK).await;
        let passed = |time: Duration| last.is_none_or(|last| last.elapsed() >= time);
        let now = app.view().state.revision;
        let due = passed(interval) || (now != revision && passed(COALESCE.min(interval)));
        // Claims are judged by the time.
        if !due || !app.clock.is_believed() {
            continue;
        }
        let Some(leadership) = app.journal.leadership().await else { continue };
        revision = now;
        let Some(machines) = rounds.look(app).await else { continue };
        if passed(interval) || rounds.has_news(&machines) {
            last = Some(Instant::now());
            rounds.run(app, &leadership, machines).await;
        }
    }
}

struct ClaimRounds {
    config: Arc<ClaimsConfig>,
    judge: ClaimJudge,
    /// The digest of what was published last.
    published: Option<[u8; 32]>,
    /// Whether something was read since the start: before, an alert of an earlier run is not known to be over.
    has_read: bool,
    failing: BTreeSet<&'static str>,
}

impl ClaimRounds {
    fn new(config: ClaimsConfig) -> Self {
        let judge = ClaimJudge::default();
        Self { config: Arc::new(config), judge, published: None, has_read: false, failing: BTreeSet::new() }
    }

    /// What is active here. Hashing a large fleet takes a moment, so it is done off the async threads.
    async fn look(&self, app: &App) -> Option<ActiveMachines> {
        let view = app.view();
        tokio::task::spawn_blocking(move || ActiveMachines::of(&view.state)).await.ok()
    }

    fn has_news(&self, machines: &ActiveMachines) -> bool {
        self.published != Some(machines.digest())
    }

    async fn run(&mut self, app: &Arc<App>, leadership: &Leadership, machines: ActiveMachines) {
        let digest = machines.digest();
        let published = self.publish(app, &machines).await;
        if self.note(app, "publish", published).is_some() {
            self.published = Some(digest);
        }
        let read = board::read(&self.config).await;
        if let Some(lines) = self.note(app, "read", read) {
            self.has_read = true;
            self.hear(app, lines).await;
        }
        self.judge.forget_expired(app.now());
        self.settle(app, leadership, &machines).await;
    }

    async fn publish(&self, app: &App, machines: &ActiveMachines) -> Result<(), String> {
        let view = app.view();
        let body = own::signed(&view.state, &app.ca.keys.audit, machines, (app.now(), self.config.interval))?;
        board::post(&self.config, body).await
    }

    /// Logged once when it begins to fail and once when it is over.
    fn note<T>(&mut self, app: &App, what: &'static str, result: Result<T, String>) -> Option<T> {
        let url = &self.config.url;
        app.metrics.claims_exchanged(what, result.is_ok());
        match result {
            Ok(value) => {
                if self.failing.remove(what) {
                    tracing::info!(%url, what, "claims are exchanged again");
                }
                Some(value)
            }
            Err(error) => {
                if self.failing.insert(what) {
                    tracing::warn!(%url, what, "claims could not be exchanged, which changes nothing: {error}");
                }
                None
            }
        }
    }

    /// Signatures are checked off the async threads.
    async fn hear(&mut self, app: &Arc<App>, lines: board::BoardLines) {
        let (app, config, mut judge) = (app.clone(), self.config.clone(), std::mem::take(&mut self.judge));
        let judged = tokio::task::spawn_blocking(move || {
            let (view, now) = (app.view(), app.now());
            for ignored in judge.hear(&view.state, &config.roots, &lines, now) {
                app.metrics.claim_ignored(ignored.reason);
                if judge.is_first(&ignored) {
                    let domain = ignored.domain.as_deref().unwrap_or("unknown");
                    tracing::warn!(
                        domain,
                        reason = ignored.reason,
                        "claims of another domain are ignored; this is logged once"
                    );
                }
            }
            judge
        });
        match judged.await {
            Ok(judge) => self.judge = judge,
            Err(error) => tracing::error!(%error, "claims could not be judged"),
        }
    }

    /// Raises what is new and clears what is over.
    async fn settle(&self, app: &App, leadership: &Leadership, machines: &ActiveMachines) {
        let view = app.view();
        let conflicts = conflicts(machines, &self.judge.heard);
        let open: BTreeMap<&NodeId, _> = view
            .state
            .alerts
            .values()
            .filter(|alert| alert.kind == KIND)
            .filter_map(|alert| Some((alert.node.as_ref()?, alert)))
            .collect();
        let raised = conflicts.iter().filter_map(|(node, others)| {
            // Said again only if another domain claims it too: each time is a line of the trail.
            let said = |domain: &&str| open.get(node).is_some_and(|open| names(&open.detail, domain));
            let news = others.keys().take(NAMED).any(|domain| !said(domain));
            let detail = detail(others);
            news.then(|| Command::RaiseAlert(RaiseAlert { kind: KIND, node: Some((*node).clone()), detail }))
        });
        let over =
            |node: &NodeId| !conflicts.contains_key(node) && (self.has_read || !is_active(&view.state, node));
        let cleared = open.iter().filter(|(node, _)| over(node));
        let cleared = cleared.map(|(_, alert)| Command::ClearAlert { alert: alert.id });
        for command in raised.chain(cleared).take(CHANGES) {
            propose(app, leadership, command).await;
        }
    }
}

fn is_active(state: &State, node: &NodeId) -> bool {
    state.nodes.get(node).is_some_and(|node| node.state == NodeState::Active)
}

/// Whose machine is claimed elsewhere: by which domains, and since when.
fn conflicts<'a>(
    machines: &'a ActiveMachines,
    heard: &'a BTreeMap<String, NeighbourClaims>,
) -> BTreeMap<&'a NodeId, BTreeMap<&'a str, Timestamp>> {
    let mut found: BTreeMap<&NodeId, BTreeMap<&str, Timestamp>> = BTreeMap::new();
    for (domain, heard) in heard {
        for (digest, since) in &heard.machines {
            if let Some(node) = machines.node(digest) {
                found.entry(node).or_default().entry(domain).or_insert(*since);
            }
        }
    }
    found
}

fn detail(others: &BTreeMap<&str, Timestamp>) -> String {
    let named = others.iter().take(NAMED).map(|(domain, since)| format!("in {domain} since {since}"));
    let more = if others.len() > NAMED { ", and in others" } else { "" };
    format!("this machine is also active {}{more}", named.collect::<Vec<_>>().join(", "))
}

fn names(detail: &str, domain: &str) -> bool {
    detail.contains(&format!("in {domain} since "))
}
