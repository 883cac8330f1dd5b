//! Turns to shake hands. Only few do so at a time, and a connection that waits for its turn costs its socket alone: of thousands that
//! come at once, each that has begun is soon through and asks what it came for, instead of all being half-way when the peers' patience
//! ends. A turn ends with the handshake, and after a moment without it, so that no silent peer holds up those who wait.
//!
//! Networks take turns at every size of network, so that a host that floods waits for itself: another network, another host in the
//! same one, is next.

use lifecycle::names::Source;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// Far more than the cores that compute them, because most of a handshake is the way to the peer and back.
const AT_ONCE: usize = 256;
/// How long a turn lasts at most. So many silent peers a second, each from a network of its own, are what a newcomer waits for.
pub const TURN_LIMIT: Duration = Duration::from_millis(500);

#[derive(Default)]
pub struct HandshakeTurns {
    queue: Mutex<HandshakeQueue>,
}

#[derive(Default)]
struct HandshakeQueue {
    taken: usize,
    waiting: NetworkLine,
}

/// Who waits from one network: what waits in it itself, the first to come first, and the networks in it, in turn.
#[derive(Default)]
struct NetworkLine {
    waiting: VecDeque<oneshot::Sender<HandshakeTurn>>,
    order: VecDeque<Source>,
    inner: HashMap<Source, NetworkLine>,
}

/// Held while hands are shaken.
pub struct HandshakeTurn {
    turns: Option<Arc<HandshakeTurns>>,
}

impl HandshakeTurns {
    /// The next turn. Whoever stops waiting leaves nothing behind.
    pub async fn take(self: &Arc<Self>, networks: &[Source]) -> Option<HandshakeTurn> {
        let turn = {
            let (sender, turn) = oneshot::channel();
            let mut queue = self.queue();
            queue.waiting.push(networks, sender);
            self.admit(&mut queue);
            turn
        };
        turn.await.ok()
    }

    fn queue(&self) -> MutexGuard<'_, HandshakeQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admit(self: &Arc<Self>, queue: &mut HandshakeQueue) {
        while queue.taken < AT_ONCE {
            let Some(next) = queue.waiting.pop() else { return };
            queue.taken += 1;
            if let Err(mut unused) = next.send(HandshakeTurn { turns: Some(self.clone()) }) {
                // It stopped waiting. The queue is locked, so this turn must not give itself back.
                unused.turns = None;
                queue.taken -= 1;
            }
        }
    }
}

impl NetworkLine {
    fn push(&mut self, networks: &[Source], waiter: oneshot::Sender<HandshakeTurn>) {
        let Some((first, rest)) = networks.split_first() else { return self.waiting.push_back(waiter) };
        let line = self.inner.entry(*first).or_insert_with(|| {
            self.order.push_back(*first);
            NetworkLine::default()
        });
        line.push(rest, waiter);
    }

    fn pop(&mut self) -> Option<oneshot::Sender<HandshakeTurn>> {
        if let Some(waiter) = self.waiting.pop_front() {
            return Some(waiter);
        }
        let network = self.order.pop_front()?;
        let line = self.inner.get_mut(&network)?;
        let waiter = line.pop();
        if line.is_empty() {
            self.inner.remove(&network);
        } else {
            self.order.push_back(network);
        }
        waiter
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.order.is_empty()
    }
}

impl Drop for HandshakeTurn {
    fn drop(&mut self) {
        if let Some(turns) = self.turns.take() {
            let mut queue = turns.queue();
            queue.taken -= 1;
            turns.admit(&mut queue);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::JoinHandle;

    fn waiter(turns: &Arc<HandshakeTurns>, from: &str) -> JoinHandle<HandshakeTurn> {
        let networks = Source::Address(from.parse().expect("an address")).networks();
        let turns = turns.clone();
        tokio::spawn(async move { turns.take(&networks).await.expect("a turn") })
    }

    async fn all_taken(turns: &Arc<HandshakeTurns>) -> Vec<HandshakeTurn> {
        let mut held = Vec::new();
        for _ in 0..AT_ONCE {
            held.push(turns.take(&[]).await.expect("a turn"));
        }
        held
    }

    #[tokio::test]
    async fn a_flood_of_one_host_waits_for_itself() {
        let turns = Arc::new(HandshakeTurns::default());
        let mut held = all_taken(&turns).await;
        let flood: Vec<_> = (0..50).map(|_| waiter(&turns, "192.0.2.1")).collect();
        let site: Vec<_> = (0..50).map(|i| waiter(&turns, &format!("2001:db8:1:{i:x}::1"))).collect();
        tokio::task::yield_now().await;
        let others = ["192.0.2.2", "198.51.100.1", "2001:db8:2::1"].map(|from| waiter(&turns, from));
        tokio::task::yield_now().await;
        // The two that flood, a /24 and a /48, have their turn as the others have.
        held.truncate(AT_ONCE - 5);
        let mut served = Vec::new();
        for other in others {
            served.push(other.await.expect("not aborted"));
        }
        let late = flood.iter().chain(&site).filter(|waiter| !waiter.is_finished()).count();
        assert!(late >= 98, "{late}");
        drop((held, served));
        for waiter in flood.into_iter().chain(site) {
            drop(waiter.await.expect("not aborted"));
        }
        let queue = turns.queue();
        assert!(queue.taken == 0 && queue.waiting.is_empty() && queue.waiting.inner.is_empty());
    }

    #[tokio::test]
    async fn who_stops_waiting_takes_no_turn() {
        let turns = Arc::new(HandshakeTurns::default());
        let held = all_taken(&turns).await;
        let gone = waiter(&turns, "192.0.2.1");
        tokio::task::yield_now().await;
        gone.abort();
        assert!(gone.await.is_err_and(|error| error.is_cancelled()));
        drop(held);
        assert_eq!(turns.queue().taken, 0);
        assert_eq!(all_taken(&turns).await.len(), AT_ONCE);
    }
}
