//! Forwards the audit trail to Loki: at least once and in order. The trail is the buffer: a batch of lines is read when it can
//! be sent, and what Loki has not got stays where it is.
//!
//! How far it has come is in the registry, written every few seconds and at a clean stop: what was sent since is sent again after
//! a kill. One request is under way at a time, by the replica that leads.

mod batch;
mod outage;
mod push;

use super::propose;
use crate::process::app::App;
use crate::process::config::{ForwardingStart, LokiConfig};
use journal::Leadership;
use lifecycle::registry::{AlertKind, AuditSink, Command, Forwarded, ForwardingGapCause, SkipForwarding};
use outage::LokiOutage;
use push::PushFailure;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

const SINK: AuditSink = AuditSink::Loki;
/// Of one request.
const BATCH_LINES: usize = 1000;
const BATCH_BYTES: usize = 512 * 1024;
/// The cursor is written after so many lines, or after so long if there are new ones.
const CURSOR_LINES: u64 = 10_000;
const CURSOR_AGE: Duration = Duration::from_secs(5);
/// New lines wait so long for more of them.
const COALESCE: Duration = Duration::from_millis(200);
/// How long a stop waits for Loki.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);
/// How often a replica that does not lead asks again.
const LEADERSHIP_CHECK: Duration = Duration::from_secs(1);

/// Runs until the process stops.
pub async fn run(app: Arc<App>, config: LokiConfig) {
    let mut forwarder = Forwarder::new(&app, config);
    tokio::select! {
        biased;
        () = app.stopped() => {}
        () = forwarder.forward(&app) => {}
    }
    if let Some(leadership) = app.journal.leadership().await {
        forwarder.keep_cursor(&app, &leadership).await;
    }
}

/// What the stop itself has written, as far as Loki takes it at once: the rest is sent after the next start.
pub async fn flush(app: &App) {
    let Some(config) = app.config.loki.clone() else { return };
    let Some(leadership) = app.journal.leadership().await else { return };
    let mut forwarder = Forwarder::new(app, config);
    let rest = async {
        let mut going = forwarder.begin(app, &leadership).await;
        while going {
            let view = app.view();
            forwarder.sent = forwarder.sent.max(view.state.forwarded(SINK));
            going = forwarder.sent < view.audit.seq
                && forwarder.step(app, &leadership, view.audit.seq).await.is_ok();
        }
    };
    // Cut off in the middle of a request, its lines are sent again.
    let _ = timeout(FLUSH_LIMIT, rest).await;
    forwarder.keep_cursor(app, &leadership).await;
}

/// Clears what an earlier run left, when nothing is forwarded any more.
pub async fn forget(app: &App, leadership: &Leadership) {
    if app.config.loki.is_none()
        && let Some(alert) = app.view().state.open_alert(AlertKind::AuditForwardingFailing, None)
    {
        propose(app, leadership, Command::ClearAlert { alert: alert.id }).await;
    }
}

/// What came of a step that did not fail.
enum ForwardStep {
    /// Lines were taken, or are known to be missing.
    Made,
    /// A smaller batch is tried next.
    Searching,
}

struct Forwarder {
    config: LokiConfig,
    changes: watch::Receiver<u64>,
    /// The last line that Loki has taken, as this process knows.
    sent: u64,
    kept_at: Instant,
    /// Lines of the next batch: fewer where Loki refuses some.
    lines: usize,
    /// Whether the configured beginning was looked at.
    begun: bool,
    outage: LokiOutage,
}

impl Forwarder {
    fn new(app: &App, config: LokiConfig) -> Self {
        let outage = LokiOutage::new(config.alert_after);
        let changes = app.journal.changes();
        Self { config, changes, sent: 0, kept_at: Instant::now(), lines: BATCH_LINES, begun: false, outage }
    }

    async fn forward(&mut self, app: &App) {
        loop {
            let Some(leadership) = app.journal.leadership().await else {
                // Another replica forwards, and this one begins with what that one says.
                sleep(LEADERSHIP_CHECK).await;
                continue;
            };
            if !self.begin(app, &leadership).await {
                sleep(LEADERSHIP_CHECK).await;
                continue;
            }
            self.changes.mark_unchanged();
            let view = app.view();
            self.sent = self.sent.max(view.state.forwarded(SINK));
            app.metrics.loki_sent(self.sent);
            if self.is_cursor_due(app) {
                self.keep_cursor(app, &leadership).await;
            }
            if self.sent >= view.audit.seq {
                self.rest(app).await;
                continue;
            }
            match self.step(app, &leadership, view.audit.seq).await {
                Ok(ForwardStep::Searching) => {}
                Ok(ForwardStep::Made) => self.outage.is_over(app, &leadership, &self.config.url).await,
                Err(failure) => {
                    app.metrics.loki_failed(failure.reason);
                    let pause = self.outage.note(app, &leadership, (&self.config.url, &failure)).await;
                    sleep(pause).await;
                }
            }
        }
    }

    /// Leaves out what the configuration says, once for each start.
    async fn begin(&mut self, app: &App, leadership: &Leadership) -> bool {
        if self.begun {
            return true;
        }
        let view = app.view();
        let cursor = view.state.forwarded(SINK);
        let to = match self.config.from {
            ForwardingStart::Start => 0,
            ForwardingStart::Now if cursor == 0 => view.audit.seq,
            ForwardingStart::Now => 0,
            // A line that has not been written yet is not left out before it is there.
            ForwardingStart::Line(first) => first.saturating_sub(1).min(view.audit.seq),
        };
        if let ForwardingStart::Line(first) = self.config.from
            && first.saturating_sub(1) > view.audit.seq
        {
            tracing::warn!(
                from = first,
                last = view.audit.seq,
                "loki.from is beyond the end of the audit trail: what the trail holds now is left out, and every line that is written from now on is forwarded"
            );
        }
        self.begun = to <= cursor || self.skip(app, leadership, to, ForwardingGapCause::Configured).await;
        self.begun
    }

    /// Ends when there may be something to do.
    async fn rest(&mut self, app: &App) {
        let cursor = app.view().state.forwarded(SINK);
        tokio::select! {
            _ = self.changes.changed() => sleep(COALESCE).await,
            () = sleep_until(self.kept_at + CURSOR_AGE), if self.sent > cursor => {}
        }
    }

    fn is_cursor_due(&self, app: &App) -> bool {
        let behind = self.sent.saturating_sub(app.view().state.forwarded(SINK));
        behind >= CURSOR_LINES || (behind > 0 && self.kept_at.elapsed() >= CURSOR_AGE)
    }

    async fn keep_cursor(&mut self, app: &App, leadership: &Leadership) {
        self.kept_at = Instant::now();
        let forwarded = Forwarded { sink: SINK, through: self.sent };
        propose(app, leadership, Command::RecordForwarded(forwarded)).await;
    }

    /// Sends the next batch, or finds that lines are missing.
    async fn step(
        &mut self,
        app: &App,
        leadership: &Leadership,
        last: u64,
    ) -> Result<ForwardStep, PushFailure> {
        let lines = self.read(app, last).await?;
        let Some((first, _)) = lines.first() else {
            let what = format!("the audit trail does not hold the lines after {}", self.sent);
            return Err(PushFailure::new("unreadable", what));
        };
        if *first > self.sent + 1 {
            let to = first - 1;
            tracing::warn!(from = self.sent + 1, to, "audit lines are missing and cannot be forwarded");
            // What was sent before is on record first, so that the gap is named as it is.
            self.keep_cursor(app, leadership).await;
            let skipped = self.skip(app, leadership, to, ForwardingGapCause::Missing).await;
            return skipped.then_some(ForwardStep::Made).ok_or_else(|| {
                PushFailure::new("unrecorded", "the gap in the audit trail could not be recorded")
            });
        }
        let lines = batch::consecutive(lines);
        let (count, through) = (lines.len(), lines.last().map_or(self.sent, |(seq, _)| *seq));
        let domain =
            app.view().state.domain.as_ref().map(|domain| domain.name.to_string()).unwrap_or_default();
        let body = batch::encode(&domain, &lines, app.now())
            .map_err(|error| PushFailure::new("unreadable", error.to_string()))?;
        drop(lines);
        match push::push(&self.config, body).await {
            Ok(()) => {
                self.sent = through;
                self.lines = self.lines.saturating_mul(2).min(BATCH_LINES);
                app.metrics.loki_took(self.sent, app.now());
                Ok(ForwardStep::Made)
            }
            Err(failure) if failure.is_about_lines && count > 1 => {
                // The first half again, at once: so the line that is refused is found.
                self.lines = count / 2;
                app.metrics.loki_failed(failure.reason);
                Ok(ForwardStep::Searching)
            }
            Err(mut failure) => {
                if failure.is_about_lines {
                    failure.detail = format!("line {through} is refused: {}", failure.detail);
                }
                Err(failure)
            }
        }
    }

    async fn read(&self, app: &App, last: u64) -> Result<Vec<(u64, String)>, PushFailure> {
        let (audit, after, lines) = (app.journal.audit().clone(), self.sent, self.lines);
        let read = move || audit.read((after, last), (lines, BATCH_BYTES));
        let read = tokio::task::spawn_blocking(read).await;
        let unreadable = |what: String| PushFailure::new("unreadable", format!("the audit trail: {what}"));
        read.map_err(|error| unreadable(error.to_string()))?.map_err(|error| unreadable(error.to_string()))
    }

    /// Lines that Loki does not get are a line of the trail.
    async fn skip(&mut self, app: &App, leadership: &Leadership, to: u64, cause: ForwardingGapCause) -> bool {
        let skip = SkipForwarding { sink: SINK, to, cause };
        let view = propose(app, leadership, Command::SkipForwarding(skip)).await;
        let reached = view.is_some_and(|view| view.state.forwarded(SINK) >= to);
        if reached {
            self.sent = self.sent.max(to);
        }
        reached
    }
}
