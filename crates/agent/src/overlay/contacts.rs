//! When each peer last answered, also after its session has ended, and to which of them packets go without an answer. No I/O.

use std::collections::BTreeMap;
use std::time::Duration;

use pki::wireguard::WireguardPublic;
use tokio::time::Instant;

use super::FoundPeer;

/// After this WireGuard itself takes a session for over: whoever sends later begins a handshake.
pub const RECENT: Duration = Duration::from_secs(180);
/// Three handshakes that WireGuard begins, one every 5 seconds, at the first address; with each change of the address, twice as long.
const PATIENCE: Duration = Duration::from_secs(15);
const MOST_DOUBLED: u32 = 5;

#[derive(Debug, Default)]
pub struct Contacts(BTreeMap<WireguardPublic, HandshakeRecord>);

#[derive(Debug)]
struct HandshakeRecord {
    /// When it was first seen.
    since: Instant,
    handshake: Option<Instant>,
    sent_bytes: u64,
    sent_at: Option<Instant>,
    /// Since when something is sent and not answered.
    tried_since: Option<Instant>,
    turns: u32,
}

/// What one look shows.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LookedAt {
    /// To how many packets go, while there was no handshake for over three minutes.
    pub unanswered: usize,
    /// Those to be tried at their other address, if they have one.
    pub turn: Vec<WireguardPublic>,
}

impl Contacts {
    /// Adds to what the interface has what it has forgotten.
    pub fn look(&mut self, found: &mut [FoundPeer], now: Instant) -> LookedAt {
        let mut before = std::mem::take(&mut self.0);
        let mut seen = LookedAt::default();
        for peer in found {
            let mut contact = before.remove(&peer.key).unwrap_or_else(|| HandshakeRecord::new(now));
            contact.look(peer, now);
            seen.unanswered += usize::from(contact.is_unanswered(now));
            if contact.is_to_turn(now) {
                seen.turn.push(peer.key);
            }
            self.0.insert(peer.key, contact);
        }
        seen
    }
}

impl HandshakeRecord {
    fn new(now: Instant) -> Self {
        Self { since: now, handshake: None, sent_bytes: 0, sent_at: None, tried_since: None, turns: 0 }
    }

    fn look(&mut self, peer: &mut FoundPeer, now: Instant) {
        let heard = peer.last_handshake.and_then(|age| now.checked_sub(age));
        self.handshake = self.handshake.max(heard);
        peer.last_handshake = self.handshake.map(|at| now.saturating_duration_since(at));
        // A peer that was put in anew begins at nothing.
        if peer.sent_bytes > self.sent_bytes {
            self.sent_at = Some(now);
        }
        self.sent_bytes = peer.sent_bytes;
        if peer.last_handshake.is_some_and(|age| age <= RECENT) {
            (self.tried_since, self.turns) = (None, 0);
        } else if self.sent_at == Some(now) {
            self.tried_since.get_or_insert(now);
        }
    }

    fn is_unanswered(&self, now: Instant) -> bool {
        let last = self.handshake.unwrap_or(self.since);
        // The answer to a first packet after a long time may be under way.
        let long = self.turns > 0 || self.tried_since.is_some_and(|since| now >= since + PATIENCE);
        long && self.sent_at.is_some_and(|sent| sent > last + RECENT)
    }

    fn is_to_turn(&mut self, now: Instant) -> bool {
        let patience = PATIENCE * 2_u32.pow(self.turns.min(MOST_DOUBLED));
        let still = self.sent_at.is_some_and(|sent| now.saturating_duration_since(sent) <= PATIENCE);
        let turns = still && self.tried_since.is_some_and(|since| now >= since + patience);
        if turns {
            // Unanswered it stays; what is counted anew is the time at the other address.
            (self.tried_since, self.turns) = (Some(now), self.turns.saturating_add(1));
        }
        turns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(sent_bytes: u64, last_handshake: Option<u64>) -> [FoundPeer; 1] {
        [FoundPeer {
            key: [1; 32],
            allowed: Vec::new(),
            endpoint: None,
            keepalive: None,
            last_handshake: last_handshake.map(Duration::from_secs),
            received_bytes: 0,
            sent_bytes,
        }]
    }

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_handshake_is_remembered_when_its_session_has_ended() {
        let (start, mut contacts) = (Instant::now(), Contacts::default());
        contacts.look(&mut found(100, Some(0)), start);
        let mut peers = found(100, None);
        assert_eq!(contacts.look(&mut peers, start + seconds(400)), LookedAt::default(), "nothing is sent");
        assert_eq!(peers[0].last_handshake, Some(seconds(400)));
        let mut anew = found(0, None);
        contacts.look(&mut [], start + seconds(405));
        contacts.look(&mut anew, start + seconds(410));
        assert_eq!(anew[0].last_handshake, None, "a peer that was gone is another");
    }

    #[test]
    fn packets_that_go_out_for_three_minutes_without_a_handshake_are_unanswered() {
        let (start, mut contacts) = (Instant::now(), Contacts::default());
        let mut unanswered = |at: u64, sent, handshake| {
            contacts.look(&mut found(sent, handshake), start + seconds(at)).unanswered
        };
        assert_eq!((unanswered(0, 148, None), unanswered(175, 9000, None)), (0, 0));
        assert_eq!(unanswered(185, 9148, None), 1);
        assert_eq!(unanswered(190, 9148, None), 1, "and nobody has answered since");
        assert_eq!(unanswered(195, 9300, Some(1)), 0);
        assert_eq!(unanswered(500, 9300, None), 0, "nobody has sent anything");
        assert_eq!((unanswered(505, 9448, None), unanswered(525, 9448, None)), (0, 1));
    }

    #[test]
    fn a_peer_that_does_not_answer_is_tried_elsewhere_after_three_handshakes_and_then_ever_more_patiently() {
        let (start, mut contacts) = (Instant::now(), Contacts::default());
        let mut turns = Vec::new();
        for at in (0..120).step_by(5) {
            let seen = contacts.look(&mut found(148 * (at + 1), None), start + seconds(at));
            turns.extend((!seen.turn.is_empty()).then_some(at));
        }
        assert_eq!(turns, [15, 45, 105]);
        let seen = contacts.look(&mut found(148 * 1000, Some(0)), start + seconds(500));
        assert_eq!(seen, LookedAt::default(), "there it stays");
        for at in [690, 1000] {
            let seen = contacts.look(&mut found(148 * 1000, None), start + seconds(at));
            assert!(seen.turn.is_empty(), "nobody sends anything");
        }
    }
}
