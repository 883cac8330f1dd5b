//! How many of everything there may be at once. What strangers can hold is shared by their networks, what the known can hold by
//! their credentials; each kind has places of its own, so that none can use up those of another.

use crate::edge::authenticate::CredentialHolder;
use crate::edge::shares::{PlaceUse, PoolPlace, SharedPool};
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
/// Live streams of one node, with those that have not said Hello. There are never more than connections allow.
const STREAMS_EACH: usize = 8;
/// Event streams, in all and of one credential.
const EVENT_STREAMS: usize = 4096;
pub const EVENT_STREAMS_EACH: usize = 256;
/// How long to wait for a place.
const WAIT: Duration = Duration::from_secs(10);

pub struct Capacity {
    pub handshakes: Arc<SharedPool<Source>>,
    pub strangers: Arc<SharedPool<Source>>,
    strangers_bodies: Arc<SharedPool<Source>>,
    keyed: Arc<SharedPool<CredentialHolder>>,
    bodies: Arc<SharedPool<CredentialHolder>>,
    streams: Arc<SharedPool<CredentialHolder>>,
    event_streams: Arc<SharedPool<CredentialHolder>>,
    /// Connections with a client certificate: what the others leave of the descriptors.
    certificates: Arc<Semaphore>,
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
            strangers: SharedPool::new(strangers, usize::MAX),
            strangers_bodies: SharedPool::new(STRANGERS_BODIES, usize::MAX),
            keyed: SharedPool::new(keyed, usize::MAX),
            bodies: SharedPool::new(BODIES, BODIES_EACH),
            streams: SharedPool::new(usize::MAX, STREAMS_EACH),
            event_streams: SharedPool::new(EVENT_STREAMS, EVENT_STREAMS_EACH),
            certificates: Arc::new(Semaphore::new(certificates.min(Semaphore::MAX_PERMITS))),
        }
    }

    /// A place for an unauthenticated connection, or none in time.
    pub async fn stranger(&self, source: Source, displaced: CancellationToken) -> Option<PoolPlace<Source>> {
        self.strangers.wait(&source.networks(), PlaceUse::Idle, displaced, WAIT).await
    }

    /// A place for a connection with a client certificate, or none in time.
    pub async fn certificate(&self) -> Option<OwnedSemaphorePermit> {
        tokio::time::timeout(WAIT, self.certificates.clone().acquire_owned()).await.ok()?.ok()
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
