//! One certificate on live streams of two replicas. The replica where the later stream is asks the others about it: once when it has
//! been open for half of the time that shows a copy, and again, of those that were found, when the rest has passed. So an idle
//! stream costs nothing, and a connection that is dead but not noticed yet, or a replica that was stopped for a while, is not
//! taken for a second host: by the second question it is closed, or nothing was read from it since the first.

use crate::cluster::questions::{self, AT_ONCE, PeerAnswer, PeerQuestion};
use crate::fleet::presence::at_replica::{HeldStream, OwnStream};
use crate::fleet::presence::suspicion::CopySign;
use crate::process::app::App;
use lifecycle::names::{NodeId, ReplicaId, Serial, Span, Timestamp};
use lifecycle::registry::OVERLAP;
use std::collections::BTreeMap;

/// Streams that are asked about again at one replica.
const CANDIDATES: usize = 256;

/// Half of the time that two streams must be open together; longer than a dead connection stays unnoticed once it is asked about.
fn half() -> Span {
    Span::from_millis(OVERLAP.millis() / 2)
}

#[derive(Default)]
pub struct CopySearch {
    peers: BTreeMap<ReplicaId, Comparison>,
}

/// With the streams of one other replica.
#[derive(Default)]
struct Comparison {
    /// Streams up to this number were asked about.
    asked: u64,
    candidates: Vec<CopyCandidate>,
}

/// A stream whose certificate is shown there, too.
struct CopyCandidate {
    number: u64,
    node: NodeId,
    serial: Serial,
    found: Timestamp,
}

impl CopySearch {
    pub async fn tick(&mut self, app: &App) {
        let peers = questions::reachable(app);
        for peer in peers {
            let comparison = self.peers.entry(peer).or_default();
            comparison.ask_about_new(app, peer).await;
            comparison.ask_again(app, peer).await;
        }
        // One that left does not come back under its id.
        let view = app.view();
        self.peers.retain(|peer, _| view.state.member(*peer).is_ok());
    }
}

impl Comparison {
    /// Where there is no answer, the same is asked again at the next tick.
    async fn ask_about_new(&mut self, app: &App, peer: ReplicaId) {
        let now = app.now();
        let own = app.fleet.presence.streams_after(self.asked, half(), now, AT_ONCE);
        let Some(newest) = own.last().map(|stream| stream.number) else { return };
        let shown = own.iter().map(|stream| (stream.node.clone(), stream.serial.clone())).collect();
        let Some(held) = held_at(app, peer, shown).await else { return };
        self.asked = newest;
        for stream in own {
            // The replica of the later one asks.
            let is_later = held.iter().any(|held| is_same(held, &stream) && stream.open_for <= held.open_for);
            if is_later && self.candidates.len() < CANDIDATES {
                let OwnStream { number, node, serial, .. } = stream;
                self.candidates.push(CopyCandidate { number, node, serial, found: now });
            }
        }
    }

    async fn ask_again(&mut self, app: &App, peer: ReplicaId) {
        let (now, presence) = (app.now(), &app.fleet.presence);
        self.candidates.retain(|one| presence.own_stream(&one.node, one.number, now).is_some());
        let due = |one: &&CopyCandidate| one.found.plus(half()) <= now;
        let shown: Vec<_> =
            self.candidates.iter().filter(due).map(|one| (one.node.clone(), one.serial.clone())).collect();
        if shown.is_empty() {
            return;
        }
        let Some(held) = held_at(app, peer, shown).await else { return };
        let here = app.journal.replica();
        self.candidates.retain(|one| {
            if one.found.plus(half()) > now {
                return true;
            }
            let Some(own) = presence.own_stream(&one.node, one.number, now) else { return false };
            let same = || held.iter().filter(|held| is_same(held, &own));
            let passed = now.since(one.found);
            let Some(other) = same().find(|held| are_two_hosts(&own, held, passed)) else {
                // While both are open, one of them may just have been silent.
                return same().next().is_some();
            };
            let sign = CopySign::across((here, own.source), (peer, other.source));
            presence.suspect_two_streams(&one.node, sign, now);
            false
        });
    }
}

fn is_same(held: &HeldStream, own: &OwnStream) -> bool {
    held.node == own.node && held.serial == own.serial
}

/// Both are open for long enough, and from both something was read since they were first seen together.
fn are_two_hosts(own: &OwnStream, held: &HeldStream, seen_together: Span) -> bool {
    own.open_for.min(held.open_for) >= OVERLAP && own.silent_for.max(held.silent_for) < seen_together
}

async fn held_at(app: &App, peer: ReplicaId, shown: Vec<(NodeId, Serial)>) -> Option<Vec<HeldStream>> {
    match questions::ask(app, peer, &PeerQuestion::Streams { shown }).await? {
        PeerAnswer::Streams(held) => Some(held),
        PeerAnswer::Nodes(_) | PeerAnswer::AlertsDelivered { .. } | PeerAnswer::Unanswered => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lifecycle::names::Source;

    fn streams(own: (u64, u64), held: (u64, u64)) -> (OwnStream, HeldStream) {
        let (node, serial) = (NodeId::parse("n1").expect("a name"), Serial::parse("a1").expect("a serial"));
        let (source, span) = (Source::Internal, Span::from_secs);
        let one = OwnStream {
            number: 1,
            node: node.clone(),
            serial: serial.clone(),
            source,
            open_for: span(own.0),
            silent_for: span(own.1),
        };
        let other = HeldStream { node, serial, source, open_for: span(held.0), silent_for: span(held.1) };
        (one, other)
    }

    #[test]
    fn two_streams_are_of_two_hosts_if_both_are_read_from_while_both_are_open() {
        let found = |own, held| {
            let (own, held) = streams(own, held);
            are_two_hosts(&own, &held, Span::from_secs(30))
        };
        assert!(found((60, 1), (600, 29)));
        assert!(!found((59, 1), (600, 1)), "not for long enough");
        assert!(!found((60, 1), (600, 40)), "dead, and not noticed yet");
        assert!(!found((600, 40), (60, 1)), "dead here");
    }
}
