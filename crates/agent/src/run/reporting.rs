//! Reporting: the log, the diagnostics, metrics, the status for whoever asks on this host, and the service manager.

use std::path::{Path, PathBuf};

use api::agent::{Attempt as WireAttempt, Evidence};
use lifecycle::host::{Class, Notices};
use lifecycle::names::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

use super::metrics::AgentMetrics;
use super::metrics_listener::MetricsPage;
use crate::clock;
use crate::code::AgentCode;
use crate::diagnostics::{self, NotWritten, Record, Ring};
use crate::fault_code::FaultCode;
use crate::service_manager::ServiceManager;
use crate::space;
use crate::status::{LastAttempt, Status, WaitingFor};
use crate::store::disk;
use crate::store::last_attempts::{self, LastAttempts};

/// What comes from outside is cut.
const SENTENCE: usize = 600;
const REMEDY: usize = 200;

pub struct Reporting {
    pub metrics: AgentMetrics,
    pub attempts: LastAttempts,
    /// What shows the condition at hand, in a sentence.
    pub detail: String,
    /// What the control plane refused the last call with, and the class of that.
    pub failing: Option<(Class, WaitingFor)>,
    notices: Notices,
    ring: Ring,
    diagnostic_writable: Option<bool>,
    /// So little room that records and metrics give way.
    pressed: bool,
    status: watch::Sender<Status>,
    page: MetricsPage,
    prefix: String,
    textfile: Option<PathBuf>,
    manager: ServiceManager,
    watchdog_at: Option<Instant>,
    has_connected: bool,
}

/// Where reports go.
pub struct Outlets {
    pub ring: Ring,
    pub status: watch::Sender<Status>,
    pub page: MetricsPage,
    pub prefix: String,
    pub textfile: Option<PathBuf>,
    pub manager: ServiceManager,
}

impl Reporting {
    pub fn new(outlets: Outlets, attempts: LastAttempts) -> Self {
        let Outlets { ring, status, page, prefix, textfile, manager } = outlets;
        Self {
            metrics: AgentMetrics::default(),
            attempts,
            detail: String::new(),
            failing: None,
            notices: Notices::default(),
            ring,
            diagnostic_writable: None,
            pressed: false,
            status,
            page,
            prefix,
            textfile,
            watchdog_at: manager.watchdog.map(|_| Instant::now()),
            manager,
            has_connected: false,
        }
    }

    /// Whether this is worth a line in the log: the same at most once a minute.
    pub fn is_new(&mut self, kind: &str) -> bool {
        self.notices.note(kind, clock::now()).is_some()
    }

    /// A line in the log, unless the same was said within the last minute.
    pub fn log(&mut self, code: impl Into<FaultCode>, what: &str) {
        let code = code.into();
        self.log_as("", code.as_str(), &code, what, "");
    }

    /// The same of a call: its class, and the code of whoever refused it, where that is another.
    pub fn log_call(&mut self, act: &str, class: Class, code: &FaultCode, what: &str, hint: &str) {
        let usual = if hint.is_empty() { AgentCode::from(class).remedy() } else { hint };
        self.log_as(act, class.as_str(), code, what, usual);
    }

    fn log_as(&mut self, act: &str, class: &str, code: &FaultCode, what: &str, hint: &str) {
        // A renewal and a recovery may fail of the same, so the act is part of the kind.
        let Some(count) = self.worth_a_line(&format!("{act} {class} {code}"), class) else { return };
        let usual = code.agent().map_or("see the page of this code in docs/errors", AgentCode::remedy);
        let remedy = if hint.is_empty() { usual } else { hint };
        let (what, remedy) = (cut(what, SENTENCE), cut(remedy, REMEDY));
        let code = code.as_str();
        if code == class {
            tracing::warn!(class, count, "{what}; remedy: {remedy}");
        } else {
            tracing::warn!(class, code, count, "{what}; remedy: {remedy}");
        }
    }

    /// How often it happened, if that is to be logged. While room is short, what was logged before is dropped: journald
    /// keeps the log on a disk, too.
    fn worth_a_line(&mut self, kind: &str, class: &str) -> Option<u64> {
        if !self.pressed || class == Class::DiskFull.as_str() {
            return self.notices.note(kind, clock::now());
        }
        let count = self.notices.note_once(kind, clock::now());
        if count.is_none() {
            self.metrics.dropped("log", "disk_pressure");
        }
        count
    }

    /// What shows the condition at hand.
    pub fn describe(&mut self, what: &str) {
        self.detail = cut(what, SENTENCE);
    }

    /// What the control plane says of the condition at hand, in its own words: the class alone may be a wide one.
    pub fn refused_with(&mut self, class: Class, code: &FaultCode, error: &client::Error, remedy: &str) {
        let is_said = matches!(error, client::Error::Refused(_)) && !remedy.is_empty();
        self.failing = is_said.then(|| {
            let message = cut(&error.to_string(), SENTENCE);
            let told = WaitingFor { code: code.as_str().to_owned(), message, remedy: cut(remedy, SENTENCE) };
            (class, told)
        });
    }

    /// Writes a diagnostic record, unless room is so short that only a full disk is worth one.
    pub fn record(
        &mut self,
        at: Timestamp,
        class: Class,
        correlation_id: &str,
        what: &str,
        next: &str,
        remedy: &str,
    ) {
        if self.pressed && class != Class::DiskFull {
            return self.metrics.dropped("diagnostic", "disk_pressure");
        }
        let record = Record::new(at, class, correlation_id, what, next).with_remedy(remedy);
        if let Err(failed) = self.ring.write(&record) {
            self.diagnostic_writable = Some(false);
            self.metrics.diagnostic_not_written(failed.reason());
        }
    }

    /// Tries the diagnostic path, and takes room for the next records while nobody else needs it.
    pub fn check_diagnostics(&mut self, pressed: bool) {
        self.pressed = pressed;
        let tried = diagnostics::try_out(self.ring.path()).map_err(NotWritten);
        let tried = if pressed { tried } else { tried.and_then(|()| self.ring.reserve()) };
        self.diagnostic_writable = Some(tried.is_ok());
        if let Err(failed) = tried {
            self.metrics.diagnostic_not_written(failed.reason());
        }
    }

    pub fn keep_attempts(&self, dir: &Path) {
        if let Err(error) = last_attempts::keep(dir, &self.attempts) {
            tracing::debug!(%error, "the result of the last attempt could not be stored");
        }
    }

    pub fn evidence(&self, evidence: &mut Evidence) {
        let attempt = |attempt: &LastAttempt| WireAttempt {
            at: attempt.at.clone(),
            ok: attempt.ok,
            code: attempt.class.clone().unwrap_or_default(),
            correlation_id: attempt.correlation_id.clone(),
        };
        evidence.last_renewal = self.attempts.last_renewal.as_ref().map(attempt);
        evidence.last_recovery = self.attempts.last_recovery.as_ref().map(attempt);
        evidence.diagnostic_writable = self.diagnostic_writable;
        evidence.drift_count = self.metrics.drifts();
        evidence.observability_pressure = self.pressed;
    }

    pub fn status(&self, status: &mut Status) {
        status.last_renewal.clone_from(&self.attempts.last_renewal);
        status.last_recovery.clone_from(&self.attempts.last_recovery);
        status.reason("node_observability_disk_pressure", self.pressed);
    }

    /// For `status`, and for collectors of metrics.
    pub fn publish(&mut self, status: Status) {
        self.status.send_if_modified(|before| {
            let changed = *before != status;
            *before = status;
            changed
        });
        let text = self.metrics.text(&self.prefix);
        let Ok(mut page) = self.page.lock() else { return };
        if *page == text {
            return;
        }
        page.clone_from(&text);
        drop(page);
        let Some(path) = &self.textfile else { return };
        if self.pressed {
            return self.metrics.dropped("metrics", "disk_pressure");
        }
        if let Err(error) = disk::replace(path, text.as_bytes(), disk::PUBLIC) {
            let what = format!("metrics_textfile {}: {error}", path.display());
            if space::is_full(&error) {
                self.metrics.dropped("metrics", "disk_full");
            }
            self.log(AgentCode::MetricsNotWritten, &what);
        }
    }

    /// The daemon runs with the identity that is stored: the service manager is notified that the service is ready. Whether the control
    /// plane answers is for `status` to say: a restart must not wait for it.
    pub fn begun(&self) {
        self.manager.ready();
    }

    pub fn connected(&mut self) {
        self.has_connected = true;
    }

    /// Whether it has been connected before.
    pub fn has_connected(&self) -> bool {
        self.has_connected
    }

    pub fn stopping(&self) {
        self.manager.stopping();
    }

    /// Notifies the service manager's watchdog when it is time.
    pub fn tick(&mut self) {
        let now = Instant::now();
        if let (Some(every), Some(at)) = (self.manager.watchdog, self.watchdog_at)
            && now >= at
        {
            self.manager.alive();
            self.watchdog_at = Some(now + every);
        }
    }

    pub fn wake(&self) -> Option<Instant> {
        self.watchdog_at
    }
}

fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}
