//! Turns to ask step-ca. Few at a time ask it; a turn that is given back goes to the network that has the fewest, so that one network
//! may have all of them until another one asks. One credential has a share that it cannot exceed, waiting included, and rests after a
//! request that was refused for its CSR.

use lifecycle::names::{NodeId, SecretHash, Source};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Calls at once from one replica. A slow step-ca holds up so many requests for certificates and nothing else.
const AT_ONCE: usize = 16;
/// Requests at once by one credential: one, and the same again after a lost answer.
const OF_APPLICANT: usize = 2;
/// After a refusal for its CSR a credential waits so long: each try is an intent, and lines of the audit trail.
const REST: Duration = Duration::from_secs(2);

/// Who asks for a certificate, by what shows that it may.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Applicant {
    Token(SecretHash),
    Node(NodeId),
}

#[derive(Default)]
pub struct Turns {
    queue: Mutex<TurnQueue>,
}

#[derive(Default)]
struct TurnQueue {
    taken: usize,
    by_network: HashMap<Source, usize>,
    /// The first to come first.
    waiting: VecDeque<(Source, oneshot::Sender<TakenTurn>)>,
    applicants: HashMap<Applicant, Requests>,
}

/// What one credential has asked for.
#[derive(Default)]
struct Requests {
    open: usize,
    rests_until: Option<Instant>,
}

impl Requests {
    fn is_over(&self, now: Instant) -> bool {
        self.open == 0 && self.rests_until.is_none_or(|until| until <= now)
    }
}

/// Held while step-ca is asked.
pub struct TakenTurn {
    turns: Option<Arc<Turns>>,
    network: Source,
}

/// One of the requests of a credential, waiting included.
pub struct ApplicantShare {
    turns: Arc<Turns>,
    applicant: Applicant,
}

impl Turns {
    fn queue(&self) -> MutexGuard<'_, TurnQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A share for this credential, or none: it has its share already.
    pub fn share(self: &Arc<Self>, applicant: Applicant) -> Option<ApplicantShare> {
        let mut queue = self.queue();
        let requests = queue.applicants.entry(applicant.clone()).or_default();
        if requests.open >= OF_APPLICANT {
            return None;
        }
        requests.open += 1;
        Some(ApplicantShare { turns: self.clone(), applicant })
    }

    /// The next turn for this network. Whoever stops waiting leaves nothing behind.
    pub async fn take(self: &Arc<Self>, network: Source) -> Option<TakenTurn> {
        self.wait(network).await.ok()
    }

    fn wait(self: &Arc<Self>, network: Source) -> oneshot::Receiver<TakenTurn> {
        let (sender, turn) = oneshot::channel();
        let mut queue = self.queue();
        queue.waiting.push_back((network, sender));
        self.admit(&mut queue);
        turn
    }

    fn admit(self: &Arc<Self>, queue: &mut TurnQueue) {
        queue.waiting.retain(|(_, sender)| !sender.is_closed());
        while queue.taken < AT_ONCE {
            let held =
                |(network, _): &(Source, _)| queue.by_network.get(network).copied().unwrap_or_default();
            // Of several equal ones the first.
            let next =
                (0..).zip(&queue.waiting).min_by_key(|(_, waiter)| held(waiter)).map(|(index, _)| index);
            let Some((network, sender)) = next.and_then(|index| queue.waiting.remove(index)) else { return };
            queue.taken += 1;
            *queue.by_network.entry(network).or_default() += 1;
            let turn = TakenTurn { turns: Some(self.clone()), network };
            if let Err(mut unused) = sender.send(turn) {
                // It stopped waiting just now. The queue is locked, so this turn must not give itself back.
                unused.turns = None;
                queue.give_back(network);
            }
        }
    }
}

impl TurnQueue {
    fn give_back(&mut self, network: Source) {
        self.taken = self.taken.saturating_sub(1);
        if let Some(held) = self.by_network.get_mut(&network) {
            *held = held.saturating_sub(1);
            if *held == 0 {
                self.by_network.remove(&network);
            }
        }
    }
}

impl Drop for TakenTurn {
    fn drop(&mut self) {
        if let Some(turns) = self.turns.take() {
            let mut queue = turns.queue();
            queue.give_back(self.network);
            turns.admit(&mut queue);
        }
    }
}

impl ApplicantShare {
    /// Until when this credential rests.
    pub fn rests_until(&self) -> Option<Instant> {
        self.turns.queue().applicants.get(&self.applicant).and_then(|requests| requests.rests_until)
    }

    /// Its CSR was refused.
    pub fn refused(&self) {
        if let Some(requests) = self.turns.queue().applicants.get_mut(&self.applicant) {
            requests.rests_until = Some(Instant::now() + REST);
        }
    }
}

impl Drop for ApplicantShare {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut queue = self.turns.queue();
        if let Some(requests) = queue.applicants.get_mut(&self.applicant) {
            requests.open = requests.open.saturating_sub(1);
        }
        queue.applicants.retain(|_, requests| !requests.is_over(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(number: u8) -> Source {
        Source::Address(std::net::IpAddr::from([192, 0, number, 0]))
    }

    fn applicant(name: &str) -> Applicant {
        Applicant::Node(NodeId::parse(name).expect("an id"))
    }

    #[tokio::test]
    async fn one_network_may_have_all_turns_and_the_next_one_goes_to_another() {
        let turns = Arc::new(Turns::default());
        let mut held = Vec::new();
        for _ in 0..AT_ONCE {
            held.push(turns.take(network(1)).await.expect("a turn"));
        }
        let wait = |number| {
            let turns = turns.clone();
            tokio::spawn(async move { turns.take(network(number)).await })
        };
        let same: Vec<_> = (0..50).map(|_| wait(1)).collect();
        tokio::task::yield_now().await;
        let other = wait(2);
        tokio::task::yield_now().await;
        held.pop();
        let other = other.await.expect("not aborted").expect("a turn");
        assert!(same.iter().all(|waiter| !waiter.is_finished()), "who has none comes first");
        drop((other, held));
        for waiter in same {
            drop(waiter.await.expect("not aborted").expect("a turn"));
        }
        let queue = turns.queue();
        assert!((queue.taken, queue.by_network.len(), queue.waiting.len()) == (0, 0, 0), "nothing is left");
    }

    #[tokio::test]
    async fn who_stops_waiting_takes_no_turn() {
        let turns = Arc::new(Turns::default());
        let mut held = Vec::new();
        for _ in 0..AT_ONCE {
            held.push(turns.take(network(1)).await.expect("a turn"));
        }
        let limit = Duration::from_millis(10);
        assert!(tokio::time::timeout(limit, turns.take(network(2))).await.is_err());
        drop(held);
        for _ in 0..AT_ONCE {
            let turn = tokio::time::timeout(limit, turns.take(network(3))).await;
            assert!(turn.is_ok_and(|turn| turn.is_some()));
        }
    }

    #[test]
    fn a_credential_has_two_requests_and_rests_after_a_refusal() {
        let turns = Arc::new(Turns::default());
        let (first, second) = (turns.share(applicant("n1")), turns.share(applicant("n1")));
        assert!(first.is_some() && second.is_some() && turns.share(applicant("n1")).is_none());
        assert!(turns.share(applicant("n2")).is_some());
        first.expect("a share").refused();
        drop(second);
        let again = turns.share(applicant("n1")).expect("a share");
        assert!(again.rests_until().is_some_and(|until| until > Instant::now()));
        drop(again);
        assert_eq!(turns.queue().applicants.len(), 1, "its rest is remembered");
        for requests in turns.queue().applicants.values_mut() {
            requests.rests_until = Some(Instant::now());
        }
        drop(turns.share(applicant("n2")));
        assert_eq!(turns.queue().applicants.len(), 0, "and forgotten");
    }
}
