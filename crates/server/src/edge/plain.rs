//! Listeners without TLS, only where the operator asked for one: metrics for scrapers, health for load balancers. A few places,
//! shared by networks, so that clients that ask nothing cannot keep the others out.

use crate::edge::authenticate::ConnectionPeer;
use crate::edge::phase::SharedPlace;
use crate::edge::service;
use crate::edge::shares::{PlaceUse, SharedPool};
use crate::edge::stall::Stall;
use crate::operator;
use crate::process::app::App;
use axum::Router;
use axum::routing::get;
use lifecycle::names::Source;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

const CONNECTIONS: usize = 64;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// `/metrics` alone.
pub fn metrics(app: &Arc<App>) -> Router {
    let app = app.clone();
    let text = move || async move { operator::metrics_text(&app, &app.view()) };
    Router::new().route("/metrics", get(text))
}

/// `/healthz` and `/readyz` alone.
pub fn health(app: &Arc<App>) -> Router {
    operator::health_router().with_state(app.clone())
}

/// Serves these paths until the process stops.
pub async fn accept(app: Arc<App>, listener: TcpListener, router: Router) {
    let places = SharedPool::new(CONNECTIONS, usize::MAX);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = app.stopped() => return,
        };
        let Ok((stream, address)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let source = Source::Address(address.ip().to_canonical());
        let peer = ConnectionPeer { source, certificate: None, local_user: None, keepalive: None };
        let place = places.enter(&source.networks(), PlaceUse::Idle, CancellationToken::new());
        let Some(place) = place.map(SharedPlace::OfNetwork) else { continue };
        let (app, router) = (app.clone(), router.clone());
        tokio::spawn(async move {
            service::serve(app, router, Stall::new(stream), peer, None, Some(place), false).await;
        });
    }
}
