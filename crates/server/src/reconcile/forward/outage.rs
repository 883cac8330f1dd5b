//! A time in which Loki takes nothing: logged when it begins, when its cause changes and when it is over, and an alert when it
//! lasts.

use super::push::PushFailure;
use crate::process::app::App;
use crate::reconcile::propose;
use client::backoff::RetryPauses;
use client::foreign::ForeignUrl;
use journal::Leadership;
use lifecycle::names::{Span, Timestamp};
use lifecycle::registry::{AlertKind, Command, RaiseAlert};
use std::time::Duration;
use tokio::time::Instant;

/// Another cause is told this often at most: in an alert each time is a line of the trail, which has to be forwarded too.
const RESTATE: Duration = Duration::from_secs(60);

/// One request in so long costs neither side anything, and who comes back is not waited for much longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// What was told last, and when.
struct ToldCause {
    at: Instant,
    reason: &'static str,
    detail: String,
}

impl ToldCause {
    fn of(failure: &PushFailure) -> Self {
        Self { at: Instant::now(), reason: failure.reason, detail: failure.detail.clone() }
    }

    fn is_outdated(&self, failure: &PushFailure) -> bool {
        (self.reason != failure.reason || self.detail != failure.detail) && self.at.elapsed() >= RESTATE
    }
}

pub struct LokiOutage {
    alert_after: Span,
    /// Since when nothing was taken.
    began: Option<(Instant, Timestamp)>,
    failures: u32,
    logged: Option<ToldCause>,
    /// What the alert says.
    raised: Option<ToldCause>,
    pauses: RetryPauses,
}

impl LokiOutage {
    pub fn new(alert_after: Span) -> Self {
        Self {
            alert_after,
            began: None,
            failures: 0,
            logged: None,
            raised: None,
            pauses: RetryPauses::up_to(LONGEST_PAUSE),
        }
    }

    /// Gives back how long to wait before the next attempt.
    pub async fn note(
        &mut self,
        app: &App,
        leadership: &Leadership,
        (url, failure): (&ForeignUrl, &PushFailure),
    ) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let (began, since) = *self.began.get_or_insert_with(|| (Instant::now(), app.now()));
        if self.logged.as_ref().is_none_or(|told| told.is_outdated(failure)) {
            self.logged = Some(ToldCause::of(failure));
            tracing::warn!(%url, reason = failure.reason, "audit lines did not reach Loki and will be sent again: {}", failure.detail);
        } else {
            tracing::debug!(%url, reason = failure.reason, failures = self.failures, "audit lines did not reach Loki: {}", failure.detail);
        }
        let is_news = self.raised.as_ref().is_none_or(|told| told.is_outdated(failure));
        if is_news && began.elapsed() >= Duration::from_millis(self.alert_after.millis()) {
            let detail = format!("no audit line has reached {url} since {since}: {}", failure.detail);
            let alert = RaiseAlert { kind: AlertKind::AuditForwardingFailing, node: None, detail };
            if propose(app, leadership, Command::RaiseAlert(alert)).await.is_some() {
                self.raised = Some(ToldCause::of(failure));
            }
        }
        self.pauses.next(failure.retry_after)
    }

    /// Something was taken. The alert may be one that an earlier run has left.
    pub async fn is_over(&mut self, app: &App, leadership: &Leadership, url: &ForeignUrl) {
        if self.failures > 0 {
            tracing::info!(%url, failures = self.failures, "audit lines reach Loki again");
        }
        if let Some(alert) = app.view().state.open_alert(AlertKind::AuditForwardingFailing, None) {
            propose(app, leadership, Command::ClearAlert { alert: alert.id }).await;
        }
        *self = Self::new(self.alert_after);
    }
}
