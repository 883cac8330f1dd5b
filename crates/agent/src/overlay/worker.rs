//! Who owns the interface: a thread with a runtime of its own, so that packets wait for nothing else that the agent does. It brings
//! the interface to what is wanted, looks at it every few seconds, and tries again what failed.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pki::wireguard::WireguardPublic;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::contacts::{Contacts, RECENT};
use super::difference::{PeerChanges, drift};
use super::netlink::Netlink;
use super::peer_set::{OwnFamilies, PeerSet};
use super::reason::Unavailable;
use super::{Backend, FoundPeer, InterfaceSpec, OverlayBackend, PeerSpec};
use crate::run::rate_limit::RateLimit;

/// How long what failed is left alone.
const RETRY: Duration = Duration::from_secs(10);
/// How often the interface is compared with what is wanted.
const LOOK: Duration = Duration::from_secs(5);
/// Handshakes that nobody asked for by a packet: so many at once, and one more each time.
const HANDSHAKES: u32 = 64;
const HANDSHAKE_EVERY: Duration = Duration::from_millis(20);
const THREADS: usize = 2;

/// What is wanted, changed by the daemon under the lock.
#[derive(Default)]
pub struct WantedOverlay {
    /// Nothing: no interface.
    pub interface: Option<InterfaceSpec>,
    pub peers: PeerSet,
    pub families: OwnFamilies,
    pub keepalive: Option<u16>,
    /// Peers that did not answer at the first of their addresses.
    turned: BTreeSet<Arc<str>>,
    dirty: Dirty,
    moved: bool,
    stop: bool,
}

#[derive(Default)]
enum Dirty {
    #[default]
    Nothing,
    Some(BTreeSet<Arc<str>>),
    All,
}

impl WantedOverlay {
    /// These peers came, have changed or are gone.
    pub fn changed(&mut self, nodes: BTreeSet<Arc<str>>) {
        match &mut self.dirty {
            Dirty::Nothing => self.dirty = Dirty::Some(nodes),
            Dirty::Some(known) => known.extend(nodes),
            Dirty::All => {}
        }
    }

    pub fn all_changed(&mut self) {
        self.dirty = Dirty::All;
    }

    /// This host is elsewhere: its peers hear of it at once by a handshake.
    pub fn moved(&mut self) {
        self.moved = true;
        // From here the first address may answer.
        let turned = std::mem::take(&mut self.turned);
        self.changed(turned);
    }

    /// From here on this peer is tried at its other address, if it has one.
    fn turn(&mut self, node: &Arc<str>) -> bool {
        let address = |turned| self.peers.get(node).and_then(|peer| peer.endpoint(self.families, turned));
        let turns = address(true) != address(false);
        if turns && !self.turned.remove(node) {
            self.turned.insert(node.clone());
        }
        turns
    }

    fn spec(&self, node: &str) -> Option<PeerSpec> {
        let peer = self.peers.get(node)?;
        Some(PeerSpec {
            key: peer.key,
            address: peer.address,
            endpoint: peer.endpoint(self.families, self.turned.contains(node)),
            keepalive: self.keepalive,
        })
    }
}

impl Default for OwnFamilies {
    fn default() -> Self {
        Self { ipv4: true, ipv6: true }
    }
}

/// The overlay as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OverlayCondition {
    /// The kind of the interface, if there is one.
    pub up: Option<&'static str>,
    /// Why not.
    pub unavailable: Option<Unavailable>,
    /// The revision that is applied.
    pub revision: u64,
    pub peers: usize,
    /// How many of them have no address in a family that this host has.
    pub unreachable: usize,
    /// To how many packets go that are not answered.
    pub unanswered: usize,
    pub differences: usize,
    pub oldest_handshake: Option<Duration>,
    pub recent_handshakes: usize,
    pub received_bytes: u64,
    pub sent_bytes: u64,
}

struct WorkerShare {
    wanted: Mutex<WantedOverlay>,
    changed: Notify,
    condition: Mutex<OverlayCondition>,
    reported: Notify,
}

pub struct OverlayWorker {
    shared: Arc<WorkerShare>,
    thread: Option<JoinHandle<()>>,
}

impl OverlayWorker {
    pub fn start(backend: Backend) -> Result<Self, Unavailable> {
        let failed = |error: std::io::Error| Unavailable::of_io("the overlay's thread", &error);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("overlay-packets")
            .enable_all()
            .build()
            .map_err(failed)?;
        let shared = Arc::new(WorkerShare {
            wanted: Mutex::default(),
            changed: Notify::new(),
            condition: Mutex::default(),
            reported: Notify::new(),
        });
        let own = shared.clone();
        let thread = thread::Builder::new().name("overlay".to_owned()).spawn(move || {
            // As a task of the runtime, so that it does not sit beside its threads.
            runtime.block_on(async { _ = runtime.spawn(run(own, backend)).await });
            runtime.shutdown_background();
        });
        Ok(Self { shared, thread: Some(thread.map_err(failed)?) })
    }

    /// Changes what is wanted.
    pub fn change<T>(&self, change: impl FnOnce(&mut WantedOverlay) -> T) -> T {
        let changed = change(&mut lock(&self.shared.wanted));
        self.shared.changed.notify_one();
        changed
    }

    /// Reads what is wanted.
    pub fn wanted<T>(&self, read: impl FnOnce(&WantedOverlay) -> T) -> T {
        read(&lock(&self.shared.wanted))
    }

    pub fn condition(&self) -> OverlayCondition {
        lock(&self.shared.condition).clone()
    }

    /// The overlay is another than when this was last asked.
    pub async fn reported(&self) {
        self.shared.reported.notified().await;
    }
}

/// Takes the interface down.
impl Drop for OverlayWorker {
    fn drop(&mut self) {
        self.change(|wanted| wanted.stop = true);
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct WorkerLoop {
    backend: Backend,
    netlink: Netlink,
    overlay: Option<OverlayBackend>,
    /// As it was last tried.
    interface: Option<InterfaceSpec>,
    applied: BTreeMap<Arc<str>, PeerSpec>,
    queue: VecDeque<WireguardPublic>,
    pace: RateLimit,
    /// Those with which there is a session, as of the last look.
    recent: HashSet<WireguardPublic>,
    contacts: Contacts,
    up_since: Instant,
    retry_at: Option<Instant>,
    look_at: Instant,
    condition: OverlayCondition,
}

/// What has to be done now.
struct Step {
    interface: Option<InterfaceSpec>,
    dirty: Dirty,
    moved: bool,
    stop: bool,
}

async fn run(shared: Arc<WorkerShare>, backend: Backend) {
    let netlink = match Netlink::route() {
        Ok(netlink) => netlink,
        Err(error) => {
            let unavailable = Some(Unavailable::of_io("netlink", &error));
            *lock(&shared.condition) = OverlayCondition { unavailable, ..OverlayCondition::default() };
            shared.reported.notify_one();
            return;
        }
    };
    let now = Instant::now();
    let mut worker = WorkerLoop {
        backend,
        netlink,
        overlay: None,
        interface: None,
        applied: BTreeMap::new(),
        queue: VecDeque::new(),
        pace: RateLimit::new(HANDSHAKES, HANDSHAKE_EVERY, now),
        recent: HashSet::new(),
        contacts: Contacts::default(),
        up_since: now,
        retry_at: None,
        look_at: now + LOOK,
        condition: OverlayCondition::default(),
    };
    loop {
        let step = {
            let mut wanted = lock(&shared.wanted);
            Step {
                interface: wanted.interface.clone(),
                dirty: std::mem::take(&mut wanted.dirty),
                moved: std::mem::take(&mut wanted.moved),
                stop: wanted.stop,
            }
        };
        if step.stop {
            worker.take_down().await;
            return;
        }
        worker.converge(step, &shared).await;
        worker.look(&shared).await;
        worker.greet();
        let reported = {
            let mut condition = lock(&shared.condition);
            let is_new = *condition != worker.condition;
            condition.clone_from(&worker.condition);
            is_new
        };
        if reported {
            shared.reported.notify_one();
        }
        tokio::select! {
            () = shared.changed.notified() => {}
            () = sleep_until(worker.wake()) => {}
        }
    }
}

impl WorkerLoop {
    fn wake(&self) -> Instant {
        let now = Instant::now();
        let greeting = (!self.queue.is_empty()).then(|| now + self.pace.wait(now));
        let looking = self.overlay.as_ref().map(|_| self.look_at);
        [greeting, looking, self.retry_at].into_iter().flatten().fold(now + RETRY, Instant::min)
    }

    async fn converge(&mut self, step: Step, shared: &WorkerShare) {
        let Some(spec) = step.interface else {
            self.take_down().await;
            self.condition = OverlayCondition::default();
            return;
        };
        if let Err(unavailable) = self.interface(&spec).await {
            return self.failed(unavailable).await;
        }
        if self.overlay.is_none() {
            return;
        }
        let (changes, revision) = {
            let wanted = lock(&shared.wanted);
            (self.changes(&step.dirty, &wanted), wanted.peers.revision())
        };
        if let Err(unavailable) = self.apply(&changes).await {
            return self.failed(unavailable).await;
        }
        self.condition.revision = revision;
        self.condition.peers = self.applied.len();
        self.condition.unreachable = self.applied.values().filter(|spec| spec.endpoint.is_none()).count();
        if step.moved {
            if let Some(overlay) = &mut self.overlay
                && let Err(unavailable) = overlay.forget_sessions(&self.recent).await
            {
                return self.failed(unavailable).await;
            }
            self.greet_all();
        }
    }

    /// There is the interface that is wanted, unless it is not time yet to try again.
    async fn interface(&mut self, spec: &InterfaceSpec) -> Result<(), Unavailable> {
        let before = self.interface.replace(spec.clone());
        let same = before.as_ref() == Some(spec);
        if let Some(overlay) = &mut self.overlay {
            if same {
                return Ok(());
            }
            let other_key = before.map(|before| InterfaceSpec { key: spec.key.clone(), ..before });
            if other_key.as_ref() == Some(spec) {
                overlay.set_key(&spec.key).await?;
                self.greet_all();
                tracing::info!(interface = spec.name, "the overlay has another key");
                return Ok(());
            }
            self.take_down().await;
            self.interface = Some(spec.clone());
        }
        if same && self.retry_at.is_some_and(|at| Instant::now() < at) {
            return Ok(());
        }
        let overlay = OverlayBackend::start(self.backend, spec, &self.netlink).await?;
        tracing::info!(interface = spec.name, address = %spec.address, backend = overlay.kind(), "the overlay is up");
        self.condition = OverlayCondition { up: Some(overlay.kind()), ..OverlayCondition::default() };
        (self.overlay, self.retry_at) = (Some(overlay), None);
        self.applied.clear();
        self.up_since = Instant::now();
        self.look_at = self.up_since + LOOK;
        Ok(())
    }

    /// What of the peers has to be changed.
    fn changes(&self, dirty: &Dirty, wanted: &WantedOverlay) -> Changes {
        let mut changes = Changes::default();
        let mut one = |node: &Arc<str>| {
            let spec = wanted.spec(node);
            changes.peers.one(self.applied.get(node), spec);
            changes.nodes.push((node.clone(), spec));
        };
        // A new interface has none of them.
        let is_new = self.applied.is_empty() && wanted.peers.count() > 0;
        match dirty {
            Dirty::Some(nodes) if !is_new => nodes.iter().for_each(&mut one),
            Dirty::Nothing if !is_new => {}
            Dirty::Nothing | Dirty::Some(_) | Dirty::All => {
                let gone = self.applied.keys().filter(|node| wanted.peers.get(node).is_none());
                gone.for_each(&mut one);
                wanted.peers.iter().for_each(|(node, _)| one(node));
            }
        }
        changes
    }

    async fn apply(&mut self, changes: &Changes) -> Result<(), Unavailable> {
        let Some(overlay) = self.overlay.as_mut().filter(|_| !changes.peers.is_empty()) else {
            return Ok(());
        };
        overlay.apply(&changes.peers).await?;
        for (node, spec) in &changes.nodes {
            match spec {
                Some(spec) => _ = self.applied.insert(node.clone(), *spec),
                None => _ = self.applied.remove(node),
            }
        }
        let gone: HashSet<_> = changes.peers.remove.iter().collect();
        self.queue.retain(|key| !gone.contains(key));
        // The other side may hold on to a session of before, or have tried while this one knew nothing of it.
        self.queue.extend(changes.peers.add.iter().chain(&changes.peers.update).filter_map(reachable));
        Ok(())
    }

    /// Compares the interface with what is wanted, if it is time.
    async fn look(&mut self, shared: &WorkerShare) {
        let now = Instant::now();
        let (Some(overlay), Some(spec)) = (&self.overlay, &self.interface) else { return };
        if now < self.look_at {
            return;
        }
        self.look_at = now + LOOK;
        if !overlay.is_there(spec, &self.netlink) {
            if now.saturating_duration_since(self.up_since) < RETRY {
                return self.failed(Unavailable::failed("the interface is gone")).await;
            }
            tracing::warn!("the overlay's interface was removed by somebody else; made again");
            self.take_down().await;
            return shared.changed.notify_one();
        }
        let mut found = match overlay.peers().await {
            Ok(found) => found,
            Err(unavailable) => return self.failed(unavailable).await,
        };
        let seen = self.contacts.look(&mut found, now);
        self.figures(&found);
        self.condition.unanswered = seen.unanswered;
        self.turn(&seen.turn, shared);
        let drifted = drift(&self.applied, &found);
        self.condition.differences = 0;
        if drifted.is_empty() {
            return;
        }
        tracing::warn!(
            differences = drifted.len(),
            "the overlay's interface was changed by somebody else; mended"
        );
        if let Some(overlay) = &mut self.overlay
            && let Err(unavailable) = overlay.apply(&drifted).await
        {
            self.condition.differences = drifted.len();
            tracing::warn!(detail = unavailable.detail, "the overlay's interface could not be mended");
        }
        shared.changed.notify_one();
    }

    /// Tries these at their other address.
    fn turn(&self, keys: &[WireguardPublic], shared: &WorkerShare) {
        if keys.is_empty() {
            return;
        }
        let keys: HashSet<&WireguardPublic> = keys.iter().collect();
        let nodes = self.applied.iter().filter(|(_, spec)| keys.contains(&spec.key)).map(|(node, _)| node);
        let mut wanted = lock(&shared.wanted);
        let turned: BTreeSet<Arc<str>> = nodes.filter(|node| wanted.turn(node)).cloned().collect();
        if !turned.is_empty() {
            wanted.changed(turned);
            shared.changed.notify_one();
        }
    }

    fn figures(&mut self, found: &[FoundPeer]) {
        let ages = || found.iter().filter_map(|peer| Some((peer.key, peer.last_handshake?)));
        self.recent = ages().filter(|(_, age)| *age <= RECENT).map(|(key, _)| key).collect();
        self.condition.peers = found.len();
        self.condition.recent_handshakes = self.recent.len();
        self.condition.oldest_handshake = ages().map(|(_, age)| age).max();
        self.condition.received_bytes = found.iter().map(|peer| peer.received_bytes).sum();
        self.condition.sent_bytes = found.iter().map(|peer| peer.sent_bytes).sum();
    }

    /// Those with which there are sessions first.
    fn greet_all(&mut self) {
        let mut keys: Vec<WireguardPublic> = self.applied.values().filter_map(reachable).collect();
        keys.sort_by_key(|key| !self.recent.contains(key));
        self.queue = keys.into();
    }

    fn greet(&mut self) {
        let Some(overlay) = &mut self.overlay else { return self.queue.clear() };
        let now = Instant::now();
        while self.pace.wait(now).is_zero()
            && let Some(key) = self.queue.pop_front()
        {
            overlay.handshake(key);
            self.pace.count(now);
        }
    }

    async fn failed(&mut self, unavailable: Unavailable) {
        let interface = self.interface.take();
        self.take_down().await;
        let word = unavailable.reason.as_str();
        let known = self.condition.unavailable.as_ref() == Some(&unavailable);
        if !known {
            tracing::warn!(
                reason = word,
                "the overlay is unavailable: {}; remedy: {}",
                unavailable.detail,
                unavailable.remedy()
            );
        }
        self.condition.unavailable = Some(unavailable);
        (self.interface, self.retry_at) = (interface, Some(Instant::now() + RETRY));
    }

    async fn take_down(&mut self) {
        if let Some(overlay) = self.overlay.take() {
            overlay.stop(&self.netlink).await;
            tracing::info!("the overlay is down");
        }
        let unavailable = self.condition.unavailable.take();
        self.condition = OverlayCondition { unavailable, ..OverlayCondition::default() };
        self.applied.clear();
        self.queue.clear();
        (self.interface, self.retry_at) = (None, None);
    }
}

#[derive(Default)]
struct Changes {
    peers: PeerChanges,
    /// By node, as each is wanted.
    nodes: Vec<(Arc<str>, Option<PeerSpec>)>,
}

fn reachable(spec: &PeerSpec) -> Option<WireguardPublic> {
    spec.endpoint.map(|_| spec.key)
}
