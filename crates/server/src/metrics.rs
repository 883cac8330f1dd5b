//! Counters with stable names; see docs/metrics.md.

use http::StatusCode;
use journal::View;
use lifecycle::registry::{Door, NodeState};
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::time::Instant;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByDoor {
    door: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByStatus {
    status: Class,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
enum Class {
    Ok,
    Refused,
    Fault,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByState {
    state: &'static str,
}

pub struct Metrics {
    registry: Registry,
    enrollments: Family<ByDoor, Counter>,
    refusals: Family<Reason, Counter>,
    handshakes_refused: Family<Reason, Counter>,
    answers: Family<ByStatus, Counter>,
    connections: Gauge,
    commit_seconds: Histogram,
    audit_seq: Gauge,
    nodes: Family<ByState, Gauge>,
}

impl Default for Metrics {
    fn default() -> Self {
        let buckets = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0];
        let mut metrics = Self {
            registry: Registry::with_prefix("enlist"),
            enrollments: Family::default(),
            refusals: Family::default(),
            handshakes_refused: Family::default(),
            answers: Family::default(),
            connections: Gauge::default(),
            commit_seconds: Histogram::new(buckets),
            audit_seq: Gauge::default(),
            nodes: Family::default(),
        };
        metrics.register();
        metrics
    }
}

impl Metrics {
    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register("enrollments", "Enrollments granted", self.enrollments.clone());
        registry.register("enrollment_refusals", "Enrollments refused, by reason", self.refusals.clone());
        let refused = self.handshakes_refused.clone();
        registry.register("handshakes_refused", "Client certificates refused at the handshake", refused);
        registry.register("answers", "Answers, by kind of status", self.answers.clone());
        registry.register("connections", "Open TLS connections", self.connections.clone());
        let seconds = self.commit_seconds.clone();
        registry.register("commit_seconds", "Time from proposal to applied and audited", seconds);
        registry.register("audit_seq", "Number of the newest audit line", self.audit_seq.clone());
        registry.register("nodes", "Nodes on record, by state", self.nodes.clone());
    }

    pub fn enrolled(&self, door: Door) {
        let door = match door {
            Door::Native => "native",
            Door::Plfm => "plfm",
            Door::Pact => "pact",
            Door::Probectl => "probectl",
            Door::Taskrun => "taskrun",
        };
        self.enrollments.get_or_create(&ByDoor { door }).inc();
    }

    pub fn refused(&self, reason: &'static str) {
        self.refusals.get_or_create(&Reason { reason }).inc();
    }

    pub fn handshake_refused(&self, reason: &'static str) {
        self.handshakes_refused.get_or_create(&Reason { reason }).inc();
    }

    pub fn answered(&self, status: StatusCode) {
        let status = match status.as_u16() {
            0..400 => Class::Ok,
            400..500 => Class::Refused,
            _ => Class::Fault,
        };
        self.answers.get_or_create(&ByStatus { status }).inc();
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

    /// The text that a scraper reads.
    pub fn text(&self, view: &View) -> String {
        self.audit_seq.set(i64::try_from(view.audit.seq).unwrap_or(i64::MAX));
        for state in NodeState::ALL {
            let count = view.state.nodes.values().filter(|node| node.state == state).count();
            let label = ByState { state: state.as_str() };
            self.nodes.get_or_create(&label).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        let mut text = String::new();
        match encode(&mut text, &self.registry) {
            Ok(()) => text,
            Err(error) => format!("# {error}\n"),
        }
    }
}

pub struct Timer(Instant);

impl Timer {
    pub fn observe(self, metrics: &Metrics) {
        metrics.commit_seconds.observe(self.0.elapsed().as_secs_f64());
    }
}
