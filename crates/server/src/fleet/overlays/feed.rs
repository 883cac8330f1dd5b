//! What the hosts of one group are told, and in which order: the whole set at some revision, and behind it the changes since. Kept
//! once per replica and group, as long as a host of the group is connected; why so, decision 28.

use super::frames::{ChangeFrame, PeerMap, WholeSet};
use super::tap::OverlayTap;
use bytes::Bytes;
use lifecycle::registry::{Overlay, OverlayGroup, State};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// The first change is told at once; those that follow within this time are told together.
pub const TOGETHER: Duration = Duration::from_millis(50);
/// Changes of at least so many bytes are kept, whatever the size of the set.
const KEPT_BYTES: usize = 64 * 1024;
/// Changes that are kept at most: beyond them the set is encoded again.
const KEPT: usize = 512;
/// One change is at most this long; a longer one is told as a whole set, in pieces.
const CHANGE_BYTES: usize = 1024 * 1024;

pub struct Feed {
    pub group: OverlayGroup,
    now: Mutex<Arc<FeedState>>,
    /// By their places in memory: a stream that follows it again is the same one.
    taps: Mutex<HashMap<usize, Weak<OverlayTap>>>,
    /// When a change was told last.
    last_told: Mutex<Option<Instant>>,
}

/// A feed at one moment. It never changes; the next one shares its bytes.
pub struct FeedState {
    /// The revision of the registry up to which it was looked at...
    seen: u64,
    /// ...and the last one of them that has something to say to this group.
    told: u64,
    peers: PeerMap,
    whole: Arc<WholeSet>,
    /// The oldest first, without a gap; those behind the whole set, and some before.
    changes: Vec<ChangeFrame>,
}

/// What a host is to be sent next.
pub enum NextFrame {
    Change { revision: u64, bytes: Bytes },
    Whole(Arc<WholeSet>),
}

impl Feed {
    pub fn new(group: OverlayGroup, state: &State) -> Self {
        let (revision, peers) = of(state, &group);
        let whole = Arc::new(WholeSet::of(&group, &peers, revision));
        let now = FeedState { seen: revision, told: revision, peers, whole, changes: Vec::new() };
        Self { group, now: Mutex::new(Arc::new(now)), taps: Mutex::default(), last_told: Mutex::default() }
    }

    pub fn now(&self) -> Arc<FeedState> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Looks at the registry again. None if that is done; else when to look, because a change was told only just now.
    pub fn advance(&self, state: &State, at: Instant) -> Option<Instant> {
        let mut last_told = self.last_told.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.now();
        let (revision, peers) = of(state, &self.group);
        if revision <= before.seen {
            return None;
        }
        if let Some(due) = last_told.map(|last| last + TOGETHER).filter(|due| *due > at) {
            return Some(due);
        }
        let next = before.next(&self.group, peers, revision);
        let is_news = next.told != before.told;
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
        if is_news {
            *last_told = Some(at);
            self.taps().values().filter_map(Weak::upgrade).for_each(|tap| tap.wake());
        }
        None
    }

    fn taps(&self) -> MutexGuard<'_, HashMap<usize, Weak<OverlayTap>>> {
        self.taps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn attach(&self, tap: &Arc<OverlayTap>) {
        let mut taps = self.taps();
        // Those that are gone are forgotten now and then: for each new one a constant share of the work.
        if taps.len() == taps.capacity() {
            taps.retain(|_, tap| tap.strong_count() > 0);
        }
        taps.insert(Arc::as_ptr(tap).addr(), Arc::downgrade(tap));
    }

    /// The streams that follow it.
    pub fn streams(&self) -> Vec<Arc<OverlayTap>> {
        let taps: Vec<_> = self.taps().values().filter_map(Weak::upgrade).collect();
        taps.into_iter().filter(|tap| tap.follows(self)).collect()
    }
}

impl FeedState {
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// How many peers a host of the group has.
    pub fn members(&self, group: &OverlayGroup) -> usize {
        match group.vcluster {
            None => self.peers.len(),
            Some(_) => self.peers.values().filter(|peer| group.includes(peer)).count(),
        }
    }

    fn next(&self, group: &OverlayGroup, peers: PeerMap, seen: u64) -> Self {
        let (whole, told) = (self.whole.clone(), self.told);
        let Some(change) = ChangeFrame::between(group, (&self.peers, told), (&peers, seen)) else {
            return Self { seen, told, peers, whole, changes: self.changes.clone() };
        };
        if change.bytes.len() > CHANGE_BYTES {
            let whole = Arc::new(WholeSet::of(group, &peers, seen));
            return Self { seen, told: seen, peers, whole, changes: Vec::new() };
        }
        let mut changes = self.changes.clone();
        changes.push(change);
        let behind = |since: u64| changes.iter().filter(move |change| change.revision > since);
        let grown: usize = behind(whole.revision).map(|change| change.bytes.len()).sum();
        let outgrown = grown > whole.bytes.max(KEPT_BYTES) || behind(whole.revision).count() > KEPT / 2;
        let whole = if outgrown { Arc::new(WholeSet::of(group, &peers, seen)) } else { whole };
        // Hosts that are a little behind go on with changes, and need not be sent the set.
        let room = 2 * whole.bytes.max(KEPT_BYTES);
        let mut kept = 0;
        let mut from = changes.len();
        while let Some(change) = from.checked_sub(1).and_then(|last| changes.get(last)) {
            kept += change.bytes.len();
            let needed = change.revision > whole.revision;
            if !needed && (kept > room || changes.len() - from >= KEPT) {
                break;
            }
            from -= 1;
        }
        changes.drain(..from);
        Self { seen, told: seen, peers, whole, changes }
    }

    /// What comes next for a host that knows this revision; none if it knows all that there is.
    pub fn behind(&self, known: u64) -> Option<NextFrame> {
        if known >= self.told && known >= self.whole.revision {
            return None;
        }
        let next = self.changes.partition_point(|change| change.revision <= known);
        match self.changes.get(next) {
            Some(change) if change.after <= known => {
                Some(NextFrame::Change { revision: change.revision, bytes: change.bytes.clone() })
            }
            _ => Some(self.whole()),
        }
    }

    pub fn whole(&self) -> NextFrame {
        NextFrame::Whole(self.whole.clone())
    }
}

fn of(state: &State, group: &OverlayGroup) -> (u64, PeerMap) {
    let overlay: Option<&Overlay> = state.overlays.get(&group.tenant);
    overlay.map_or((0, PeerMap::new()), |overlay| (overlay.revision, overlay.peers.clone()))
}

#[cfg(test)]
mod tests {
    use super::super::tap::OverlayTraffic;
    use super::*;
    use api::agent::{LiveDown, OverlayPeers, live_down};
    use lifecycle::names::{NodeId, TenantId, VclusterId, WireguardKey};
    use lifecycle::registry::Peer;
    use prost::Message as _;
    use std::collections::BTreeMap;
    use std::task::{Context, Poll, Waker};

    fn peer(number: u64, revision: u64, vcluster: Option<&str>) -> Arc<Peer> {
        let mut key = [7; 32];
        key[..8].copy_from_slice(&number.to_be_bytes());
        key[8..16].copy_from_slice(&revision.to_be_bytes());
        Arc::new(Peer {
            key: WireguardKey::new(key).unwrap(),
            address: u128::from(number).into(),
            underlay: None,
            since: revision,
            vcluster: vcluster.map(|name| VclusterId::parse(name).unwrap()),
            regrouped: 0,
        })
    }

    fn node(number: u64) -> NodeId {
        NodeId::parse(&format!("n{number:04}")).unwrap()
    }

    fn group(vcluster: Option<&str>) -> OverlayGroup {
        let vcluster = vcluster.map(|name| VclusterId::parse(name).unwrap());
        OverlayGroup { tenant: TenantId::default_tenant(), vcluster }
    }

    /// The registry, changed at random: the numbers are drawn by a simple generator from a seed.
    struct World {
        state: State,
        drawn: u64,
    }

    impl World {
        fn draw(&mut self, below: u64) -> u64 {
            self.drawn =
                self.drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.drawn >> 33) % below
        }

        fn change(&mut self) {
            let (number, kind, red) = (self.draw(300), self.draw(3), self.draw(2) == 0);
            let overlay = self.state.overlays.entry(TenantId::default_tenant()).or_default();
            overlay.revision += 1;
            if kind == 0 {
                overlay.peers.remove(&node(number));
            } else {
                let vcluster = if red { "red" } else { "blue" };
                overlay.peers.insert(node(number), peer(number, overlay.revision, Some(vcluster)));
            }
        }

        fn truth(&self, group: &OverlayGroup) -> BTreeMap<String, Vec<u8>> {
            let (_, peers) = of(&self.state, group);
            let seen = peers.iter().filter(|(_, peer)| group.includes(peer));
            seen.map(|(id, peer)| (id.to_string(), peer.key.as_bytes().to_vec())).collect()
        }
    }

    /// A host that applies what it is told by the rules of the protocol.
    #[derive(Default, Clone)]
    struct Told {
        revision: u64,
        peers: BTreeMap<String, Vec<u8>>,
        coming: BTreeMap<String, Vec<u8>>,
        whole_sets: usize,
    }

    impl Told {
        fn apply(&mut self, frame: &Bytes) {
            let down = LiveDown::decode(&frame[5..]).unwrap();
            let Some(live_down::Message::OverlayPeers(told)) = down.message else { panic!("no peers") };
            let OverlayPeers { revision, after, piece, pieces, peers, gone } = told;
            let peers = peers.into_iter().map(|peer| (peer.node_id, peer.wireguard_public_key));
            match after {
                None => {
                    if piece == 0 {
                        self.coming.clear();
                    }
                    self.coming.extend(peers);
                    if piece + 1 == pieces {
                        self.peers = std::mem::take(&mut self.coming);
                        (self.revision, self.whole_sets) = (revision, self.whole_sets + 1);
                    }
                }
                Some(after) => {
                    assert!(after <= self.revision && self.revision < revision, "a gap, or nothing new");
                    self.peers.extend(peers);
                    gone.iter().for_each(|id| drop(self.peers.remove(id)));
                    self.revision = revision;
                }
            }
        }

        fn read(&mut self, tap: &OverlayTap, most: usize) {
            let mut context = Context::from_waker(Waker::noop());
            for _ in 0..most {
                match tap.poll_frame(&mut context) {
                    Poll::Ready(frame) => self.apply(&frame),
                    Poll::Pending => return,
                }
            }
        }
    }

    #[test]
    fn whoever_follows_comes_to_know_exactly_the_peers_of_its_group() {
        for seed in 1..=20 {
            let mut world = World { state: State::default(), drawn: seed };
            (0..400).for_each(|_| world.change());
            let groups = [group(None), group(Some("red"))];
            let feeds = groups.clone().map(|group| Arc::new(Feed::new(group, &world.state)));
            let mut hosts = Vec::new();
            let mut now = Instant::now();
            for step in 0..300 {
                (0..=world.draw(4)).for_each(|_| world.change());
                now += TOGETHER;
                for feed in &feeds {
                    assert_eq!(feed.advance(&world.state, now), None);
                }
                if step % 10 == 0 {
                    for feed in &feeds {
                        let tap = OverlayTap::new(Arc::new(OverlayTraffic::default()));
                        // Some come from elsewhere, and know what was true at some moment.
                        let known: Option<Told> = match world.draw(3) {
                            0 if world.draw(2) == 0 => hosts
                                .iter()
                                .find(|(other, _, _): &&(Arc<Feed>, _, Told)| Arc::ptr_eq(other, feed))
                                .map(|(_, _, told)| told.clone())
                                .filter(|told| told.revision > 0 && told.coming.is_empty()),
                            _ => None,
                        };
                        tap.follow(feed, known.as_ref().map(|told| told.revision));
                        hosts.push((feed.clone(), tap, known.unwrap_or_default()));
                    }
                }
                for (_, tap, told) in &mut hosts {
                    let most = usize::try_from(world.draw(4)).unwrap();
                    told.read(tap, most);
                }
            }
            for (feed, tap, told) in &mut hosts {
                told.read(tap, usize::MAX);
                assert!(tap.is_current());
                assert_eq!(told.peers, world.truth(&feed.group), "seed {seed}");
            }
        }
    }

    #[test]
    fn a_stream_that_follows_again_is_told_once() {
        let world = World { state: State::default(), drawn: 7 };
        let (one, other) = (Feed::new(group(None), &world.state), Feed::new(group(None), &world.state));
        let (one, other) = (Arc::new(one), Arc::new(other));
        let tap = OverlayTap::new(Arc::new(OverlayTraffic::default()));
        for _ in 0..3 {
            tap.follow(&other, None);
            tap.follow(&one, None);
            tap.follow(&one, Some(1));
        }
        let kept = one.taps().len();
        assert_eq!((kept, one.streams().len(), other.streams().len()), (1, 1, 0));
    }

    #[test]
    fn changes_within_a_moment_are_told_together_and_those_who_keep_up_are_never_sent_the_set_again() {
        let mut world = World { state: State::default(), drawn: 7 };
        (0..500).for_each(|_| world.change());
        let feed = Arc::new(Feed::new(group(None), &world.state));
        let tap = OverlayTap::new(Arc::new(OverlayTraffic::default()));
        tap.follow(&feed, None);
        let mut told = Told::default();
        told.read(&tap, usize::MAX);
        let start = Instant::now();
        world.change();
        assert_eq!(feed.advance(&world.state, start), None, "the first at once");
        world.change();
        world.change();
        assert_eq!(feed.advance(&world.state, start), Some(start + TOGETHER));
        assert_eq!(feed.advance(&world.state, start + TOGETHER), None);
        assert_eq!(feed.now().changes.len(), 2);
        for step in 2..2000 {
            world.change();
            feed.advance(&world.state, start + step * TOGETHER);
            told.read(&tap, usize::MAX);
        }
        assert_eq!((told.whole_sets, &told.peers), (1, &world.truth(&feed.group)));
        let kept = feed.now();
        let bytes: usize = kept.changes.iter().map(|change| change.bytes.len()).sum();
        assert!(bytes <= 4 * kept.whole.bytes.max(KEPT_BYTES) && kept.changes.len() <= 2 * KEPT, "{bytes}");
    }
}
