//! Tells a webhook of alerts: one at a time, in order, each until it is taken.
//!
//! At least once, as far as alerts that are open go: after a restart every open alert that nobody has
//! acknowledged is delivered again, because deliveries are not recorded.

use crate::fleet::alert_changes;
use crate::process::app::App;
use crate::process::views::Views;
use api::rest::alerts::{AlertChange, AlertEvent};
use client::backoff::RetryPauses;
use client::webhook::{Undelivered, Webhook};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// What may wait for a receiver that is away; then the oldest goes.
const WAITING: usize = 256;
/// A receiver that refuses one this often does not want it, and the next should not wait for it.
const REFUSALS: u32 = 10;
/// How often a replica that does not lead asks again.
const LEADERSHIP_CHECK: Duration = Duration::from_secs(1);

/// Runs until the process stops.
pub async fn run(app: Arc<App>, webhook: Webhook) {
    let queue = Queue::default();
    tokio::select! {
        () = watch(&app, &queue) => {}
        () = deliver(&app, &webhook, &queue) => {}
    }
}

/// Queues what happens to alerts, and first what is open; ends when the process stops.
async fn watch(app: &Arc<App>, queue: &Queue) {
    let mut views = Views::new(app);
    for alert in views.seen().state.alerts.values().filter(|alert| !alert.acknowledged) {
        queue.push(app, AlertEvent::of(AlertChange::Raised, alert));
    }
    while let Some((before, now)) = views.next().await {
        for (change, alert) in alert_changes::changes(&before.state, &now.state) {
            queue.push(app, AlertEvent::of(change, alert));
        }
    }
}

async fn deliver(app: &App, webhook: &Webhook, queue: &Queue) {
    let mut outage = Outage::default();
    loop {
        let (id, event) = queue.first().await;
        let mut refusals = 0;
        // Gone from the queue: it made room for newer ones.
        while queue.holds(id) {
            // One replica delivers. Another that becomes the leader goes on with what it has queued itself.
            if app.journal.leadership().await.is_none() {
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

/// Alerts that wait for delivery, the one being delivered included.
#[derive(Default)]
struct Queue {
    waiting: Mutex<PendingAlerts>,
    more: Notify,
}

#[derive(Default)]
struct PendingAlerts {
    next: u64,
    events: VecDeque<(u64, AlertEvent)>,
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, PendingAlerts> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, app: &App, event: AlertEvent) {
        if let Some(lost) = self.add(event) {
            app.metrics.alert_delivery("dropped");
            tracing::error!(
                alert = lost.alert.alert_id,
                "too many alerts wait for the webhook: the oldest is dropped"
            );
        }
    }

    /// Gives back what had to make room.
    fn add(&self, event: AlertEvent) -> Option<AlertEvent> {
        let mut waiting = self.waiting();
        let full = waiting.events.len() >= WAITING;
        let lost = if full { waiting.events.pop_front() } else { None };
        let id = waiting.next;
        waiting.next += 1;
        waiting.events.push_back((id, event));
        self.more.notify_one();
        lost.map(|(_, event)| event)
    }

    /// The oldest; it stays until it is removed.
    async fn first(&self) -> (u64, AlertEvent) {
        loop {
            if let Some(first) = self.waiting().events.front() {
                return first.clone();
            }
            self.more.notified().await;
        }
    }

    fn holds(&self, id: u64) -> bool {
        self.waiting().events.front().is_some_and(|(first, _)| *first == id)
    }

    fn remove(&self, id: u64) {
        self.waiting().events.retain(|(known, _)| *known != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::rest::alerts::AlertItem;

    fn event(number: usize) -> AlertEvent {
        let alert = AlertItem {
            alert_id: number.to_string(),
            kind: "enrollment_stuck".to_owned(),
            node_id: None,
            since: String::new(),
            count: 1,
            detail: String::new(),
            acknowledged: false,
        };
        AlertEvent { event: AlertChange::Raised, alert }
    }

    #[tokio::test]
    async fn the_oldest_makes_room_even_while_it_is_being_delivered() {
        let queue = Queue::default();
        for number in 0..WAITING {
            assert_eq!(queue.add(event(number)), None);
        }
        let (first, oldest) = queue.first().await;
        assert_eq!(oldest.alert.alert_id, "0");
        assert_eq!(queue.add(event(WAITING)), Some(event(0)));
        assert!(!queue.holds(first));
        queue.remove(first);
        assert_eq!(queue.first().await.1.alert.alert_id, "1");
        assert_eq!(queue.waiting().events.len(), WAITING);
    }
}
