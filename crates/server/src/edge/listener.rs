//! Accepting: a first byte within five seconds, TLS within ten more, then HTTP, then a clean end.

use crate::edge::authenticate::{ConnectionPeer, CredentialHolder};
use crate::edge::connections;
use crate::edge::handshake_turns::{HandshakeTurn, TURN_LIMIT};
use crate::edge::keepalive::{Heard, Keepalive};
use crate::edge::phase::SharedPlace;
use crate::edge::service::{self, CertificateBound};
use crate::edge::sharer::{Sharer, sharers};
use crate::edge::shares::{PlaceUse, PoolPlace};
use crate::edge::stall::Stall;
use crate::edge::tls;
use crate::process::app::App;
use axum::Router;
use futures::FutureExt;
use lifecycle::names::Source;
use lifecycle::registry::{Owner, Presented, by_svid};
use pki::verify::PeerCertificate;
use rustls::ServerConfig;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::task::TaskTracker;

const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// How long to wait for the first byte of a handshake; until it comes, a connection costs its socket alone.
const FIRST_BYTE_LIMIT: Duration = Duration::from_secs(5);
/// A peer that has closed its end after so long a wait is taken to have left.
const LEFT_AFTER: Duration = Duration::from_secs(2);
/// How long a refused client is given to read the alert.
const ALERT_LIMIT: Duration = Duration::from_secs(1);
const ALERT_BYTES: usize = 64 * 1024;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts until the process stops. It never waits for a place, so that one network's connections cannot keep another's in the
/// kernel's queue: each waits as an accepted socket, and is closed only if its own network has most of those.
pub async fn accept(
    app: Arc<App>,
    listener: TcpListener,
    config: Arc<ServerConfig>,
    router: Router,
    tasks: TaskTracker,
) {
    let acceptor = TlsAcceptor::from(config);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = app.stopped() => return,
        };
        match accepted {
            Ok((stream, address)) => {
                let source = Source::Address(address.ip().to_canonical());
                let Some(arrival) = app.edge.capacity.arrival(source) else {
                    app.metrics.displaced("handshake");
                    continue;
                };
                let (app, acceptor, router) = (app.clone(), acceptor.clone(), router.clone());
                tasks.spawn(arrived(app, acceptor, router, stream, source, arrival));
            }
            Err(error) => {
                // Out of descriptors, most likely: give others the time to finish.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// A connection that costs its socket alone: until its first byte is here and its handshake has a turn.
async fn arrived(
    app: Arc<App>,
    acceptor: TlsAcceptor,
    router: Router,
    stream: TcpStream,
    source: Source,
    arrival: PoolPlace<Source>,
) {
    let mut byte = [0];
    let begun = tokio::select! {
        first = tokio::time::timeout(FIRST_BYTE_LIMIT, stream.peek(&mut byte)) => matches!(first, Ok(Ok(1))),
        () = arrival.displaced.cancelled() => return app.metrics.displaced("handshake"),
        () = app.stopped() => return,
    };
    if !begun {
        return tracing::debug!(%source, "no handshake was begun");
    }
    // Nothing is paid for yet.
    arrival.set(PlaceUse::Active);
    let since = Instant::now();
    let turn = tokio::select! {
        turn = app.edge.capacity.handshake(source) => turn,
        () = arrival.displaced.cancelled() => None,
        () = app.stopped() => return,
    };
    drop(arrival);
    let Some((turn, place)) = turn else { return app.metrics.displaced("handshake") };
    // Whoever says no more may still read what it is answered; after a wait it has most likely left, and costs no key exchange.
    if since.elapsed() >= LEFT_AFTER && says_no_more(&stream) {
        return tracing::debug!(%source, "the peer has left while it waited");
    }
    // Boxed, because those that wait are many and would each keep the room for it.
    Box::pin(connection(app, acceptor, router, stream, source, (turn, place))).await;
}

fn says_no_more(stream: &TcpStream) -> bool {
    let ready = stream.ready(Interest::READABLE).now_or_never();
    ready.is_some_and(|ready| ready.is_ok_and(|ready| ready.is_read_closed()))
}

/// One connection from its handshake to its end. While it has no other place it has one among the unauthenticated.
async fn connection(
    app: Arc<App>,
    acceptor: TlsAcceptor,
    router: Router,
    stream: TcpStream,
    source: Source,
    (turn, place): (HandshakeTurn, PoolPlace<Source>),
) {
    let _ = stream.set_nodelay(true);
    let displaced = place.displaced.clone();
    // Boxed, because a connection lives long after its handshake and would keep the room for it.
    let stream = tokio::select! {
        stream = Box::pin(shaken(acceptor, stream, source, turn, &place)) => stream,
        () = displaced.cancelled() => {
            return app.metrics.displaced("handshake");
        }
        () = app.stopped() => return,
    };
    let Some(stream) = stream else { return };
    let peer = peer(&app, &stream, source);
    if stream.get_ref().1.peer_certificates().is_some() && peer.certificate.is_none() {
        return tracing::warn!(%source, "a verified client certificate could not be read");
    }
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let stream = Stall::new(Heard::new(stream, peer.keepalive.clone()));
    let owner = peer.certificate.as_ref().and_then(|certificate| owner(&app, certificate));
    let place = match owner {
        Some(owner) => {
            let own = tokio::select! {
                own = app.edge.capacity.certificate(&owner) => own,
                // Its socket is counted by the place that it has so far.
                () = displaced.cancelled() => None,
                () = app.stopped() => return,
            };
            let Some(own) = own else {
                app.metrics.displaced("certificate");
                return tracing::debug!(%source, "too many connections with a client certificate");
            };
            drop(place);
            SharedPlace::OfCredential(own)
        }
        None => SharedPlace::OfNetwork(place),
    };
    // Registered first, checked then: a revocation in between finds it.
    let registered = peer.certificate.as_ref().map(|certificate| connections::register(&app, certificate));
    if peer.certificate.as_ref().is_some_and(|certificate| is_refused(&app, certificate)) {
        return tracing::debug!(%source, "revoked during the handshake");
    }
    let bound = registered.as_ref().zip(peer.certificate.as_ref()).map(|(registered, certificate)| {
        CertificateBound { cut: registered.cut.clone(), until: certificate.not_after }
    });
    app.metrics.connected();
    service::serve(app.clone(), router, stream, peer, bound, Some(place), http2).await;
    app.metrics.disconnected();
}

/// Whose certificate it is, if it is on record: an issuer's signature alone makes nobody known, because others may have the key of an
/// imported CA. Such a peer has a stranger's place until its record has arrived.
fn owner(app: &App, certificate: &PeerCertificate) -> Option<[Sharer; 2]> {
    let (view, now) = (app.view(), app.now());
    if let Some(svid) = &certificate.svid {
        let node = app.ca.spire.node(&svid.id)?;
        let known = by_svid(&view.state, &node).is_ok();
        return known.then(|| sharers(&view.state, &CredentialHolder::Node(node)));
    }
    let holder = match view.state.presented(&certificate.serial, &certificate.fingerprint, now) {
        Presented::Recorded(held, _) => match &held.owner {
            Owner::Node(node) => Some(CredentialHolder::Node(node.clone())),
            Owner::Operator(name) => Some(CredentialHolder::Operator(name.clone())),
            // Many hosts share the one, and the other opens nothing here: each connection has a stranger's place.
            Owner::Bootstrap(_) | Owner::Replica(_) => None,
        },
        Presented::Unknown | Presented::Forged => None,
    };
    holder.map(|holder| sharers(&view.state, &holder))
}

fn is_refused(app: &App, certificate: &PeerCertificate) -> bool {
    if let Some(svid) = &certificate.svid {
        return connections::svid_is_refused(app, &app.view().state, svid, app.now());
    }
    app.view().state.presented(&certificate.serial, &certificate.fingerprint, app.now()).is_refused()
}

/// The handshake, within its time; none if it failed. Its turn ends before it when the peer is slow.
async fn shaken(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    source: Source,
    turn: HandshakeTurn,
    place: &PoolPlace<Source>,
) -> Option<Box<TlsStream<TcpStream>>> {
    let mut handshake = Box::pin(tls::SOURCE.scope(source, acceptor.accept(stream).into_fallible()));
    let soon = tokio::time::timeout(TURN_LIMIT, handshake.as_mut()).await;
    drop(turn);
    let shaken = match soon {
        Ok(ended) => Ok(ended),
        Err(_) => tokio::time::timeout(HANDSHAKE_LIMIT - TURN_LIMIT, handshake).await,
    };
    match shaken {
        // Boxed: it is handed on a few times, and each would keep room for it.
        Ok(Ok(stream)) => Some(Box::new(stream)),
        Ok(Err((error, stream))) => {
            tracing::debug!(%source, %error, "handshake refused");
            place.set(PlaceUse::Idle);
            let_alert_be_read(stream).await;
            None
        }
        Err(_) => {
            tracing::debug!(%source, "handshake took too long");
            None
        }
    }
}

fn peer(app: &App, stream: &TlsStream<TcpStream>, source: Source) -> ConnectionPeer {
    let sent = stream.get_ref().1.peer_certificates();
    let certificate = sent.and_then(|sent| tls::peer_certificate(app, sent)).map(Arc::new);
    let keepalive = certificate.is_some().then(|| Keepalive::new(&app.view().state.policy));
    ConnectionPeer { source, certificate, local_user: None, keepalive }
}

/// Half-closes and drains, so that the client finds the alert and not a reset.
async fn let_alert_be_read(mut stream: TcpStream) {
    let drain = async {
        stream.shutdown().await?;
        let mut buffer = [0; 4096];
        let mut total = 0;
        while total < ALERT_BYTES {
            match stream.read(&mut buffer).await? {
                0 => break,
                read => total += read,
            }
        }
        std::io::Result::Ok(())
    };
    let _ = tokio::time::timeout(ALERT_LIMIT, drain).await;
}
