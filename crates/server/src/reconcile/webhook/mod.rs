//! Tells a webhook of alerts: one at a time, in order, each until it is taken.
//!
//! At least once, as far as alerts that are open go: deliveries are not recorded, so that every open alert that nobody has
//! acknowledged is delivered again after a restart. Of several replicas the leader delivers. The others ask it every second how far
//! it has come, and whichever leads next goes on from there: what it did not know to be delivered is delivered again.

mod queue;

use crate::cluster::questions::{self, PeerAnswer, PeerQuestion};
use crate::fleet::alert_changes;
use crate::process::app::App;
use crate::process::views::Views;
use api::rest::alerts::{AlertChange, AlertEvent};
use client::backoff::RetryPauses;
use client::webhook::{Undelivered, Webhook};
pub use queue::AlertQueue;
use std::sync::Arc;
use std::time::Duration;

/// A receiver that refuses one this often does not want it, and the next should not wait for it.
const REFUSALS: u32 = 10;
/// How often a replica that does not lead asks again.
const LEADERSHIP_CHECK: Duration = Duration::from_secs(1);

/// Runs until the process stops.
pub async fn run(app: Arc<App>, webhook: Webhook) {
    tokio::select! {
        () = watch(&app) => {}
        () = deliver(&app, &webhook, &app.alert_queue) => {}
    }
}

/// Queues what happens to alerts, and first what is open; ends when the process stops.
async fn watch(app: &Arc<App>) {
    let mut views = Views::new(app);
    let open = views.seen().state.alerts.values().filter(|alert| !alert.acknowledged);
    let index = views.seen().applied_index;
    add(app, index, open.map(|alert| AlertEvent::of(AlertChange::Raised, alert)));
    while let Some((before, now)) = views.next().await {
        let changes = alert_changes::changes(&before.state, &now.state);
        add(app, now.applied_index, changes.map(|(change, alert)| AlertEvent::of(change, alert)));
    }
}

fn add(app: &App, index: u64, events: impl Iterator<Item = AlertEvent>) {
    for lost in app.alert_queue.add(index, events) {
        app.metrics.alert_delivery("dropped");
        tracing::error!(
            alert = lost.alert.alert_id,
            "too many alerts wait for the webhook: the oldest is dropped"
        );
    }
}

/// What the leader has delivered already.
async fn forget_delivered(app: &App, queue: &AlertQueue) {
    let Some(leader) = app.journal.leader().filter(|leader| *leader != app.journal.replica()) else { return };
    if let Some(PeerAnswer::AlertsDelivered { until: Some(until) }) =
        questions::ask(app, leader, &PeerQuestion::AlertsDelivered).await
    {
        queue.forget_until(until);
    }
}

async fn deliver(app: &App, webhook: &Webhook, queue: &AlertQueue) {
    let mut outage = Outage::default();
    loop {
        let (id, event) = queue.first().await;
        let mut refusals = 0;
        // Gone from the queue: it made room for newer ones.
        while queue.holds(id) {
            // One replica delivers.
            if app.journal.leadership().await.is_none() {
                forget_delivered(app, queue).await;
                tokio::time::sleep(LEADERSHIP_CHECK).await;
                continue;
            }
            match post(webhook, &event).await {
                Ok(()) => {
                    app.metrics.alert_delivery("ok");
                    outage.over(webhook);
                    outage = Outage::default();
                    queue.remove(id);
                }
                Err(error) => {
                    app.metrics.alert_delivery("failed");
                    outage.note(webhook, &error);
                    refusals += u32::from(error.is_final());
                    if refusals == REFUSALS {
                        app.metrics.alert_delivery("dropped");
                        tracing::error!(%webhook, %error, alert = event.alert.alert_id, "the webhook refuses this alert: dropped");
                        queue.remove(id);
                    }
                    tokio::time::sleep(outage.backoff.next(None)).await;
                }
            }
        }
    }
}

async fn post(webhook: &Webhook, event: &AlertEvent) -> Result<(), Undelivered> {
    let json = serde_json::to_vec(event).map_err(|error| Undelivered::Fault(error.to_string()))?;
    webhook.post(json).await
}

/// A time in which the receiver takes nothing; logged once when it begins, and once when it is over.
#[derive(Default)]
struct Outage {
    failures: u32,
    backoff: RetryPauses,
}

impl Outage {
    fn note(&mut self, webhook: &Webhook, error: &Undelivered) {
        self.failures += 1;
        if self.failures == 1 {
            tracing::warn!(%webhook, %error, "an alert could not be delivered and will be tried again");
        } else {
            tracing::debug!(%webhook, %error, failures = self.failures, "an alert could not be delivered");
        }
    }

    fn over(&self, webhook: &Webhook) {
        if self.failures > 0 {
            tracing::info!(%webhook, failures = self.failures, "alerts are delivered again");
        }
    }
}
