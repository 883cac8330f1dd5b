//! What waits for the webhook, on every replica: the leader delivers, the others forget what it has delivered.

use api::rest::alerts::AlertEvent;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// What may wait for a receiver that is away; then the oldest goes.
const WAITING: usize = 256;

/// Alerts that wait for delivery, the one being delivered included.
#[derive(Default)]
pub struct AlertQueue {
    waiting: Mutex<PendingAlerts>,
    more: Notify,
}

#[derive(Default)]
struct PendingAlerts {
    next: u64,
    events: VecDeque<PendingAlert>,
    /// Whatever has happened to alerts up to this entry of the log was queued. None while nobody watches.
    watched: Option<u64>,
}

struct PendingAlert {
    id: u64,
    /// The entry up to which the registry was when it was seen: it happened there, or before.
    index: u64,
    event: AlertEvent,
}

impl AlertQueue {
    fn waiting(&self) -> MutexGuard<'_, PendingAlerts> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues what has happened up to this entry; gives back what had to make room.
    pub fn add(&self, index: u64, events: impl Iterator<Item = AlertEvent>) -> Vec<AlertEvent> {
        let mut waiting = self.waiting();
        for event in events {
            let id = waiting.next;
            waiting.next += 1;
            waiting.events.push_back(PendingAlert { id, index, event });
        }
        waiting.watched = Some(index);
        let over = waiting.events.len().saturating_sub(WAITING);
        let lost = waiting.events.drain(..over).map(|alert| alert.event).collect();
        self.more.notify_one();
        lost
    }

    /// The oldest; it stays until it is removed.
    pub async fn first(&self) -> (u64, AlertEvent) {
        loop {
            if let Some(first) = self.waiting().events.front() {
                return (first.id, first.event.clone());
            }
            self.more.notified().await;
        }
    }

    pub fn holds(&self, id: u64) -> bool {
        self.waiting().events.front().is_some_and(|first| first.id == id)
    }

    pub fn remove(&self, id: u64) {
        self.waiting().events.retain(|known| known.id != id);
    }

    /// Whatever happened up to this entry is delivered, or was given up. None without a webhook.
    pub fn delivered_until(&self) -> Option<u64> {
        let waiting = self.waiting();
        match waiting.events.front() {
            Some(first) => Some(first.index.saturating_sub(1)),
            None => waiting.watched,
        }
    }

    /// Another replica has delivered what happened up to this entry. What was seen here by then happened by then.
    pub fn forget_until(&self, index: u64) {
        self.waiting().events.retain(|alert| alert.index > index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::rest::alerts::{AlertChange, AlertItem};

    fn event(number: usize) -> AlertEvent {
        let alert = AlertItem {
            alert_id: number.to_string(),
            kind: "enrollment_stuck".to_owned(),
            node_id: None,
            tenant: None,
            since: String::new(),
            count: 1,
            detail: String::new(),
            acknowledged: false,
        };
        AlertEvent { event: AlertChange::Raised, alert }
    }

    fn add(queue: &AlertQueue, index: u64, number: usize) -> Vec<AlertEvent> {
        queue.add(index, std::iter::once(event(number)))
    }

    #[tokio::test]
    async fn the_oldest_makes_room_even_while_it_is_being_delivered() {
        let queue = AlertQueue::default();
        for number in 0..WAITING {
            assert_eq!(add(&queue, 1, number), []);
        }
        let (first, oldest) = queue.first().await;
        assert_eq!(oldest.alert.alert_id, "0");
        assert_eq!(add(&queue, 2, WAITING), [event(0)]);
        assert!(!queue.holds(first));
        queue.remove(first);
        assert_eq!(queue.first().await.1.alert.alert_id, "1");
        assert_eq!(queue.waiting().events.len(), WAITING);
    }

    #[tokio::test]
    async fn a_follower_forgets_what_the_leader_has_delivered_and_nothing_else() {
        let (leader, follower) = (AlertQueue::default(), AlertQueue::default());
        assert_eq!(leader.delivered_until(), None, "it has no webhook");
        add(&leader, 5, 1);
        add(&leader, 9, 2);
        // It sees several entries at once, and one that the leader has not seen yet.
        add(&follower, 7, 1);
        add(&follower, 9, 2);
        add(&follower, 11, 3);
        assert_eq!(leader.delivered_until(), Some(4));
        leader.remove(leader.first().await.0);
        follower.forget_until(leader.delivered_until().expect("it watches"));
        assert_eq!(follower.first().await.1, event(2), "the second one is not delivered yet");
        leader.remove(leader.first().await.0);
        follower.forget_until(leader.delivered_until().expect("it watches"));
        assert_eq!(follower.first().await.1, event(3));
        leader.add(12, std::iter::empty());
        follower.forget_until(leader.delivered_until().expect("it watches"));
        assert_eq!(follower.delivered_until(), Some(11), "nothing waits");
    }
}
