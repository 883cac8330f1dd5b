//! A few places for work that takes long, given in turn: whoever waits and has the fewest of them goes first, and of those with as
//! many whoever has waited longest. However many requests one credential sends, another waits for one piece of work at most.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// Places that are given in turn.
pub struct PlacesInTurn<K: Eq + Hash + Clone> {
    /// How many of them one may have, also while nobody else waits.
    each: usize,
    held: Mutex<Queue<K>>,
}

struct Queue<K: Eq + Hash + Clone> {
    free: usize,
    working: HashMap<K, usize>,
    /// Whoever waits, in the order in which they began to or had their last turn, with all that they wait for.
    waiting: VecDeque<(K, VecDeque<oneshot::Sender<Turn<K>>>)>,
}

/// Held as long as the work takes.
pub struct Turn<K: Eq + Hash + Clone> {
    turns: Arc<PlacesInTurn<K>>,
    whose: K,
}

impl<K: Eq + Hash + Clone> PlacesInTurn<K> {
    pub fn new(places: usize, each: usize) -> Arc<Self> {
        let held = Queue { free: places, working: HashMap::new(), waiting: VecDeque::new() };
        Arc::new(Self { each, held: Mutex::new(held) })
    }

    /// A turn, or none in time.
    pub async fn wait(self: &Arc<Self>, whose: &K, limit: Duration) -> Option<Turn<K>> {
        let (given, turn) = oneshot::channel();
        self.queue(whose, given);
        self.give();
        tokio::time::timeout(limit, turn).await.ok()?.ok()
    }

    fn queue(&self, whose: &K, given: oneshot::Sender<Turn<K>>) {
        let mut held = self.held();
        match held.waiting.iter_mut().find(|(waiting, _)| waiting == whose) {
            Some((_, all)) => all.push_back(given),
            None => held.waiting.push_back((whose.clone(), VecDeque::from([given]))),
        }
    }

    /// Gives what is free to those who wait. One who no longer does gives it back at once.
    fn give(self: &Arc<Self>) {
        while let Some((given, turn)) = self.next() {
            let _ = given.send(turn);
        }
    }

    fn next(self: &Arc<Self>) -> Option<(oneshot::Sender<Turn<K>>, Turn<K>)> {
        let mut held = self.held();
        // Whoever has gone takes no turn away.
        for (_, all) in &mut held.waiting {
            all.retain(|given| !given.is_closed());
        }
        held.waiting.retain(|(_, all)| !all.is_empty());
        if held.free == 0 {
            return None;
        }
        let working = |whose: &K| held.working.get(whose).copied().unwrap_or(0);
        let (at, _) = held
            .waiting
            .iter()
            .enumerate()
            .map(|(at, (whose, _))| (at, working(whose)))
            .filter(|(_, working)| *working < self.each)
            .min_by_key(|(_, working)| *working)?;
        let (whose, mut all) = held.waiting.remove(at)?;
        let given = all.pop_front()?;
        if !all.is_empty() {
            held.waiting.push_back((whose.clone(), all));
        }
        held.free -= 1;
        *held.working.entry(whose.clone()).or_default() += 1;
        Some((given, Turn { turns: self.clone(), whose }))
    }

    fn held(&self) -> MutexGuard<'_, Queue<K>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq + Hash + Clone> Drop for Turn<K> {
    fn drop(&mut self) {
        {
            let mut held = self.turns.held();
            held.free += 1;
            if let Some(working) = held.working.get_mut(&self.whose) {
                *working -= 1;
                if *working == 0 {
                    held.working.remove(&self.whose);
                }
            }
        }
        self.turns.give();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// Waits for a turn in a task of its own, and gives it back when told.
    fn waiting(
        turns: &Arc<PlacesInTurn<&'static str>>,
        whose: &'static str,
    ) -> tokio::task::JoinHandle<Option<Turn<&'static str>>> {
        let turns = turns.clone();
        tokio::spawn(async move { turns.wait(&whose, LONG).await })
    }

    #[tokio::test]
    async fn one_with_a_hundred_requests_keeps_another_waiting_for_one_piece_of_work() {
        let turns = PlacesInTurn::new(2, usize::MAX);
        let first = turns.wait(&"viewer", LONG).await.expect("a place");
        let _second = turns.wait(&"viewer", LONG).await.expect("one may have all while nobody waits");
        let many: Vec<_> = (0..100).map(|_| waiting(&turns, "viewer")).collect();
        tokio::task::yield_now().await;
        let admin = waiting(&turns, "admin");
        tokio::task::yield_now().await;
        drop(first);
        assert!(admin.await.expect("no panic").is_some());
        many.iter().for_each(tokio::task::JoinHandle::abort);
    }

    #[tokio::test]
    async fn those_who_have_as_many_take_turns() {
        let turns = PlacesInTurn::new(1, usize::MAX);
        let mut turn = turns.wait(&"a", LONG).await;
        let mut all: Vec<_> =
            ["a", "a", "a", "b", "b", "c"].into_iter().map(|whose| waiting(&turns, whose)).collect();
        tokio::task::yield_now().await;
        let mut order = Vec::new();
        while turn.take().is_some() {
            tokio::task::yield_now().await;
            let Some(at) = all.iter().position(tokio::task::JoinHandle::is_finished) else { break };
            turn = all.remove(at).await.expect("no panic");
            order.extend(turn.as_ref().map(|turn| turn.whose));
        }
        assert_eq!(order, ["a", "b", "c", "a", "b", "a"]);
    }

    #[tokio::test]
    async fn who_has_gone_or_has_its_own_takes_no_turn() {
        let turns = PlacesInTurn::new(2, 1);
        let first = turns.wait(&"a", LONG).await.expect("a place");
        assert!(turns.wait(&"a", Duration::ZERO).await.is_none(), "it has its own");
        let gone = waiting(&turns, "a");
        tokio::task::yield_now().await;
        gone.abort();
        assert!(gone.await.is_err());
        assert!(turns.wait(&"b", LONG).await.is_some());
        drop(first);
        assert!(turns.wait(&"a", LONG).await.is_some());
        let held = turns.held();
        assert!(
            held.free == 2 && held.working.is_empty() && held.waiting.is_empty(),
            "nothing is left behind"
        );
    }
}
