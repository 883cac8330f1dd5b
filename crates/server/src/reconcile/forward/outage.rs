//! A time in which Loki takes nothing: logged once when it begins and once when it is over, and an alert when it lasts.

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

/// An open alert tells of another reason this often at most: each time is a line of the trail, which has to be forwarded too.
const RESTATE: Duration = Duration::from_secs(600);

/// One request in so long costs neither side anything, and who comes back is not waited for much longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

pub struct LokiOutage {
    alert_after: Span,
    /// Since when nothing was taken.
    began: Option<(Instant, Timestamp)>,
    failures: u32,
    /// When the alert was raised last, and with which reason.
    raised: Option<(Instant, &'static str)>,
    pauses: RetryPauses,
}

impl LokiOutage {
    pub fn new(alert_after: Span) -> Self {
        Self {
            alert_after,
            began: None,
            failures: 0,
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
        if self.failures == 1 {
            tracing::warn!(%url, reason = failure.reason, "audit lines did not reach Loki and will be sent again: {}", failure.detail);
        } else {
            tracing::debug!(%url, reason = failure.reason, failures = self.failures, "audit lines did not reach Loki: {}", failure.detail);
        }
        if began.elapsed() >= Duration::from_millis(self.alert_after.millis()) && self.is_news(failure.reason)
        {
            let detail = format!("no audit line has reached {url} since {since}: {}", failure.detail);
            let alert = RaiseAlert { kind: AlertKind::AuditForwardingFailing, node: None, detail };
            if propose(app, leadership, Command::RaiseAlert(alert)).await.is_some() {
                self.raised = Some((Instant::now(), failure.reason));
            }
        }
        self.pauses.next(failure.retry_after)
    }

    fn is_news(&self, reason: &'static str) -> bool {
        self.raised.is_none_or(|(at, said)| said != reason && at.elapsed() >= RESTATE)
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
