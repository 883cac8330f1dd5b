//! What the hosts of one group are told, and in which order: the whole set at some revision, and behind it the changes since. Kept
//! once per replica and group, as long as a host of the group is connected; why so, decision 28.

use super::frames::{ChangeFrame, PeerMap, WholeSet};
use super::tap::OverlayTap;
use bytes::Bytes;
use lifecycle::registry::{Overlay, OverlayGroup, State};
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
    taps: Mutex<Vec<Weak<OverlayTap>>>,
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
            self.taps().iter().filter_map(Weak::upgrade).for_each(|tap| tap.wake());
        }
        None
    }

    fn taps(&self) -> MutexGuard<'_, Vec<Weak<OverlayTap>>> {
        self.taps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn attach(&self, tap: &Arc<OverlayTap>) {
        let mut taps = self.taps();
        // Those that are gone are forgotten now and then: for each new one a constant share of the work.
        if taps.len() == taps.capacity() {
            taps.retain(|tap| tap.strong_count() > 0);
        }
        taps.push(Arc::downgrade(tap));
    }

    /// The streams that follow it.
    pub fn streams(&self) -> Vec<Arc<OverlayTap>> {
        let taps: Vec<_> = self.taps().iter().filter_map(Weak::upgrade).collect();
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
