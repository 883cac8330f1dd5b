//! Accepting: a first byte within five seconds, TLS within ten more, then HTTP, then a clean end.

use crate::edge::authenticate::ConnectionPeer;
use crate::edge::capacity::WaitingPlace;
use crate::edge::connections;
use crate::edge::keepalive::{Heard, Keepalive};
use crate::edge::service::{self, CertificateBound};
use crate::edge::shares::{PlaceUse, PoolPlace};
use crate::edge::stall::Stall;
use crate::edge::tls;
use crate::process::app::App;
use axum::Router;
use lifecycle::names::Source;
use lifecycle::registry::{Owner, Presented, by_svid};
use pki::verify::PeerCertificate;
use rustls::ServerConfig;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// How long to wait for the first byte of a handshake; until it comes, a connection costs its socket alone.
const FIRST_BYTE_LIMIT: Duration = Duration::from_secs(5);
/// How long a refused client is given to read the alert.
const ALERT_LIMIT: Duration = Duration::from_secs(1);
const ALERT_BYTES: usize = 64 * 1024;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts until the process stops. It never waits for a place, so that one network's connections cannot keep another's in the
/// kernel's queue: whoever has none waits as an accepted socket, and is closed only if there is no room for that either.
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
                let (app, acceptor, router) = (app.clone(), acceptor.clone(), router.clone());
                if let Some(place) = app.edge.capacity.handshake(source) {
                    tasks.spawn(connection(app, acceptor, router, stream, source, place));
                } else if let Some(waiting) = app.edge.capacity.waiting(source) {
                    tasks.spawn(late(app, acceptor, router, stream, source, waiting));
                } else {
                    app.metrics.displaced("handshake");
                }
            }
            Err(error) => {
                // Out of descriptors, most likely: give others the time to finish.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// A connection that waits for a place among the handshakes, and costs its socket alone until it has one.
async fn late(
    app: Arc<App>,
    acceptor: TlsAcceptor,
    router: Router,
    stream: TcpStream,
    source: Source,
    waiting: WaitingPlace,
) {
    let place = tokio::select! {
        place = app.edge.capacity.late_handshake(source) => place,
        () = waiting.place.displaced.cancelled() => None,
        () = app.stopped() => return,
    };
    drop(waiting);
    match place {
        Some(place) => connection(app, acceptor, router, stream, source, place).await,
        None => app.metrics.displaced("handshake"),
    }
}

/// One connection from its first byte to its end. While it has no other place it has one among the handshakes.
async fn connection(
    app: Arc<App>,
    acceptor: TlsAcceptor,
    router: Router,
    stream: TcpStream,
    source: Source,
    place: PoolPlace<Source>,
) {
    let _ = stream.set_nodelay(true);
    let displaced = place.displaced.clone();
    // Boxed, because a connection lives long after its handshake and would keep the room for it.
    let stream = tokio::select! {
        stream = Box::pin(shaken(acceptor, stream, source, &place)) => stream,
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
    let on_record = peer.certificate.as_ref().is_some_and(|certificate| is_on_record(&app, certificate));
    let (own, _permit) = if on_record {
        let Some(permit) = app.edge.capacity.certificate().await else {
            return tracing::warn!(%source, "too many connections with a client certificate");
        };
        (None, Some(permit))
    } else {
        let Some(own) = app.edge.capacity.stranger(source, CancellationToken::new()).await else {
            return tracing::debug!(%source, "too many unauthenticated connections");
        };
        (Some(own), None)
    };
    drop(place);
    // Registered first, checked then: a revocation in between finds it.
    let registered = peer.certificate.as_ref().map(|certificate| connections::register(&app, certificate));
    if peer.certificate.as_ref().is_some_and(|certificate| is_refused(&app, certificate)) {
        return tracing::debug!(%source, "revoked during the handshake");
    }
    let bound = registered.as_ref().zip(peer.certificate.as_ref()).map(|(registered, certificate)| {
        CertificateBound { cut: registered.cut.clone(), until: certificate.not_after }
    });
    app.metrics.connected();
    service::serve(app.clone(), router, stream, peer, bound, own, http2).await;
    app.metrics.disconnected();
}

/// An issuer's signature alone makes nobody known: others may have the key of an imported CA. Such a peer has a stranger's place
/// until its record has arrived.
fn is_on_record(app: &App, certificate: &PeerCertificate) -> bool {
    let (view, now) = (app.view(), app.now());
    if let Some(svid) = &certificate.svid {
        let node = app.ca.spire.node(&svid.id);
        return node.is_some_and(|node| by_svid(&view.state, &node).is_ok());
    }
    match view.state.presented(&certificate.serial, &certificate.fingerprint, now) {
        // Many hosts share it: each has a stranger's place.
        Presented::Recorded(held, _) => !matches!(held.owner, Owner::Bootstrap(_)),
        Presented::Unknown | Presented::Forged => false,
    }
}

fn is_refused(app: &App, certificate: &PeerCertificate) -> bool {
    if let Some(svid) = &certificate.svid {
        return connections::svid_is_refused(app, &app.view().state, svid, app.now());
    }
    app.view().state.presented(&certificate.serial, &certificate.fingerprint, app.now()).is_refused()
}

/// The handshake, within its time; none if it failed.
async fn shaken(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    source: Source,
    place: &PoolPlace<Source>,
) -> Option<Box<TlsStream<TcpStream>>> {
    let first = tokio::time::timeout(FIRST_BYTE_LIMIT, stream.peek(&mut [0])).await;
    if !matches!(first, Ok(Ok(1))) {
        tracing::debug!(%source, "no handshake was begun");
        return None;
    }
    place.set(PlaceUse::Active);
    let handshake = tls::SOURCE.scope(source, acceptor.accept(stream).into_fallible());
    match tokio::time::timeout(HANDSHAKE_LIMIT, handshake).await {
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
