//! What a connection and its requests are doing, for whoever ends those that wait for too long: hyper has no time-out of its own
//! for HTTP/2.

use crate::edge::authenticate::CredentialHolder;
use crate::edge::capacity::{Capacity, LARGER_BODY};
use crate::edge::sharer::Sharer;
use crate::edge::shares::{PlaceUse, PoolPlace};
use lifecycle::names::Source;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// A place that is shared by networks or by owners of credentials.
pub enum SharedPlace {
    OfNetwork(PoolPlace<Source>),
    OfCredential(PoolPlace<Sharer>),
}

impl SharedPlace {
    fn set(&self, used: PlaceUse) {
        match self {
            SharedPlace::OfNetwork(place) => place.set(used),
            SharedPlace::OfCredential(place) => place.set(used),
        }
    }

    /// Of a body that is no longer small.
    fn enlarge(&self) {
        match self {
            SharedPlace::OfNetwork(place) => place.enlarge(LARGER_BODY),
            SharedPlace::OfCredential(place) => place.enlarge(LARGER_BODY),
        }
    }

    /// Cancelled when the place was given to another.
    pub fn displaced(&self) -> &CancellationToken {
        match self {
            SharedPlace::OfNetwork(place) => &place.displaced,
            SharedPlace::OfCredential(place) => &place.displaced,
        }
    }

    pub fn is_known(&self) -> bool {
        match self {
            SharedPlace::OfNetwork(_) => false,
            SharedPlace::OfCredential(_) => true,
        }
    }
}

/// What a connection is doing.
pub struct ConnectionWatch {
    /// Requests whose answers are not complete.
    pub open: AtomicUsize,
    /// Requests whose handlers are at work.
    pub working: AtomicUsize,
    /// Requests that are here as a whole and whose handlers are at work.
    received: AtomicUsize,
    /// Rises with every request, and with every piece of an answer that the peer takes.
    pub progress: AtomicU64,
    /// Whether someone known has asked something here.
    pub known: AtomicBool,
    /// Told when an answer ends the connection.
    pub enough: Notify,
    /// It may be given to another, who cancels. None on the operator socket.
    place: Option<Mutex<SharedPlace>>,
    pub displaced: CancellationToken,
}

impl ConnectionWatch {
    pub fn new(place: Option<SharedPlace>) -> Arc<Self> {
        let known = place.as_ref().is_none_or(SharedPlace::is_known);
        let displaced = place.as_ref().map(|place| place.displaced().clone()).unwrap_or_default();
        Arc::new(Self {
            open: AtomicUsize::new(0),
            working: AtomicUsize::new(0),
            received: AtomicUsize::new(0),
            progress: AtomicU64::new(0),
            known: AtomicBool::new(known),
            enough: Notify::new(),
            place: place.map(Mutex::new),
            displaced,
        })
    }

    /// Notes a good credential: a connection leaves the strangers' places with it.
    pub fn known(&self, capacity: &Capacity, holder: &CredentialHolder, sharers: &[Sharer]) {
        let first = !self.known.swap(true, Ordering::Relaxed);
        let Some(place) = self.place.as_ref().filter(|_| first) else { return };
        if let Some(own) = capacity.known(holder, sharers, self.displaced.clone()) {
            *place.lock().unwrap_or_else(PoisonError::into_inner) = SharedPlace::OfCredential(own);
        }
        self.settle();
    }

    /// Says what the place is used for now.
    fn settle(&self) {
        let Some(place) = &self.place else { return };
        // Counted while it is locked, so that the last to come says how it is.
        let place = place.lock().unwrap_or_else(PoisonError::into_inner);
        place.set(match self.received.load(Ordering::SeqCst) {
            0 if self.open.load(Ordering::SeqCst) == 0 => PlaceUse::Idle,
            0 => PlaceUse::Active,
            _ => PlaceUse::Protected,
        });
    }
}

/// Counts a request as open until its answer is complete.
pub struct OpenRequest(pub Arc<ConnectionWatch>);

impl OpenRequest {
    pub fn new(watch: &Arc<ConnectionWatch>) -> Self {
        watch.open.fetch_add(1, Ordering::SeqCst);
        watch.progress.fetch_add(1, Ordering::Relaxed);
        watch.settle();
        Self(watch.clone())
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
        self.0.settle();
    }
}

/// Counts a handler as at work, also when its request is taken back half-way.
pub struct Working(Arc<ConnectionWatch>);

impl Working {
    pub fn new(watch: &Arc<ConnectionWatch>) -> Self {
        watch.working.fetch_add(1, Ordering::Relaxed);
        Self(watch.clone())
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.working.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How far a request is. While it comes in, its places may be given to others; once it is here, and for as long as its live stream
/// lasts, they may not.
pub struct RequestPhase {
    watch: Arc<ConnectionWatch>,
    /// For its body.
    place: Option<SharedPlace>,
    /// The same, among the few large ones.
    large: Option<SharedPlace>,
    received: AtomicBool,
    /// Its body came too slowly, and what was made of it is not the caller's fault.
    pub too_slow: AtomicBool,
}

impl RequestPhase {
    pub fn new(
        watch: &Arc<ConnectionWatch>,
        place: Option<SharedPlace>,
        large: Option<SharedPlace>,
    ) -> Arc<Self> {
        let (received, too_slow) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { watch: watch.clone(), place, large, received, too_slow })
    }

    /// More of its body is here than a small one has.
    pub fn larger(&self) {
        if let Some(place) = &self.place {
            place.enlarge();
        }
    }

    /// Ends when one of its places was given to another.
    pub async fn displaced(&self) {
        tokio::select! {
            () = given_up(&self.place) => {}
            () = given_up(&self.large) => {}
        }
    }

    /// All of it is here: the handler is at work.
    pub fn received(&self) {
        if self.received.swap(true, Ordering::SeqCst) {
            return;
        }
        self.place.iter().chain(&self.large).for_each(|place| place.set(PlaceUse::Protected));
        self.watch.received.fetch_add(1, Ordering::SeqCst);
        self.watch.settle();
    }
}

async fn given_up(place: &Option<SharedPlace>) {
    match place {
        Some(place) => place.displaced().cancelled().await,
        None => std::future::pending().await,
    }
}

impl Drop for RequestPhase {
    fn drop(&mut self) {
        if *self.received.get_mut() {
            self.watch.received.fetch_sub(1, Ordering::SeqCst);
            self.watch.settle();
        }
    }
}
