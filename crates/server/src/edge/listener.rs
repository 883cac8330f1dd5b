//! Accepting: TLS within ten seconds, then HTTP, then a clean end.

use crate::edge::authenticate::ConnectionPeer;
use crate::edge::connections;
use crate::edge::service::{self, CertificateBound};
use crate::edge::stall::Stall;
use crate::edge::tls;
use crate::process::app::App;
use axum::Router;
use lifecycle::names::Source;
use rustls::ServerConfig;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::task::TaskTracker;

const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// How long a refused client is given to read the alert.
const ALERT_LIMIT: Duration = Duration::from_secs(1);
const ALERT_BYTES: usize = 64 * 1024;
const METRICS_CONNECTIONS: usize = 16;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts until the process stops. Beyond `connections` at once, newcomers wait in the kernel's queue.
pub async fn accept(
    app: Arc<App>,
    listener: TcpListener,
    config: Arc<ServerConfig>,
    router: Router,
    connections: Arc<Semaphore>,
    tasks: TaskTracker,
) {
    let acceptor = TlsAcceptor::from(config);
    loop {
        let Ok(permit) = connections.clone().acquire_owned().await else { return };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = app.stopped() => return,
        };
        match accepted {
            Ok((stream, address)) => {
                let (app, acceptor, router) = (app.clone(), acceptor.clone(), router.clone());
                tasks.spawn(async move {
                    let _permit = permit;
                    connection(app, acceptor, router, stream, address).await;
                });
            }
            Err(error) => {
                // Out of descriptors, most likely: give others the time to finish.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(
    app: Arc<App>,
    acceptor: TlsAcceptor,
    router: Router,
    stream: TcpStream,
    address: SocketAddr,
) {
    let _ = stream.set_nodelay(true);
    let source = Source::Address(address.ip().to_canonical());
    let handshake = tls::SOURCE.scope(source, acceptor.accept(stream).into_fallible());
    let handshake = tokio::select! {
        done = tokio::time::timeout(HANDSHAKE_LIMIT, handshake) => done,
        () = app.stopped() => return,
    };
    let stream = match handshake {
        Ok(Ok(stream)) => stream,
        Ok(Err((error, stream))) => {
            tracing::debug!(%address, %error, "handshake refused");
            return let_alert_be_read(stream).await;
        }
        Err(_) => return tracing::debug!(%address, "handshake took too long"),
    };
    let peer = peer(&app, &stream, source);
    if stream.get_ref().1.peer_certificates().is_some() && peer.certificate.is_none() {
        return tracing::warn!(%address, "a verified client certificate could not be read");
    }
    // A connection without a certificate waits for a permit.
    let _place = match peer.certificate {
        Some(_) => None,
        None => match app.edge.unauthenticated.connection(peer.source).await {
            Some(place) => Some(place),
            None => return tracing::debug!(%address, "too many unauthenticated connections"),
        },
    };
    // Registered first, checked then: a revocation in between finds it.
    let registered = peer
        .certificate
        .as_ref()
        .map(|certificate| (connections::register(&app, certificate), certificate.clone()));
    if let Some((_, certificate)) = &registered
        && app.view().state.presented(&certificate.serial, &certificate.fingerprint, app.now()).is_refused()
    {
        return tracing::debug!(%address, "revoked during the handshake");
    }
    let bound = registered.as_ref().map(|(registered, certificate)| CertificateBound {
        cut: registered.cut.clone(),
        until: certificate.not_after,
    });
    app.metrics.connected();
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    service::serve(app.clone(), router, Stall::new(stream), peer, bound, http2).await;
    app.metrics.disconnected();
}

fn peer(app: &App, stream: &TlsStream<TcpStream>, source: Source) -> ConnectionPeer {
    let leaf = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let certificate = leaf.and_then(|leaf| tls::peer_certificate(&app.view().state, leaf)).map(Arc::new);
    ConnectionPeer { source, certificate, local_user: None }
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

/// The plain listener for scrapers: one path, nothing secret, only where the operator asked for it.
pub async fn accept_metrics(app: Arc<App>, listener: TcpListener) {
    let router = Router::new().route(
        "/metrics",
        axum::routing::get({
            let app = app.clone();
            move || async move { crate::operator::metrics_text(&app, &app.view()) }
        }),
    );
    let places = Arc::new(Semaphore::new(METRICS_CONNECTIONS));
    loop {
        let Ok(permit) = places.clone().acquire_owned().await else { return };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = app.stopped() => return,
        };
        let Ok((stream, address)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (app, router) = (app.clone(), router.clone());
        let peer =
            ConnectionPeer { source: Source::Address(address.ip()), certificate: None, local_user: None };
        tokio::spawn(async move {
            let _permit = permit;
            service::serve(app, router, Stall::new(stream), peer, None, false).await;
        });
    }
}
