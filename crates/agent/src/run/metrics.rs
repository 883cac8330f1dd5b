//! The metrics of the daemon. Names are stable; docs/metrics.md explains them.
//!
//! The control plane chooses the code of a refusal, so only known ones become labels; the rest are `other`.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use api::code::{self, Code};
use lifecycle::host::Class;
use lifecycle::names::Timestamp;

use crate::code::AgentCode;
use crate::fault_code::FaultCode;
use crate::overlay::worker::OverlayCondition;
use crate::overlay::{Unavailable, UnavailableReason};
use crate::status::OverlayState;

/// Reasons beside the classes of failure: codes of this program, and of the control plane.
const AGENT_REASONS: &[AgentCode] = &[AgentCode::AnswerInvalid, AgentCode::Fault, AgentCode::NotPersisted];
const REFUSALS: &[&Code] = &[
    code::CERTIFICATE_SUPERSEDED,
    code::NODE_REVOKED,
    code::RECOVERY_NOT_NEEDED,
    code::TOKEN_EXPIRED,
    code::TOKEN_INVALID,
    code::TOKEN_USED,
    code::UNAUTHENTICATED,
];
/// Why something could not be written.
const WRITE_REASONS: &[&str] = &["disk_full", "permission_denied", "read_only"];
/// What is given up first when room is short.
const SOURCES: &[&str] = &["diagnostic", "log", "metrics"];
const DROP_REASONS: &[&str] = &["disk_pressure", "disk_full"];
const OTHER: &str = "other";
/// More file systems than there are paths to watch.
const MOUNTS: usize = 16;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentMetrics {
    pub renewals_ok: u64,
    pub reconnects: u64,
    pub sessions_open: u64,
    pub sessions_refused: u64,
    pub connected: bool,
    pub cert_not_after_secs: u64,
    pub clock_offset_ms: Option<i64>,
    /// Of a host that is to be in an overlay.
    pub overlay: Option<(OverlayState, Option<Unavailable>, OverlayCondition)>,
    cert_expiry_secs: i64,
    renewal_attempts: u64,
    renewal_failures: BTreeMap<&'static str, u64>,
    recovery_attempts: BTreeMap<&'static str, u64>,
    recoveries: u64,
    recovery_failures: BTreeMap<&'static str, u64>,
    polled_secs: u64,
    drifts: u64,
    not_written: BTreeMap<&'static str, u64>,
    dropped: BTreeMap<(&'static str, &'static str), u64>,
    free: BTreeMap<String, u64>,
}

impl AgentMetrics {
    /// Looked at the certificate: how long it lasts, or how long it has been over.
    pub fn expires(&mut self, not_after: Timestamp, now: Timestamp) {
        let secs = |at: Timestamp| i64::try_from(at.secs()).unwrap_or(i64::MAX);
        self.cert_expiry_secs = secs(not_after).saturating_sub(secs(now));
    }

    pub fn renewal_attempted(&mut self) {
        self.renewal_attempts += 1;
    }

    /// By its class, or the control plane's code.
    pub fn renewal_failed(&mut self, reason: &FaultCode) {
        count(&mut self.renewal_failures, known(reason));
    }

    /// What made it necessary.
    pub fn recovery_attempted(&mut self, class: Class) {
        count(&mut self.recovery_attempts, class.as_str());
    }

    pub fn recovered(&mut self) {
        self.recoveries += 1;
    }

    pub fn recovery_failed(&mut self, reason: &FaultCode) {
        count(&mut self.recovery_failures, known(reason));
    }

    /// A heartbeat was acknowledged.
    pub fn polled(&mut self, at: Timestamp) {
        self.polled_secs = at.secs();
    }

    /// What this host lives by was found changed.
    pub fn drifted(&mut self) {
        self.drifts += 1;
    }

    pub fn drifts(&self) -> u64 {
        self.drifts
    }

    pub fn diagnostic_not_written(&mut self, reason: &str) {
        count(&mut self.not_written, one_of(WRITE_REASONS, reason));
    }

    /// Something to tell was not kept, so that there is room for what is needed.
    pub fn dropped(&mut self, source: &str, reason: &str) {
        count(&mut self.dropped, (one_of(SOURCES, source), one_of(DROP_REASONS, reason)));
    }

    pub fn free(&mut self, mount: &str, bytes: u64) {
        if self.free.contains_key(mount) || self.free.len() < MOUNTS {
            self.free.insert(mount.to_owned(), bytes);
        }
    }

    pub fn text(&self, prefix: &str) -> String {
        let mut page = Exposition { prefix, text: String::new() };
        page.one("up", GAUGE, 1);
        page.one("connected", GAUGE, u8::from(self.connected));
        let failed: u64 = self.renewal_failures.values().sum();
        let results = [("ok", self.renewals_ok), ("failed", failed)];
        page.many("renewals_total", COUNTER, results.map(|(word, n)| (labels(&[("result", word)]), n)));
        page.one("reconnects_total", COUNTER, self.reconnects);
        page.one("sessions_open", GAUGE, self.sessions_open);
        page.one("session_registrations_refused_total", COUNTER, self.sessions_refused);
        page.one("cert_not_after_seconds", GAUGE, self.cert_not_after_secs);
        if let Some(offset) = self.clock_offset_ms {
            let sign = if offset < 0 { "-" } else { "" };
            let (secs, millis) = (offset.unsigned_abs() / 1000, offset.unsigned_abs() % 1000);
            page.one("clock_offset_seconds", GAUGE, format!("{sign}{secs}.{millis:03}"));
        }
        page.one("cert_expiry_seconds", GAUGE, self.cert_expiry_secs);
        page.one("cert_renewal_attempts_total", COUNTER, self.renewal_attempts);
        page.many("cert_renewal_failures_total", COUNTER, by_class(&self.renewal_failures));
        page.many("recovery_enrollment_attempts_total", COUNTER, by_class(&self.recovery_attempts));
        page.one("recovery_enrollment_success_total", COUNTER, self.recoveries);
        page.many("recovery_enrollment_failures_total", COUNTER, by_class(&self.recovery_failures));
        page.one("last_successful_mtls_task_poll_timestamp", GAUGE, self.polled_secs);
        page.one("endpoint_profile_drift_total", COUNTER, self.drifts);
        let writes = by_reason(&self.not_written, WRITE_REASONS.iter().copied().chain([OTHER]));
        page.many("local_diagnostic_write_failures_total", COUNTER, writes);
        let free = self.free.iter().map(|(mount, bytes)| (labels(&[("mount", mount)]), bytes));
        page.many("node_filesystem_available_bytes", GAUGE, free);
        page.many("observability_dropped_records_total", COUNTER, self.dropped_lines());
        if let Some((state, why, condition)) = &self.overlay {
            page.overlay(*state, why.as_ref().map(|why| why.reason), condition);
        }
        page.text
    }

    fn dropped_lines(&self) -> impl Iterator<Item = (String, u64)> {
        let mut all = self.dropped.clone();
        for source in SOURCES {
            all.entry((source, "disk_pressure")).or_default();
        }
        let pair = |((source, reason), n)| (labels(&[("source", source), ("reason", reason)]), n);
        all.into_iter().map(pair)
    }
}

const GAUGE: &str = "gauge";
const COUNTER: &str = "counter";

/// The page being written.
struct Exposition<'a> {
    prefix: &'a str,
    text: String,
}

impl Exposition<'_> {
    fn overlay(&mut self, state: OverlayState, why: Option<UnavailableReason>, now: &OverlayCondition) {
        self.one("overlay_up", GAUGE, u8::from(state == OverlayState::Up));
        // Waiting is nothing to be alarmed by.
        let reasons =
            UnavailableReason::ALL.into_iter().filter(|reason| *reason != UnavailableReason::Waiting);
        let reasons =
            reasons.map(|reason| (labels(&[("reason", reason.as_str())]), u8::from(why == Some(reason))));
        self.many("overlay_unavailable", GAUGE, reasons);
        self.one("overlay_revision", GAUGE, now.revision);
        self.one("overlay_peers", GAUGE, now.peers);
        self.one("overlay_differences", GAUGE, now.differences);
        self.one("overlay_recent_handshakes", GAUGE, now.recent_handshakes);
        if let Some(age) = now.oldest_handshake {
            self.one("overlay_oldest_handshake_seconds", GAUGE, age.as_secs());
        }
        self.one("overlay_received_bytes_total", COUNTER, now.received_bytes);
        self.one("overlay_sent_bytes_total", COUNTER, now.sent_bytes);
    }

    fn one(&mut self, name: &str, kind: &str, value: impl Display) {
        self.many(name, kind, [(String::new(), value)]);
    }

    fn many<V: Display>(&mut self, name: &str, kind: &str, lines: impl IntoIterator<Item = (String, V)>) {
        let prefix = self.prefix;
        // Writing to memory does not fail.
        _ = writeln!(self.text, "# TYPE {prefix}{name} {kind}");
        for (labels, value) in lines {
            _ = writeln!(self.text, "{prefix}{name}{labels} {value}");
        }
    }
}

/// Every class from the start, so that the first failure is seen as a rise.
fn by_class(counts: &BTreeMap<&'static str, u64>) -> impl Iterator<Item = (String, u64)> {
    by_reason(counts, Class::ALL.iter().map(|class| class.as_str()))
}

fn by_reason(
    counts: &BTreeMap<&'static str, u64>,
    always: impl Iterator<Item = &'static str>,
) -> impl Iterator<Item = (String, u64)> {
    let mut all = counts.clone();
    for reason in always {
        all.entry(reason).or_default();
    }
    all.into_iter().map(|(reason, n)| (labels(&[("reason", reason)]), n))
}

fn labels(pairs: &[(&str, &str)]) -> String {
    let escaped = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let pairs: Vec<String> =
        pairs.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    format!("{{{}}}", pairs.join(","))
}

fn count<K: Ord>(counts: &mut BTreeMap<K, u64>, key: K) {
    *counts.entry(key).or_default() += 1;
}

fn known(reason: &FaultCode) -> &'static str {
    match reason {
        FaultCode::Agent(code) if code.class().is_some() || AGENT_REASONS.contains(code) => code.word(),
        FaultCode::ControlPlane(code) if REFUSALS.contains(code) => code.word,
        FaultCode::Agent(_) | FaultCode::ControlPlane(_) | FaultCode::Unknown(_) => OTHER,
    }
}

fn one_of(words: &[&'static str], word: &str) -> &'static str {
    words.iter().copied().find(|known| *known == word).unwrap_or(OTHER)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(text: &str, line: &str) {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }

    #[test]
    fn the_page_names_every_figure() {
        let metrics =
            AgentMetrics { clock_offset_ms: Some(-1250), renewals_ok: 2, ..AgentMetrics::default() };
        let text = metrics.text("x_");
        for line in ["x_up 1", "x_renewals_total{result=\"ok\"} 2", "x_clock_offset_seconds -1.250"] {
            has(&text, line);
        }
    }

    #[test]
    fn the_eleven_metrics_of_004_have_its_names_from_the_start() {
        let text = AgentMetrics::default().text("gpuaas_node_agent_");
        for name in [
            "cert_expiry_seconds",
            "cert_renewal_attempts_total",
            "cert_renewal_failures_total",
            "recovery_enrollment_attempts_total",
            "recovery_enrollment_success_total",
            "recovery_enrollment_failures_total",
            "last_successful_mtls_task_poll_timestamp",
            "endpoint_profile_drift_total",
            "local_diagnostic_write_failures_total",
            "node_filesystem_available_bytes",
            "observability_dropped_records_total",
        ] {
            let known = |line: &str| line.starts_with(&format!("# TYPE gpuaas_node_agent_{name} "));
            assert!(text.lines().any(known), "{name}");
        }
    }

    #[test]
    fn what_happens_is_counted_under_its_reason() {
        let mut metrics = AgentMetrics::default();
        metrics.expires(Timestamp::from_secs(100), Timestamp::from_secs(160));
        metrics.renewal_attempted();
        metrics.renewal_failed(&Class::ClockSkew.into());
        metrics.recovery_attempted(Class::CertExpired);
        metrics.recovered();
        metrics.recovery_failed(&FaultCode::ControlPlane(code::TOKEN_USED));
        metrics.polled(Timestamp::from_secs(7));
        metrics.drifted();
        metrics.diagnostic_not_written("read_only");
        metrics.dropped("metrics", "disk_pressure");
        metrics.free("/a \"b\"\n", 5);
        let text = metrics.text("");
        for line in [
            "cert_expiry_seconds -60",
            "cert_renewal_attempts_total 1",
            "cert_renewal_failures_total{reason=\"clock_skew\"} 1",
            "renewals_total{result=\"failed\"} 1",
            "recovery_enrollment_attempts_total{reason=\"cert_expired\"} 1",
            "recovery_enrollment_success_total 1",
            "recovery_enrollment_failures_total{reason=\"token_used\"} 1",
            "last_successful_mtls_task_poll_timestamp 7",
            "endpoint_profile_drift_total 1",
            "local_diagnostic_write_failures_total{reason=\"read_only\"} 1",
            "node_filesystem_available_bytes{mount=\"/a \\\"b\\\"\\n\"} 5",
            "observability_dropped_records_total{source=\"metrics\",reason=\"disk_pressure\"} 1",
        ] {
            has(&text, line);
        }
    }

    #[test]
    fn a_strangers_word_is_no_label() {
        let mut metrics = AgentMetrics::default();
        for n in 0..1000 {
            let word = format!("word{n}\"}} 1\nevil");
            let refused = FaultCode::Unknown(word.clone());
            metrics.renewal_failed(&refused);
            metrics.recovery_failed(&refused);
            metrics.dropped(&word, &word);
            metrics.diagnostic_not_written(&word);
            metrics.free(&format!("/{n}"), 1);
        }
        let text = metrics.text("");
        assert!(!text.contains("evil") && text.lines().count() < 120, "{text}");
        has(&text, "cert_renewal_failures_total{reason=\"other\"} 1000");
    }
}
