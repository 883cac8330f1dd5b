//! A pool of places with shares: the connections, handshakes and bodies of the unauthenticated are bounded by one each, and
//! so is what a single credential may hold.
//!
//! A share binds only when the pool is full: until then one network may have every place. When it is full, whoever holds much
//! gives way to whoever holds little: the group with the most places that can be given up loses its oldest. Networks are counted
//! at every size at once (an IPv6 /48, the /56 in it, the /64 in that), so that many small networks of one owner are one large one.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// For so long nobody's place is taken only because it waits for its peer; a group that holds more than others has no such
/// time.
const STALE: Duration = Duration::from_secs(1);
/// For so long a handshake is given up only to a group that holds far less; then, if its peer is still silent, to any that holds no more,
/// so that as many networks as there are places cannot keep all of them.
const PAID_FOR: Duration = Duration::from_secs(3);
/// How often someone who waits looks again: places become stale by time alone. Where more than so many wait, each looks less often,
/// up to ten times less.
const LOOK: Duration = Duration::from_millis(200);
const LOOKERS: u32 = 64;
const RAREST: u32 = 10;
/// The same for one whose outermost group has no place: it goes before those that have some, since it looks more often.
const FIRST_LOOK: Duration = Duration::from_millis(20);
const FIRST_LOOKERS: u32 = 16;
const FIRST_RAREST: u32 = 25;
/// How many of the places that have waited longest are looked at for one that may be taken.
const LOOKED_AT: usize = 8;

/// What a place is used for now, in the order in which they are given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlaceUse {
    /// Waits for its peer: given up to a group that holds less, and soon to anyone.
    Idle,
    /// The peer is at work: given up to a group that holds less.
    Active,
    /// A handshake that has begun, or waits for its turn, until something is asked: given up to a group that holds far less, and after a
    /// while to another that holds no more. Of thousands of machines that boot at once some groups hold a few more than others at any moment.
    Handshake,
    /// The control plane is at work: never given up.
    Protected,
}

/// Places for members of groups; a group is named by its path, the outermost name first.
pub struct SharedPool<K> {
    places: usize,
    /// How many of them one innermost group may have, full or not.
    each: usize,
    /// The same of an outermost one.
    outermost: usize,
    /// Whether a group that has as many gives up one of them for one more; otherwise it has no more.
    replaces: bool,
    held: Mutex<Holdings<K>>,
    freed: Notify,
    waiting: AtomicU32,
    /// Those of them whose outermost group had no place when they came.
    waiting_first: AtomicU32,
}

/// Counts one who waits for as long as it does.
struct PoolWaiter<'a>(&'a AtomicU32);

impl<'a> PoolWaiter<'a> {
    fn new(waiting: &'a AtomicU32) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }

    fn others(&self) -> u32 {
        self.0.load(Ordering::Relaxed).saturating_sub(1)
    }
}

impl Drop for PoolWaiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Held as long as the place is used.
pub struct PoolPlace<K: Ord + Hash + Clone> {
    pool: Arc<SharedPool<K>>,
    id: u64,
    /// Cancelled when the place was given to another.
    pub displaced: CancellationToken,
}

struct Holdings<K> {
    next: u64,
    holders: HashMap<u64, PlaceHolder<K>>,
    groups: HashMap<Vec<K>, Group<K>>,
    /// The places of all groups that become stale, the first to do so first.
    stale: BTreeSet<(Instant, u64)>,
}

struct PlaceHolder<K> {
    path: Vec<K>,
    /// How many places it counts as.
    weight: usize,
    used: PlaceUse,
    since: Instant,
    displaced: CancellationToken,
}

/// A group and what is in it: other groups, or places.
struct Group<K> {
    count: usize,
    /// How many of its places can be given up, and the same of the groups in it, in order.
    loose: usize,
    inner: BTreeSet<(usize, K)>,
    /// Of an innermost group: its places, the idle ones first and those that cannot be given up last, the oldest of them first.
    candidates: BTreeSet<(PlaceUse, Instant, u64)>,
}

impl<K> Default for Group<K> {
    fn default() -> Self {
        Self { count: 0, loose: 0, inner: BTreeSet::new(), candidates: BTreeSet::new() }
    }
}

impl<K: Ord + Hash + Clone> SharedPool<K> {
    pub fn new(places: usize, each: usize) -> Arc<Self> {
        Self::build(places, each, usize::MAX, false)
    }

    /// One where a group that has as many places as it may gives up one of them for one more: the one that has been idle longest.
    /// An outermost group that has as many as it may has one more only if it gives up one.
    pub fn replacing(places: usize, each: usize, outermost: usize) -> Arc<Self> {
        Self::build(places, each, outermost, true)
    }

    fn build(places: usize, each: usize, outermost: usize, replaces: bool) -> Arc<Self> {
        let held = Holdings {
            next: 0,
            holders: HashMap::new(),
            // The root of all groups has the empty path.
            groups: HashMap::from([(Vec::new(), Group::default())]),
            stale: BTreeSet::new(),
        };
        let (held, freed) = (Mutex::new(held), Notify::new());
        Arc::new(Self {
            places,
            each,
            outermost,
            replaces,
            held,
            freed,
            waiting: AtomicU32::new(0),
            waiting_first: AtomicU32::new(0),
        })
    }

    /// A place now, or none: the pool is full and nobody in it has to give way.
    pub fn enter(
        self: &Arc<Self>,
        path: &[K],
        used: PlaceUse,
        displaced: CancellationToken,
    ) -> Option<PoolPlace<K>> {
        self.enter_where(self.places, path, 1, used, displaced)
    }

    /// The same for what counts as so many places.
    pub fn enter_weighed(
        self: &Arc<Self>,
        path: &[K],
        weight: usize,
        used: PlaceUse,
        displaced: CancellationToken,
    ) -> Option<PoolPlace<K>> {
        self.enter_where(self.places, path, weight, used, displaced)
    }

    /// The same where only so many places are left.
    pub fn enter_among(
        self: &Arc<Self>,
        places: usize,
        path: &[K],
        used: PlaceUse,
        displaced: CancellationToken,
    ) -> Option<PoolPlace<K>> {
        self.enter_where(places, path, 1, used, displaced)
    }

    fn enter_where(
        self: &Arc<Self>,
        places: usize,
        path: &[K],
        weight: usize,
        used: PlaceUse,
        displaced: CancellationToken,
    ) -> Option<PoolPlace<K>> {
        let mut held = self.held();
        if !self.make_room(&mut held, places, path, weight) {
            return None;
        }
        let id = held.next;
        held.next += 1;
        let (path, since) = (path.to_vec(), Instant::now());
        let holder = PlaceHolder { path, weight, used, since, displaced: displaced.clone() };
        held.insert(id, holder);
        Some(PoolPlace { pool: self.clone(), id, displaced })
    }

    /// Whether there is room, once those have given way who have to.
    fn make_room(&self, held: &mut Holdings<K>, places: usize, path: &[K], weight: usize) -> bool {
        if held.count(path).saturating_add(weight) > self.each {
            let own = held.first(path).filter(|_| self.replaces).and_then(|own| held.remove(own));
            let Some(own) = own else { return false };
            own.displaced.cancel();
        }
        // Where more are taken than are left, one comes for one that goes.
        let (outermost, room) = (path.get(..1).unwrap_or_default(), places.max(held.count(&[])));
        for (group, room) in [(outermost, self.outermost), (&[][..], room)] {
            while held.count(group).saturating_add(weight) > room {
                let victim = held.victim(group, path, weight, Instant::now());
                let Some(victim) = victim.and_then(|victim| held.remove(victim)) else { return false };
                victim.displaced.cancel();
            }
        }
        true
    }

    /// A place, or none in time.
    pub async fn wait(
        self: &Arc<Self>,
        path: &[K],
        used: PlaceUse,
        displaced: CancellationToken,
        limit: Duration,
    ) -> Option<PoolPlace<K>> {
        self.wait_weighed(path, 1, used, displaced, limit).await
    }

    /// The same for what counts as so many places.
    pub async fn wait_weighed(
        self: &Arc<Self>,
        path: &[K],
        weight: usize,
        used: PlaceUse,
        displaced: CancellationToken,
        limit: Duration,
    ) -> Option<PoolPlace<K>> {
        let deadline = Instant::now() + limit;
        let outermost = path.get(..1).unwrap_or_default();
        let (waiter, look, lookers, rarest) = if self.held().count(outermost) == 0 {
            (PoolWaiter::new(&self.waiting_first), FIRST_LOOK, FIRST_LOOKERS, FIRST_RAREST)
        } else {
            (PoolWaiter::new(&self.waiting), LOOK, LOOKERS, RAREST)
        };
        loop {
            let freed = self.freed.notified();
            if let Some(place) = self.enter_weighed(path, weight, used, displaced.clone()) {
                return Some(place);
            }
            if Instant::now() >= deadline {
                return None;
            }
            tokio::select! {
                () = freed => {}
                () = tokio::time::sleep(look * (1 + waiter.others() / lookers).min(rarest)) => {}
            }
        }
    }

    /// How many places are taken.
    pub fn taken(&self) -> usize {
        self.held().count(&[])
    }

    /// Takes a place from the group with most that can be given up, and gives it to nobody.
    pub fn give_up(&self) {
        let mut held = self.held();
        let first = held.largest(&[]).and_then(|path| held.first(&path));
        if let Some(holder) = first.and_then(|id| held.remove(id)) {
            holder.displaced.cancel();
        }
    }

    /// How many places this group has.
    pub fn held_by(&self, path: &[K]) -> usize {
        self.held().count(path)
    }

    fn held(&self) -> MutexGuard<'_, Holdings<K>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Ord + Hash + Clone> PoolPlace<K> {
    pub fn set(&self, used: PlaceUse) {
        let mut held = self.pool.held();
        if held.holders.get(&self.id).is_none_or(|holder| holder.used == used) {
            return;
        }
        if let Some(holder) = held.remove(self.id) {
            held.insert(self.id, PlaceHolder { used, since: Instant::now(), ..holder });
        }
    }
}

impl<K: Ord + Hash + Clone> PoolPlace<K> {
    /// Counts it as so many places from now on. Without room for them it is given up, as if another had it.
    pub fn enlarge(&self, weight: usize) {
        let mut held = self.pool.held();
        let smaller = held.holders.get(&self.id).is_some_and(|holder| holder.weight < weight);
        let Some(holder) = smaller.then(|| held.remove(self.id)).flatten() else { return };
        if self.pool.make_room(&mut held, self.pool.places, &holder.path, weight) {
            held.insert(self.id, PlaceHolder { weight, ..holder });
        } else {
            holder.displaced.cancel();
            self.pool.freed.notify_one();
        }
    }
}

impl<K: Ord + Hash + Clone> Drop for PoolPlace<K> {
    fn drop(&mut self) {
        // One that was displaced is another's already.
        if self.pool.held().remove(self.id).is_some() {
            self.pool.freed.notify_one();
        }
    }
}

impl<K: Ord + Hash + Clone> Holdings<K> {
    fn count(&self, path: &[K]) -> usize {
        self.groups.get(path).map_or(0, |group| group.count)
    }

    fn insert(&mut self, id: u64, holder: PlaceHolder<K>) {
        self.change(&holder, |places, weight| places + weight);
        if let Some(stale) = holder.stale_at() {
            self.stale.insert((stale, id));
        }
        if let Some(group) = self.groups.get_mut(&holder.path) {
            group.candidates.insert((holder.used, holder.since, id));
        }
        self.holders.insert(id, holder);
    }

    fn remove(&mut self, id: u64) -> Option<PlaceHolder<K>> {
        let holder = self.holders.remove(&id)?;
        if let Some(stale) = holder.stale_at() {
            self.stale.remove(&(stale, id));
        }
        if let Some(group) = self.groups.get_mut(&holder.path) {
            group.candidates.remove(&(holder.used, holder.since, id));
        }
        self.change(&holder, |places, weight| places - weight);
        Some(holder)
    }

    /// Counts in every group that a place is in, from the innermost outwards; a group without places is forgotten.
    fn change(&mut self, holder: &PlaceHolder<K>, counted: fn(usize, usize) -> usize) {
        let can_be_given_up = holder.used < PlaceUse::Protected;
        for depth in (0..=holder.path.len()).rev() {
            let Some((path, _)) = holder.path.split_at_checked(depth) else { continue };
            let group = self.groups.entry(path.to_vec()).or_default();
            let before = group.loose;
            group.count = counted(group.count, holder.weight);
            if can_be_given_up {
                group.loose = counted(group.loose, holder.weight);
            }
            let (left, now) = (group.count, group.loose);
            if left == 0 && depth > 0 {
                self.groups.remove(path);
            }
            if let Some((name, outer)) = path.split_last()
                && let Some(outer) = self.outer(outer, left > 0)
            {
                outer.inner.remove(&(before, name.clone()));
                if left > 0 {
                    outer.inner.insert((now, name.clone()));
                }
            }
        }
    }

    /// The group around one that has places has been there before it, or is made for it.
    fn outer(&mut self, path: &[K], needed: bool) -> Option<&mut Group<K>> {
        if needed && !self.groups.contains_key(path) {
            self.groups.insert(path.to_vec(), Group::default());
        }
        self.groups.get_mut(path)
    }

    /// Whose place a newcomer takes in a full pool, or where its outermost group is full.
    fn victim(&self, group: &[K], newcomer: &[K], weight: usize, now: Instant) -> Option<u64> {
        let largest = self.largest(group)?;
        let first = |path: &[K]| self.first(path);
        let holder = |id: &u64| self.holders.get(id);
        let parted = self.parted(newcomer, &largest);
        let gives_way = |id: &u64| {
            let (holder, shares) = (holder(id), parted.map(|(own, theirs)| (own + weight, theirs)));
            holder.zip(shares).is_some_and(|(holder, (own, theirs))| holder.gives_way(own, theirs, now))
        };
        if let Some(id) = first(&largest).filter(gives_way) {
            return Some(id);
        }
        let is_stale = |id: &u64| holder(id).is_some_and(|holder| holder.is_stale(now));
        let is_idle =
            |id: &u64| is_stale(id) && holder(id).is_some_and(|holder| holder.used == PlaceUse::Idle);
        let not_more = |id: &u64| {
            let within = holder(id).filter(|holder| holder.path.starts_with(group));
            let parted = within.and_then(|holder| self.parted(newcomer, &holder.path));
            parted.is_some_and(|(own, theirs)| own <= theirs)
        };
        let mut first_stale = self.stale.iter().take(LOOKED_AT).map(|(_, id)| *id);
        let own = first(newcomer).filter(is_idle);
        own.or_else(|| first(&largest).filter(is_idle))
            .or_else(|| first_stale.find(|id| is_stale(id) && not_more(id)))
    }

    /// Which place of an innermost group is given up first.
    fn first(&self, path: &[K]) -> Option<u64> {
        self.groups.get(path)?.candidates.first().map(|(.., id)| *id)
    }

    /// The innermost group in this one that is found by always following the group with the most places to give up.
    fn largest(&self, within: &[K]) -> Option<Vec<K>> {
        let mut path = within.to_vec();
        loop {
            let group = self.groups.get(&path)?;
            match group.inner.last() {
                Some((loose, name)) if *loose > 0 => path.push(name.clone()),
                Some(_) => return None,
                None => return Some(path).filter(|path| !path.is_empty()),
            }
        }
    }

    /// How many places two have, counted where their networks part; none if they never do.
    fn parted(&self, newcomer: &[K], other: &[K]) -> Option<(usize, usize)> {
        let depth = newcomer.iter().zip(other).position(|(own, theirs)| own != theirs)?;
        Some((self.count(newcomer.get(..=depth)?), self.count(other.get(..=depth)?)))
    }
}

impl<K> PlaceHolder<K> {
    /// When others may have it only because it has waited for its peer for so long.
    fn stale_at(&self) -> Option<Instant> {
        match self.used {
            PlaceUse::Idle => Some(self.since + STALE),
            PlaceUse::Handshake => Some(self.since + PAID_FOR),
            PlaceUse::Active | PlaceUse::Protected => None,
        }
    }

    fn is_stale(&self, now: Instant) -> bool {
        self.stale_at().is_some_and(|stale| stale <= now)
    }

    /// Whether it is given up for one whose group would hold this many places then, while its own holds that many.
    fn gives_way(&self, own: usize, theirs: usize, now: Instant) -> bool {
        match self.used {
            PlaceUse::Idle | PlaceUse::Active => own < theirs,
            PlaceUse::Handshake if !self.is_stale(now) => 8 * own < theirs,
            PlaceUse::Handshake => 2 * own < theirs,
            PlaceUse::Protected => false,
        }
    }
}

#[cfg(test)]
mod tests;
