//! How many of everything there may be at once. What strangers can hold is shared by their networks, what the known can hold by
//! their owners; each kind has places of its own, so that none can use up those of another.
//!
//! A connection is an arrival until its handshake begins, and costs its socket alone. Then it is unauthenticated, with one place for
//! its handshake and for what it asks after that, so that nobody's handshake is paid for who has no place afterwards. With a good
//! certificate or API key it has a place of the known.

use crate::edge::answers::AnswerReader;
use crate::edge::authenticate::CredentialHolder;
use crate::edge::handshake_turns::{HandshakeTurn, HandshakeTurns};
use crate::edge::phase::SharedPlace;
use crate::edge::sharer::Sharer;
use crate::edge::shares::{PlaceUse, PoolPlace, SharedPool};
use crate::edge::turns::{PlacesInTurn, Turn};
use lifecycle::names::Source;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Connections whose handshake has begun and on which nobody known has asked anything; a quarter of the descriptors at most.
const UNAUTHENTICATED: usize = 8192;
/// Connections on which an API key was good; a sixteenth of the descriptors at most.
const KEYED: usize = 1024;
/// Connections of one owner of certificates, over all of them.
const CERTIFICATES_EACH: usize = 64;
/// Bodies of requests that may be held at once, in pieces of 8 KiB: of strangers, of the known, and of one of these. A body of up to
/// 8 KiB counts as one, which is what an enrollment takes; a larger one counts as 64 KiB.
const STRANGERS_BODIES: usize = 8192;
const BODIES: usize = 16384;
const BODIES_EACH: usize = 512;
pub const LARGER_BODY: usize = 8;
pub const SMALL_BODY: u64 = 8 * 1024;
/// Requests at once whose bodies may be larger, 4 MiB at most.
const LARGE_BODIES: usize = 8;
/// Those of one credential: another has room while it sends slowly.
const LARGE_BODIES_EACH: usize = 2;
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
/// How long a connection may wait for its handshake: thousands of machines that boot at once are late, and not sent away.
const HANDSHAKE_WAIT: Duration = Duration::from_secs(25);

pub struct Capacity {
    /// Connections whose handshake has not begun.
    arrivals: Arc<SharedPool<Source>>,
    turns: Arc<HandshakeTurns>,
    unauthenticated: Arc<SharedPool<Source>>,
    strangers_bodies: Arc<SharedPool<Source>>,
    keyed: Arc<SharedPool<Sharer>>,
    bodies: Arc<SharedPool<Sharer>>,
    large_bodies: Arc<SharedPool<Sharer>>,
    requests: Arc<SharedPool<CredentialHolder>>,
    strangers_answers: Arc<SharedPool<Source>>,
    answers: Arc<SharedPool<Sharer>>,
    lists: Arc<PlacesInTurn<CredentialHolder>>,
    streams: Arc<SharedPool<CredentialHolder>>,
    event_streams: Arc<SharedPool<Sharer>>,
    /// Connections with a client certificate.
    certificates: Arc<SharedPool<Sharer>>,
    /// Descriptors of arrivals, of the unauthenticated and of connections with a client certificate together.
    lent: usize,
}

impl Capacity {
    /// Shares out so many descriptors.
    pub fn new(descriptors: usize) -> Self {
        let unauthenticated = UNAUTHENTICATED.min(descriptors / 4);
        let keyed = KEYED.min(descriptors / 16);
        let lent = descriptors - keyed;
        let of_certificates = lent - unauthenticated;
        Self {
            arrivals: SharedPool::new(lent, usize::MAX),
            turns: Arc::default(),
            unauthenticated: SharedPool::new(unauthenticated, usize::MAX),
            strangers_bodies: SharedPool::new(STRANGERS_BODIES, usize::MAX),
            keyed: SharedPool::new(keyed, usize::MAX),
            bodies: SharedPool::new(BODIES, BODIES_EACH),
            large_bodies: SharedPool::new(LARGE_BODIES, LARGE_BODIES_EACH),
            requests: SharedPool::new(usize::MAX, REQUESTS_EACH),
            strangers_answers: SharedPool::new(STRANGERS_ANSWERS, usize::MAX),
            answers: SharedPool::new(ANSWERS, ANSWERS_EACH),
            lists: PlacesInTurn::new(LISTS, usize::MAX),
            streams: SharedPool::new(usize::MAX, STREAMS_EACH),
            event_streams: SharedPool::new(EVENT_STREAMS, EVENT_STREAMS_EACH),
            // A sixteenth stays with the arrivals, so that there is always a way in.
            certificates: SharedPool::replacing(
                of_certificates - of_certificates / 16,
                CERTIFICATES_EACH,
                of_certificates / 8 * 7,
            ),
            lent,
        }
    }

    /// A place for a connection that was accepted, among those that the others do not need now: thousands of machines that boot at
    /// once wait here. In a full pool the network with most gives way; none if that is the newcomer's own.
    pub fn arrival(&self, source: Source) -> Option<PoolPlace<Source>> {
        let left = self.lent.saturating_sub(self.certificates.taken() + self.unauthenticated.taken());
        self.arrivals.enter_among(left, &source.networks(), PlaceUse::Idle, CancellationToken::new())
    }

    /// A turn to begin a handshake, and a place for the connection from then on; none in time.
    pub async fn handshake(&self, source: Source) -> Option<(HandshakeTurn, PoolPlace<Source>)> {
        tokio::time::timeout(HANDSHAKE_WAIT, self.begun(source)).await.ok()?
    }

    /// Whoever waits for a place holds no turn, so that those who may take the place of somebody with more have theirs.
    async fn begun(&self, source: Source) -> Option<(HandshakeTurn, PoolPlace<Source>)> {
        let networks = source.networks();
        let turn = self.turns.take(&networks).await?;
        let (used, displaced) = (PlaceUse::Handshake, CancellationToken::new());
        if let Some(place) = self.unauthenticated.enter(&networks, used, displaced.clone()) {
            return Some((turn, place));
        }
        drop(turn);
        let place = self.unauthenticated.wait(&networks, used, displaced, HANDSHAKE_WAIT).await?;
        Some((self.turns.take(&networks).await?, place))
    }

    /// A place for a connection with a client certificate of this owner, or none in time. One that has all of its own gives up the
    /// one that has been idle longest, and a live stream only if all carry one. In a full pool the owner with most gives way.
    pub async fn certificate(&self, owner: &[Sharer]) -> Option<PoolPlace<Sharer>> {
        let place = self.certificates.wait(owner, PlaceUse::Active, CancellationToken::new(), WAIT).await;
        self.call_in();
        place
    }

    /// The same for one that was a stranger until its certificate was on record.
    fn certificate_now(&self, owner: &[Sharer], displaced: CancellationToken) -> Option<PoolPlace<Sharer>> {
        let place = self.certificates.enter(owner, PlaceUse::Active, displaced);
        self.call_in();
        place
    }

    /// Takes back a descriptor that an arrival has from the connections with a client certificate.
    fn call_in(&self) {
        if self.certificates.taken() + self.unauthenticated.taken() + self.arrivals.taken() > self.lent {
            self.arrivals.give_up();
        }
    }

    /// A place among the known for the connection of a stranger who has shown a good credential; without one it stays where it is.
    pub fn known(
        &self,
        holder: &CredentialHolder,
        sharers: &[Sharer],
        displaced: CancellationToken,
    ) -> Option<PoolPlace<Sharer>> {
        match holder {
            CredentialHolder::Key(_) => self.keyed.enter(sharers, PlaceUse::Active, displaced),
            // By a certificate that was on no record when the connection began.
            CredentialHolder::Node(_) | CredentialHolder::Operator(_) => {
                self.certificate_now(sharers, displaced)
            }
            CredentialHolder::Local(_) => None,
        }
    }

    /// A place for the body of a request, or none in time. One of unknown length counts as small until it is not.
    pub async fn body(
        &self,
        sharers: Option<&[Sharer]>,
        source: Source,
        length: Option<u64>,
    ) -> Option<SharedPlace> {
        let weight = if length.unwrap_or_default() > SMALL_BODY { LARGER_BODY } else { 1 };
        let (used, displaced) = (PlaceUse::Idle, CancellationToken::new());
        match sharers {
            Some(path) => {
                let place = self.bodies.wait_weighed(path, weight, used, displaced, WAIT).await;
                place.map(SharedPlace::OfCredential)
            }
            None => {
                let path = source.networks();
                let place = self.strangers_bodies.wait_weighed(&path, weight, used, displaced, WAIT).await;
                place.map(SharedPlace::OfNetwork)
            }
        }
    }

    /// A place for a request of an operator whose body may be large, or none in time.
    pub async fn large_body(&self, sharers: &[Sharer]) -> Option<SharedPlace> {
        let place = self.large_bodies.wait(sharers, PlaceUse::Idle, CancellationToken::new(), WAIT).await;
        place.map(SharedPlace::OfCredential)
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
        match reader.sharers {
            Some(path) => {
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
    pub async fn list(
        &self,
        holder: &CredentialHolder,
        sharers: &[Sharer],
    ) -> Option<Turn<CredentialHolder>> {
        if self.answers.held_by(sharers) > ANSWERS_EACH / 2 {
            return None;
        }
        self.lists.wait(holder, WAIT).await
    }

    /// A place for a node's live stream.
    pub fn stream(&self, holder: &CredentialHolder) -> Option<PoolPlace<CredentialHolder>> {
        let path = std::slice::from_ref(holder);
        self.streams.enter(path, PlaceUse::Protected, CancellationToken::new())
    }

    /// A place for an event stream. In a full pool whoever has most loses the one that is oldest, and its reader comes again.
    pub fn event_stream(&self, sharers: &[Sharer]) -> Option<PoolPlace<Sharer>> {
        self.event_streams.enter(sharers, PlaceUse::Active, CancellationToken::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lifecycle::names::{NodeId, TenantId};

    fn source(text: &str) -> Source {
        Source::Address(text.parse().expect("an address"))
    }

    fn node(name: &str) -> [Sharer; 2] {
        let holder = CredentialHolder::Node(NodeId::parse(name).expect("an id"));
        [Sharer::Tenant(TenantId::default_tenant()), Sharer::Holder(holder)]
    }

    fn arrivals(capacity: &Capacity, from: &str, count: usize) -> Vec<PoolPlace<Source>> {
        (0..count).filter_map(|_| capacity.arrival(source(from))).collect()
    }

    #[test]
    fn a_host_that_floods_keeps_no_neighbour_out() {
        for (host, neighbour) in [("192.0.2.1", "192.0.2."), ("2001:db8:1:0::1", "2001:db8:1:")] {
            let capacity = Capacity::new(1000);
            let flood = arrivals(&capacity, host, 5000);
            assert!(flood.len() == capacity.lent && capacity.arrival(source(host)).is_none());
            let neighbours: Vec<_> = (2..60)
                .filter_map(|i| {
                    let end = if host.contains(':') { format!("{i:x}::1") } else { i.to_string() };
                    capacity.arrival(source(&format!("{neighbour}{end}")))
                })
                .collect();
            assert_eq!(neighbours.len(), 58, "{host}");
            assert!(neighbours.iter().all(|place| !place.displaced.is_cancelled()));
        }
    }

    #[tokio::test]
    async fn a_host_that_floods_takes_no_handshake_of_a_neighbour() {
        let capacity = Capacity::new(1000);
        let mut flood = Vec::new();
        for _ in 0..1000 {
            let begun = capacity.handshake(source("192.0.2.1"));
            // Turns are given back at once, places are kept.
            let Ok(Some((_, place))) = tokio::time::timeout(WAIT / 1000, begun).await else { break };
            flood.push(place);
        }
        assert_eq!(flood.len(), 250);
        for i in 2..30 {
            let begun = capacity.handshake(source(&format!("192.0.2.{i}")));
            flood.push(tokio::time::timeout(WAIT, begun).await.ok().flatten().expect("a place").1);
        }
    }

    #[tokio::test]
    async fn connections_with_a_certificate_call_in_what_arrivals_have() {
        let capacity = Capacity::new(1000);
        let (mut begun, mut known) = (Vec::new(), Vec::new());
        for number in 0..250 {
            begun.extend(
                capacity.handshake(source(&format!("203.0.113.{number}"))).await.map(|(_, place)| place),
            );
        }
        assert_eq!(begun.len(), 250);
        let waiting = arrivals(&capacity, "192.0.2.1", 1000);
        assert_eq!(waiting.len(), capacity.lent - 250);
        for number in 0..1000 {
            let owner = node(&format!("n{number}"));
            let certificate = capacity.certificate(&owner);
            known.extend(tokio::time::timeout(WAIT / 1000, certificate).await.ok().flatten());
        }
        let taken =
            capacity.certificates.taken() + capacity.unauthenticated.taken() + capacity.arrivals.taken();
        assert!(known.len() > 600 && taken <= capacity.lent, "{} {taken}", known.len());
        assert!(capacity.arrivals.taken() > 40, "there is always a way in");
        assert!(capacity.arrival(source("198.51.100.1")).is_some());
    }

    #[tokio::test]
    async fn one_owner_has_sixty_four_connections_and_gives_way_to_others() {
        let capacity = Capacity::new(128);
        let mut own = Vec::new();
        for _ in 0..CERTIFICATES_EACH + 8 {
            own.extend(capacity.certificate(&node("n1")).await);
        }
        assert_eq!((own.len(), capacity.certificates.taken()), (CERTIFICATES_EACH + 8, CERTIFICATES_EACH));
        assert!(own.iter().take(8).all(|place| place.displaced.is_cancelled()), "the oldest");
        own[20].set(PlaceUse::Protected);
        let mut others = Vec::new();
        for number in 0..40 {
            others.extend(capacity.certificate(&node(&format!("m{number}"))).await);
        }
        assert_eq!(others.len(), 40);
        assert!(!own[20].displaced.is_cancelled(), "a live stream stays");
    }

    #[tokio::test]
    async fn one_tenant_leaves_room_for_those_who_are_of_another() {
        let capacity = Capacity::new(1000);
        let mut streams = Vec::new();
        for number in 0..capacity.lent {
            let owner = node(&format!("n{number}"));
            let certificate = capacity.certificate(&owner);
            let Ok(Some(place)) = tokio::time::timeout(WAIT / 1000, certificate).await else { break };
            place.set(PlaceUse::Protected);
            streams.push(place);
        }
        assert!(streams.len() > 500, "{}", streams.len());
        assert!(streams.iter().all(|place| !place.displaced.is_cancelled()));
        let operator = |number: usize| {
            let name = lifecycle::names::OperatorName::parse(&format!("alice{number}")).expect("a name");
            [Sharer::Domain, Sharer::Holder(CredentialHolder::Operator(name))]
        };
        for number in 0..20 {
            let path = operator(number);
            streams.extend(capacity.certificate(&path).await);
        }
        assert_eq!(streams.iter().filter(|place| place.displaced.is_cancelled()).count(), 0);
    }
}
