//! How many of everything there may be at once. What strangers can hold is shared by their networks, what the known can hold by
//! their credentials; each kind has places of its own, so that none can use up those of another.

use crate::edge::answers::AnswerReader;
use crate::edge::authenticate::CredentialHolder;
use crate::edge::phase::SharedPlace;
use crate::edge::shares::{PlaceUse, PoolPlace, SharedPool};
use crate::edge::turns::{PlacesInTurn, Turn};
use lifecycle::names::Source;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// Connections whose handshake is not finished, and unauthenticated ones; an eighth of the descriptors at most.
const HANDSHAKES: usize = 8192;
const STRANGERS: usize = 4096;
/// Connections on which an API key was good; a sixteenth of the descriptors at most.
const KEYED: usize = 1024;
/// Bodies of requests that may be held at once, 64 KiB each: of strangers, of the known, and of one of these.
const STRANGERS_BODIES: usize = 1024;
const BODIES: usize = 2048;
const BODIES_EACH: usize = 64;
/// Requests at once whose bodies may be larger, 4 MiB at most.
const LARGE_BODIES: usize = 8;
/// Requests of one credential whose handlers are at work at once, with and without bodies.
const REQUESTS_EACH: usize = 64;
/// Bytes of large answers that are not sent: of strangers, of the known, and of one of these.
const STRANGERS_ANSWERS: usize = 64 * 1024 * 1024;
const ANSWERS: usize = 256 * 1024 * 1024;
const ANSWERS_EACH: usize = 64 * 1024 * 1024;
/// Lists without pages that are put together at once.
const LISTS: usize = 2;
/// Live streams of one node, with those that have not said Hello and those that were let go but whose peer has no room for
/// the end. There are never more than connections allow.
const STREAMS_EACH: usize = 256;
/// Event streams, in all and of one credential.
const EVENT_STREAMS: usize = 4096;
pub const EVENT_STREAMS_EACH: usize = 256;
/// How long to wait for a place.
const WAIT: Duration = Duration::from_secs(10);
/// How long an unauthenticated connection may wait for a place: its handshake is done, and would be done again if it were sent away
/// while thousands of machines boot at once.
const STRANGER_WAIT: Duration = Duration::from_secs(20);
/// How long a connection may wait for its handshake to begin.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(20);

pub struct Capacity {
    handshakes: Arc<SharedPool<Source>>,
    /// Connections that wait for a place among the handshakes.
    waiting: Arc<SharedPool<Source>>,
    strangers: Arc<SharedPool<Source>>,
    strangers_bodies: Arc<SharedPool<Source>>,
    keyed: Arc<SharedPool<CredentialHolder>>,
    bodies: Arc<SharedPool<CredentialHolder>>,
    large_bodies: Arc<Semaphore>,
    requests: Arc<SharedPool<CredentialHolder>>,
    strangers_answers: Arc<SharedPool<Source>>,
    answers: Arc<SharedPool<CredentialHolder>>,
    lists: Arc<PlacesInTurn<CredentialHolder>>,
    streams: Arc<SharedPool<CredentialHolder>>,
    event_streams: Arc<SharedPool<CredentialHolder>>,
    /// Connections with a client certificate: what the others leave of the descriptors.
    certificates: Arc<Semaphore>,
    /// So many of these places those who wait for a handshake leave free.
    certificates_kept: usize,
}

/// A descriptor that connections with a client certificate do not need now.
pub struct WaitingPlace {
    pub place: PoolPlace<Source>,
    _descriptor: OwnedSemaphorePermit,
}

impl Capacity {
    /// Shares out so many descriptors.
    pub fn new(descriptors: usize) -> Self {
        let handshakes = HANDSHAKES.min(descriptors / 8);
        let strangers = STRANGERS.min(descriptors / 8);
        let keyed = KEYED.min(descriptors / 16);
        let certificates = descriptors - handshakes - strangers - keyed;
        Self {
            handshakes: SharedPool::new(handshakes, usize::MAX),
            waiting: SharedPool::new(certificates / 2, usize::MAX),
            strangers: SharedPool::new(strangers, usize::MAX),
            strangers_bodies: SharedPool::new(STRANGERS_BODIES, usize::MAX),
            keyed: SharedPool::new(keyed, usize::MAX),
            bodies: SharedPool::new(BODIES, BODIES_EACH),
            large_bodies: Arc::new(Semaphore::new(LARGE_BODIES)),
            requests: SharedPool::new(usize::MAX, REQUESTS_EACH),
            strangers_answers: SharedPool::new(STRANGERS_ANSWERS, usize::MAX),
            answers: SharedPool::new(ANSWERS, ANSWERS_EACH),
            lists: PlacesInTurn::new(LISTS, usize::MAX),
            streams: SharedPool::new(usize::MAX, STREAMS_EACH),
            event_streams: SharedPool::new(EVENT_STREAMS, EVENT_STREAMS_EACH),
            certificates: Arc::new(Semaphore::new(certificates.min(Semaphore::MAX_PERMITS))),
            certificates_kept: certificates / 2,
        }
    }

    /// A place for a handshake now. None while others of the same network wait for one: they were here before.
    pub fn handshake(&self, source: Source) -> Option<PoolPlace<Source>> {
        let networks = source.networks();
        let first = networks.get(..1).unwrap_or_default();
        if self.waiting.holds(first) {
            return None;
        }
        self.handshakes.enter(&networks, PlaceUse::Idle, CancellationToken::new())
    }

    /// A place to wait for one. These are lent by the connections with a client certificate, half of whose places stay free
    /// for them: a burst from one address is late, and nobody's place is taken for it.
    pub fn waiting(&self, source: Source) -> Option<WaitingPlace> {
        if self.certificates.available_permits() <= self.certificates_kept {
            return None;
        }
        let place = self.waiting.enter(&source.networks(), PlaceUse::Idle, CancellationToken::new())?;
        let descriptor = self.certificates.clone().try_acquire_owned().ok()?;
        Some(WaitingPlace { place, _descriptor: descriptor })
    }

    /// A place for a handshake, for one that waits; none in time.
    pub async fn late_handshake(&self, source: Source) -> Option<PoolPlace<Source>> {
        let networks = source.networks();
        self.handshakes.wait(&networks, PlaceUse::Idle, CancellationToken::new(), HANDSHAKE_WAIT).await
    }

    /// A place for an unauthenticated connection, or none in time.
    pub async fn stranger(&self, source: Source, displaced: CancellationToken) -> Option<PoolPlace<Source>> {
        self.strangers.wait(&source.networks(), PlaceUse::Idle, displaced, STRANGER_WAIT).await
    }

    /// A place for a connection with a client certificate, or none in time.
    pub async fn certificate(&self) -> Option<OwnedSemaphorePermit> {
        tokio::time::timeout(WAIT, self.certificates.clone().acquire_owned()).await.ok()?.ok()
    }

    /// The same for one that was a stranger until its certificate was on record.
    pub fn certificate_now(&self) -> Option<OwnedSemaphorePermit> {
        self.certificates.clone().try_acquire_owned().ok()
    }

    /// A place for a connection on which this API key was good; without one it stays among the strangers.
    pub fn keyed(
        &self,
        holder: &CredentialHolder,
        displaced: CancellationToken,
    ) -> Option<PoolPlace<CredentialHolder>> {
        self.keyed.enter(std::slice::from_ref(holder), PlaceUse::Active, displaced)
    }

    /// A place for the body of a stranger's request, or none in time.
    pub async fn strangers_body(&self, source: Source) -> Option<PoolPlace<Source>> {
        let displaced = CancellationToken::new();
        self.strangers_bodies.wait(&source.networks(), PlaceUse::Idle, displaced, WAIT).await
    }

    /// A place for the body of a request with a credential, or none in time.
    pub async fn body(&self, holder: &CredentialHolder) -> Option<PoolPlace<CredentialHolder>> {
        let path = std::slice::from_ref(holder);
        self.bodies.wait(path, PlaceUse::Idle, CancellationToken::new(), WAIT).await
    }

    /// A place for a request of an operator whose body may be large, or none in time.
    pub async fn large_body(&self) -> Option<OwnedSemaphorePermit> {
        tokio::time::timeout(WAIT, self.large_bodies.clone().acquire_owned()).await.ok()?.ok()
    }

    /// A place for a request with a credential while its handler is at work, or none in time.
    pub async fn request(&self, holder: &CredentialHolder) -> Option<PoolPlace<CredentialHolder>> {
        let path = std::slice::from_ref(holder);
        self.requests.wait(path, PlaceUse::Protected, CancellationToken::new(), WAIT).await
    }

    /// A place for so many bytes of an answer until they are sent. One that is larger than a share takes the share. What is not
    /// read is given up for others when there is no room.
    pub fn answer(
        &self,
        reader: AnswerReader<'_>,
        bytes: usize,
        displaced: CancellationToken,
    ) -> Option<SharedPlace> {
        let bytes = bytes.min(ANSWERS_EACH);
        match reader.holder {
            Some(holder) => {
                let path = std::slice::from_ref(holder);
                let place = self.answers.enter_weighed(path, bytes, PlaceUse::Idle, displaced);
                place.map(SharedPlace::OfCredential)
            }
            None => {
                let path = reader.source.networks();
                let place = self.strangers_answers.enter_weighed(&path, bytes, PlaceUse::Idle, displaced);
                place.map(SharedPlace::OfNetwork)
            }
        }
    }

    /// A turn to put a list without pages together, or none in time. Whoever leaves half of its share unread gets none.
    pub async fn list(&self, holder: &CredentialHolder) -> Option<Turn<CredentialHolder>> {
        if self.answers.held_by(std::slice::from_ref(holder)) > ANSWERS_EACH / 2 {
            return None;
        }
        self.lists.wait(holder, WAIT).await
    }

    /// A place for a node's live stream.
    pub fn stream(&self, holder: &CredentialHolder) -> Option<PoolPlace<CredentialHolder>> {
        let path = std::slice::from_ref(holder);
        self.streams.enter(path, PlaceUse::Protected, CancellationToken::new())
    }

    /// A place for an event stream.
    pub fn event_stream(&self, holder: &CredentialHolder) -> Option<PoolPlace<CredentialHolder>> {
        let path = std::slice::from_ref(holder);
        self.event_streams.enter(path, PlaceUse::Protected, CancellationToken::new())
    }
}
