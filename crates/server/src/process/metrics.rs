//! Counters with stable names; see docs/metrics.md.

use crate::fleet::Fleet;
use crate::fleet::overlays::feeds::Feeds;
use crate::fleet::presence::Presence;
use http::StatusCode;
use journal::View;
use lifecycle::clock::ClockReading;
use lifecycle::host;
use lifecycle::names::{Span, Timestamp};
use lifecycle::registry::{AlertKind, Door, NodeState, Owner, State, Verdict};
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByReason {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByResult {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByDays {
    days: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByKind {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByDoor {
    door: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByStatus {
    status: StatusClass,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
enum StatusClass {
    Ok,
    Refused,
    Fault,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByState {
    state: &'static str,
}

/// Of issuers: what for, where the key is, and how far in its life.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByIssuer {
    r#use: &'static str,
    kind: &'static str,
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByReplica {
    replica: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByPlace {
    place: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByFailure {
    class: &'static str,
}

pub struct Metrics {
    registry: Registry,
    enrollments: Family<ByDoor, Counter>,
    refusals: Family<ByReason, Counter>,
    renewals: Family<ByResult, Counter>,
    recoveries: Family<ByResult, Counter>,
    connected_nodes: Gauge,
    overlay_peers: Gauge,
    overlay_streams: Gauge,
    overlay_frames: Counter,
    overlay_bytes: Counter,
    expiring: Family<ByDays, Gauge>,
    issuer_ends: Family<ByIssuer, Gauge>,
    root_ends: Family<ByState, Gauge>,
    alerts: Family<ByKind, Gauge>,
    alert_deliveries: Family<ByResult, Counter>,
    handshakes_refused: Family<ByReason, Counter>,
    answers: Family<ByStatus, Counter>,
    connections: Gauge,
    displaced: Family<ByPlace, Counter>,
    refusals_overflowed: Gauge,
    ready: Gauge,
    hsm_up: Gauge,
    step_ca_up: Gauge,
    step_ca_calls: Family<ByExchange, Counter>,
    intents: Gauge,
    undelivered_revocations: Gauge,
    commit_seconds: Histogram,
    audit_seq: Gauge,
    raft: RaftMetrics,
    nodes: Family<ByState, Gauge>,
    node_failures: Family<ByFailure, Gauge>,
    anchor_failures: Counter,
    clock_offset: Gauge,
    loki: LokiMetrics,
    claims_exchanged: Family<ByExchange, Counter>,
    claims_ignored: Family<ByReason, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByExchange {
    what: &'static str,
    result: &'static str,
}

/// What is served only where there is such a thing.
#[derive(Debug, Clone, Copy)]
pub struct MeasuredParts {
    /// Whether the audit trail is forwarded.
    pub loki: bool,
    /// Whether keys may be in an HSM.
    pub hsm: bool,
    /// Whether step-ca signs for nodes.
    pub step_ca: bool,
}

/// Of forwarding the audit trail; served only where that is configured.
#[derive(Default)]
struct LokiMetrics {
    sent: AtomicU64,
    lag: Gauge,
    last_success: Gauge,
    failures: Family<ByReason, Counter>,
}

/// Of this replica as one of a cluster, or alone.
#[derive(Default)]
struct RaftMetrics {
    leader: Gauge,
    term: Gauge,
    lag: Gauge,
    applied: Gauge,
    voters: Gauge,
    /// Of each other member.
    peer_reachable: Family<ByReplica, Gauge>,
    /// Without labels; absent while there is no snapshot.
    snapshot_age: Family<Vec<(String, String)>, Gauge>,
    snapshots_installed: Counter,
}

/// What they are set to.
#[derive(Debug, Clone)]
pub struct RaftFigures {
    pub is_leader: bool,
    pub term: u64,
    pub lag: u64,
    pub applied: u64,
    pub voters: u64,
    /// Which of the other members were heard of a short while ago.
    pub reachable: BTreeMap<u64, bool>,
    pub newest_snapshot: Option<Timestamp>,
    pub snapshots_installed: u64,
}

impl RaftMetrics {
    fn register(&self, registry: &mut Registry) {
        let help = "1 while this replica leads with a majority behind it";
        registry.register("raft_leader", help, self.leader.clone());
        registry.register(
            "raft_term",
            "The term of the election that this replica knows of",
            self.term.clone(),
        );
        let help = "Entries of the log that are known of and not applied by this replica";
        registry.register("raft_lag", help, self.lag.clone());
        registry.register(
            "raft_applied",
            "The last entry that this replica has applied",
            self.applied.clone(),
        );
        let help = "Replicas whose votes count, this one included if it votes";
        registry.register("raft_voters", help, self.voters.clone());
        let help = "1 while another replica was heard of by this one within 5 seconds";
        registry.register("raft_peer_reachable", help, self.peer_reachable.clone());
        let help = "How long ago the newest snapshot was written";
        registry.register("snapshot_age_seconds", help, self.snapshot_age.clone());
        let help = "Snapshots that came from another replica and were installed since the start";
        registry.register("snapshots_installed", help, self.snapshots_installed.clone());
    }

    /// `now` is what the machine's clock says, as the time of the file does.
    fn set(&self, figures: &RaftFigures, now: Timestamp) {
        let gauge = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        self.leader.set(i64::from(figures.is_leader));
        self.term.set(gauge(figures.term));
        self.lag.set(gauge(figures.lag));
        self.applied.set(gauge(figures.applied));
        self.voters.set(gauge(figures.voters));
        self.peer_reachable.clear();
        for (replica, is_reachable) in &figures.reachable {
            let of_replica = ByReplica { replica: *replica };
            self.peer_reachable.get_or_create(&of_replica).set(i64::from(*is_reachable));
        }
        self.snapshot_age.clear();
        if let Some(written) = figures.newest_snapshot {
            self.snapshot_age.get_or_create(&Vec::new()).set(gauge(now.since(written).millis() / 1000));
        }
        self.snapshots_installed.inner().store(figures.snapshots_installed, Ordering::Relaxed);
    }
}

impl Metrics {
    /// How replication stands, for the next text.
    pub fn replication(&self, figures: &RaftFigures, now: Timestamp) {
        self.raft.set(figures, now);
    }

    pub fn new(served: MeasuredParts) -> Self {
        let buckets = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0];
        let mut metrics = Self {
            registry: Registry::with_prefix("enlist"),
            enrollments: Family::default(),
            refusals: Family::default(),
            renewals: Family::default(),
            recoveries: Family::default(),
            connected_nodes: Gauge::default(),
            overlay_peers: Gauge::default(),
            overlay_streams: Gauge::default(),
            overlay_frames: Counter::default(),
            overlay_bytes: Counter::default(),
            expiring: Family::default(),
            issuer_ends: Family::default(),
            root_ends: Family::default(),
            alerts: Family::default(),
            alert_deliveries: Family::default(),
            handshakes_refused: Family::default(),
            answers: Family::default(),
            connections: Gauge::default(),
            displaced: Family::default(),
            refusals_overflowed: Gauge::default(),
            ready: Gauge::default(),
            hsm_up: Gauge::default(),
            step_ca_up: Gauge::default(),
            step_ca_calls: Family::default(),
            intents: Gauge::default(),
            undelivered_revocations: Gauge::default(),
            commit_seconds: Histogram::new(buckets),
            audit_seq: Gauge::default(),
            raft: RaftMetrics::default(),
            nodes: Family::default(),
            node_failures: Family::default(),
            anchor_failures: Counter::default(),
            clock_offset: Gauge::default(),
            loki: LokiMetrics::default(),
            claims_exchanged: Family::default(),
            claims_ignored: Family::default(),
        };
        metrics.register();
        metrics.raft.register(&mut metrics.registry);
        if served.loki {
            metrics.register_loki();
        }
        if served.step_ca {
            metrics.register_step_ca();
        }
        if served.hsm {
            let help = "1 while every issuer key in the HSM signs that is in use";
            metrics.registry.register("hsm_up", help, metrics.hsm_up.clone());
        }
        let registry = &mut metrics.registry;
        let exchanged = metrics.claims_exchanged.clone();
        registry.register("claims_exchanges", "Exchanges of claims with other domains, by result", exchanged);
        let ignored = metrics.claims_ignored.clone();
        registry.register(
            "claims_ignored",
            "Claims of other domains that are not believed, by reason",
            ignored,
        );
        metrics
    }

    fn register_step_ca(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "step_ca_up",
            "1 while the last call of step-ca succeeded",
            self.step_ca_up.clone(),
        );
        let help = "Calls of step-ca, by what was asked and its result";
        registry.register("step_ca_calls", help, self.step_ca_calls.clone());
        let help = "Certificates that step-ca was asked for and that are not on record yet";
        registry.register("step_ca_intents", help, self.intents.clone());
        let help = "Certificates that step-ca has yet to revoke";
        registry.register("step_ca_undelivered_revocations", help, self.undelivered_revocations.clone());
    }

    pub fn step_ca_called(&self, what: &'static str, result: &'static str) {
        self.step_ca_calls.get_or_create(&ByExchange { what, result }).inc();
    }

    fn register_loki(&mut self) {
        let (registry, loki) = (&mut self.registry, &self.loki);
        registry.register("loki_lag_lines", "Audit lines that Loki has not taken yet", loki.lag.clone());
        let help = "When Loki last took audit lines, Unix seconds; 0 before";
        registry.register("loki_last_success_timestamp_seconds", help, loki.last_success.clone());
        let help = "Attempts to send audit lines to Loki that failed, by reason";
        registry.register("loki_failures", help, loki.failures.clone());
    }

    pub fn claims_exchanged(&self, what: &'static str, ok: bool) {
        let result = if ok { "ok" } else { "failed" };
        self.claims_exchanged.get_or_create(&ByExchange { what, result }).inc();
    }

    pub fn claim_ignored(&self, reason: &'static str) {
        self.claims_ignored.get_or_create(&ByReason { reason }).inc();
    }

    /// How far Loki has got, as the registry knows.
    pub fn loki_sent(&self, seq: u64) {
        self.loki.sent.store(seq, Ordering::Relaxed);
    }

    pub fn loki_took(&self, seq: u64, at: Timestamp) {
        self.loki_sent(seq);
        self.loki.last_success.set(i64::try_from(at.millis() / 1000).unwrap_or(i64::MAX));
    }

    pub fn loki_failed(&self, reason: &'static str) {
        self.loki.failures.get_or_create(&ByReason { reason }).inc();
    }

    pub fn anchor_failed(&self) {
        self.anchor_failures.inc();
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register("enrollments", "Enrollments granted", self.enrollments.clone());
        registry.register("enrollment_refusals", "Enrollments refused, by reason", self.refusals.clone());
        registry.register("renewals", "Renewals, by result", self.renewals.clone());
        registry.register("recoveries", "Recoveries, by result", self.recoveries.clone());
        let failures = self.anchor_failures.clone();
        registry.register(
            "audit_anchor_failures",
            "Writes of the anchor of the audit trail that failed",
            failures,
        );
        let connected = self.connected_nodes.clone();
        registry.register("connected_nodes", "Nodes with a live stream", connected);
        registry.register("overlay_peers", "Hosts that are peers of others", self.overlay_peers.clone());
        let help = "Live streams whose hosts are told of their peers";
        registry.register("overlay_streams", help, self.overlay_streams.clone());
        let help = "Messages about peers that were sent on live streams";
        registry.register("overlay_frames", help, self.overlay_frames.clone());
        let help = "Bytes of messages about peers that were sent on live streams";
        registry.register("overlay_bytes", help, self.overlay_bytes.clone());
        let expiring = self.expiring.clone();
        registry.register("certificates", "Valid certificates of nodes, by days left", expiring);
        let help = "Unix time at which the first issuer of this use, kind and state ends";
        registry.register("issuer_not_after_seconds", help, self.issuer_ends.clone());
        let help = "Unix time at which the first root in this state ends";
        registry.register("root_not_after_seconds", help, self.root_ends.clone());
        registry.register("alerts", "Open alerts, by kind", self.alerts.clone());
        let deliveries = self.alert_deliveries.clone();
        registry.register("alert_deliveries", "Deliveries of alerts to the webhook, by result", deliveries);
        let refused = self.handshakes_refused.clone();
        registry.register("handshakes_refused", "Client certificates refused at the handshake", refused);
        registry.register("answers", "Answers, by kind of status", self.answers.clone());
        registry.register("connections", "Open TLS connections", self.connections.clone());
        let displaced = self.displaced.clone();
        registry.register("displaced", "Ended or refused because a pool was full, by kind", displaced);
        let overflowed = self.refusals_overflowed.clone();
        registry.register("refusals_overflowed", "Refused attempts without a line of their kind", overflowed);
        registry.register("ready", "1 while this replica serves, as /readyz says", self.ready.clone());
        let seconds = self.commit_seconds.clone();
        registry.register("commit_seconds", "Time from proposal to applied and audited", seconds);
        registry.register("audit_seq", "Number of the newest audit line", self.audit_seq.clone());
        registry.register("nodes", "Nodes on record, by state", self.nodes.clone());
        let failures = self.node_failures.clone();
        registry.register("node_failures", "Nodes that report a failure, by class", failures);
        let help =
            "How far the wall clock is ahead of the time that has passed since it was last taken to be right";
        registry.register("clock_offset_seconds", help, self.clock_offset.clone());
    }

    pub fn enrolled(&self, door: Door) {
        self.enrollments.get_or_create(&ByDoor { door: door.as_str() }).inc();
    }

    pub fn refused(&self, reason: &'static str) {
        self.refusals.get_or_create(&ByReason { reason }).inc();
    }

    pub fn renewed(&self, result: &'static str) {
        self.renewals.get_or_create(&ByResult { result }).inc();
    }

    pub fn recovered(&self, result: &'static str) {
        self.recoveries.get_or_create(&ByResult { result }).inc();
    }

    pub fn alert_delivery(&self, result: &'static str) {
        self.alert_deliveries.get_or_create(&ByResult { result }).inc();
    }

    pub fn handshake_refused(&self, reason: &'static str) {
        self.handshakes_refused.get_or_create(&ByReason { reason }).inc();
    }

    pub fn answered(&self, status: StatusCode) {
        let status = match status.as_u16() {
            0..400 => StatusClass::Ok,
            400..500 => StatusClass::Refused,
            _ => StatusClass::Fault,
        };
        self.answers.get_or_create(&ByStatus { status }).inc();
    }

    /// Something was ended, or not let in, because a pool was full and others had less of it.
    pub fn displaced(&self, place: &'static str) {
        self.displaced.get_or_create(&ByPlace { place }).inc();
    }

    pub fn connected(&self) {
        self.connections.inc();
    }

    pub fn disconnected(&self) {
        self.connections.dec();
    }

    pub fn commit_timer(&self) -> Timer {
        Timer(Instant::now())
    }

    /// When what signs and what is trusted ends; of several alike, the first.
    fn set_ends(&self, state: &State, spire: Option<Timestamp>) {
        let seconds = |end: Timestamp| i64::try_from(end.millis() / 1000).unwrap_or(i64::MAX);
        self.issuer_ends.clear();
        let mut issuers: Vec<_> = state.issuers.values().collect();
        issuers.sort_by_key(|issuer| std::cmp::Reverse(issuer.not_after));
        for issuer in issuers {
            let label = ByIssuer {
                r#use: issuer.issues_for().as_str(),
                kind: issuer.kind.as_str(),
                state: issuer.state.as_str(),
            };
            self.issuer_ends.get_or_create(&label).set(seconds(issuer.not_after));
        }
        if let Some(end) = spire {
            let label = ByIssuer { r#use: "node", kind: "spire", state: "active" };
            self.issuer_ends.get_or_create(&label).set(seconds(end));
        }
        self.root_ends.clear();
        let mut roots: Vec<_> = state.roots.iter().collect();
        roots.sort_by_key(|root| std::cmp::Reverse(root.not_after));
        for root in roots {
            let label = ByState { state: root.state.as_str() };
            self.root_ends.get_or_create(&label).set(seconds(root.not_after));
        }
    }

    fn set_overlay(&self, state: &State, feeds: &Feeds) {
        let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.overlay_peers.set(gauge(state.overlays.values().map(|overlay| overlay.peers.len()).sum()));
        self.overlay_streams.set(gauge(feeds.followers()));
        let behind =
            |counter: &Counter, now: &AtomicU64| now.load(Ordering::Relaxed).saturating_sub(counter.get());
        self.overlay_frames.inc_by(behind(&self.overlay_frames, &feeds.traffic.frames));
        self.overlay_bytes.inc_by(behind(&self.overlay_bytes, &feeds.traffic.bytes));
    }

    /// The text that a scraper reads.
    pub fn text(
        &self,
        view: &View,
        fleet: &Fleet,
        overflowed: u64,
        ready: bool,
        (hsm_up, step_ca_up, spire_ends): (bool, bool, Option<Timestamp>),
        clock: ClockReading,
    ) -> String {
        let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.ready.set(i64::from(ready));
        self.hsm_up.set(i64::from(hsm_up));
        self.step_ca_up.set(i64::from(step_ca_up));
        self.intents.set(gauge(view.state.intents.len()));
        self.undelivered_revocations.set(gauge(view.state.undelivered_revocations.len()));
        self.refusals_overflowed.set(i64::try_from(overflowed).unwrap_or(i64::MAX));
        self.clock_offset.set(clock.offset_ms / 1000);
        let presence = &fleet.presence;
        self.connected_nodes.set(gauge(presence.connected()));
        self.set_overlay(&view.state, &fleet.overlays.feeds);
        for (days, count) in days_left(&view.state) {
            self.expiring.get_or_create(&ByDays { days }).set(gauge(count));
        }
        for kind in AlertKind::ALL {
            let open = view.state.alerts.values().filter(|alert| alert.kind == *kind).count();
            self.alerts.get_or_create(&ByKind { kind: kind.as_str() }).set(gauge(open));
        }
        self.set_ends(&view.state, spire_ends);
        self.audit_seq.set(i64::try_from(view.audit.seq).unwrap_or(i64::MAX));
        let lag = view.audit.seq.saturating_sub(self.loki.sent.load(Ordering::Relaxed));
        self.loki.lag.set(i64::try_from(lag).unwrap_or(i64::MAX));
        for state in NodeState::ALL {
            let count = view.state.nodes.values().filter(|node| node.state == state).count();
            let label = ByState { state: state.as_str() };
            self.nodes.get_or_create(&label).set(gauge(count));
        }
        for (class, count) in failures(&view.state, presence) {
            self.node_failures.get_or_create(&ByFailure { class: class.as_str() }).set(gauge(count));
        }
        let mut text = String::new();
        match encode(&mut text, &self.registry) {
            Ok(()) => text,
            Err(error) => format!("# {error}\n"),
        }
    }
}

/// How many nodes say that this is wrong with them, by their latest report.
fn failures(state: &State, presence: &Presence) -> BTreeMap<host::Class, usize> {
    let mut counts: BTreeMap<_, _> = host::Class::ALL.iter().map(|class| (*class, 0)).collect();
    for node in state.nodes.values().filter(|node| !node.state.is_gone()) {
        let heard = presence.report(&node.id);
        let class = node.newest_report(heard.as_ref()).and_then(|report| report.class);
        if let Some(count) = class.and_then(|class| counts.get_mut(&class)) {
            *count += 1;
        }
    }
    counts
}

/// How many certificates of nodes end within so many days, each counted once, in the first that holds it.
fn days_left(state: &State) -> [(&'static str, usize); 5] {
    let mut counts = [("0", 0), ("1", 0), ("7", 0), ("30", 0), ("more", 0)];
    let good = state.certificates.iter().filter(|(serial, certificate)| {
        matches!(certificate.owner, Owner::Node(_)) && state.verdict(serial, state.at) == Verdict::Good
    });
    for (_, certificate) in good {
        let days = certificate.not_after.since(state.at).millis() / Span::from_days(1).millis();
        let place = match days {
            0 => 0,
            1 => 1,
            2..=7 => 2,
            8..=30 => 3,
            _ => 4,
        };
        if let Some((_, count)) = counts.get_mut(place) {
            *count += 1;
        }
    }
    counts
}

pub struct Timer(Instant);

impl Timer {
    pub fn observe(self, metrics: &Metrics) {
        metrics.commit_seconds.observe(self.0.elapsed().as_secs_f64());
    }
}
