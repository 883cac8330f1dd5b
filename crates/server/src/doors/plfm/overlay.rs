//! `/v1/hosts/{id}/overlay`: a host asks who its peers are now, or waits until that has changed.

use super::host::HostCaller;
use super::peers::{self, PeerText};
use crate::edge::authenticate;
use crate::fleet::overlays::{UNFINISHED, WAITING};
use crate::http::extract::{Query, bad};
use crate::http::failure::Failure;
use crate::process::app::App;
use api::code;
use api::doors::plfm::{HostOverlay, OverlayConfig, OverlayQuery};
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use journal::View;
use lifecycle::names::Span;
use lifecycle::registry::Rejection;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const WAIT_MAX: Span = Span::from_minutes(5);
/// Changes come in bursts: what follows at once is one answer.
const SETTLE: Duration = Duration::from_millis(250);

pub async fn show(
    State(app): State<Arc<App>>,
    host: HostCaller,
    Query(query): Query<OverlayQuery>,
) -> Result<Response, Failure> {
    let wait = query.wait.as_deref().map(Span::parse).transpose().map_err(bad)?;
    if wait.is_some_and(|wait| wait > WAIT_MAX) {
        return Err(Failure::new(code::BAD_REQUEST, format!("wait must be at most {WAIT_MAX}")));
    }
    let view = authenticate::contact(&app, &host.origin, &host.id, &host.shown).await?;
    let now = known(&app, &view, &host)?;
    let wait = wait.zip(query.after).filter(|(_, after)| now.0.revision == *after);
    let (limit, why) = match wait {
        Some(_) => (WAITING, "this host already has four requests waiting for its overlay"),
        None => (UNFINISHED, "this host already has sixteen unread answers"),
    };
    let turn = app.fleet.overlays.turn(&host.id, limit);
    let turn = turn.ok_or_else(|| Failure::new(code::TOO_MANY_STREAMS, why).retry_after(2))?;
    let (overlay, peers) = match wait {
        Some((wait, after)) => newer(&app, &host, after, Duration::from_millis(wait.millis())).await?,
        None => now,
    };
    peers::answer(StatusCode::OK, &overlay, peers, turn)
}

/// The overlay when it is another than the host knows, or as it is when the time is over.
async fn newer(
    app: &App,
    host: &HostCaller,
    after: u64,
    wait: Duration,
) -> Result<(HostOverlay, PeerText), Failure> {
    let deadline = Instant::now() + wait;
    let Some(tenant) = app.view().state.nodes.get(&host.id).map(|node| node.tenant.clone()) else {
        return Err(Rejection::NodeNotFound { node: host.id.clone() }.into());
    };
    loop {
        // Before the look, so that nothing falls in between.
        let news = app.fleet.overlays.news(&tenant);
        let changed = news.notified();
        if app.view().state.overlay_revision(&tenant) != after {
            tokio::time::sleep(SETTLE.min(deadline.saturating_duration_since(Instant::now()))).await;
            break;
        }
        tokio::select! {
            () = changed => {}
            () = tokio::time::sleep_until(deadline) => break,
            () = app.stopped() => break,
        }
    }
    // Much may have happened to the certificate meanwhile.
    authenticate::node(app, &host.peer).await?;
    app.fleet.presence.seen(&host.id, host.origin.source, app.now());
    known(app, &app.view(), host)
}

/// The overlay without its peers, and those.
fn known(app: &App, view: &View, host: &HostCaller) -> Result<(HostOverlay, PeerText), Failure> {
    let node = view.state.nodes.get(&host.id).filter(|node| !node.state.is_gone());
    let node = node.ok_or_else(|| Rejection::NodeRevoked { node: host.id.clone() })?;
    let none = || Failure::new(code::NO_OVERLAY, "this host enrolled without a WireGuard key");
    let overlay_config = OverlayConfig::of(node, std::iter::empty()).ok_or_else(none)?;
    let overlay = HostOverlay { overlay_config, revision: view.state.overlay_revision(&node.tenant) };
    Ok((overlay, PeerText::of(app, &view.state, node, u64::MAX)))
}
