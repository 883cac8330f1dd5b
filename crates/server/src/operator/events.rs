//! `/v1/events`: nodes as they change, as server-sent events. A slow reader skips what it missed in between:
//! what it gets is always the newest state, and nothing is queued for it.

use super::extract::Caller;
use crate::app::App;
use crate::auth;
use crate::failure::Failure;
use api::rest::nodes::NodeItem;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::Stream;
use http::header;
use imbl::ordmap::DiffItem;
use journal::View;
use lifecycle::registry::{Act, Actor, Tenants};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// A comment now and then, so that both ends notice when the other is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub async fn follow(State(app): State<Arc<App>>, caller: Caller) -> Result<Response, Failure> {
    let (view, _) = auth::reader(&app, &caller.actor, Act::ReadNodes)?;
    let kind = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((kind, Body::from_stream(changes(app, caller.actor, view))).into_response())
}

fn changes(app: Arc<App>, actor: Actor, start: Arc<View>) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let wake = app.journal.changes();
    let first = (app, actor, start, wake, true);
    futures::stream::unfold(first, |(app, actor, seen, mut wake, greet)| async move {
        if greet {
            return Some((Ok(Bytes::from_static(b": following\n\n")), (app, actor, seen, wake, false)));
        }
        loop {
            let mut stopping = app.stopping.clone();
            let text = tokio::select! {
                changed = wake.changed() => {
                    changed.ok()?;
                    // Rights may have gone since the stream began.
                    let (now, tenants) = auth::reader(&app, &actor, Act::ReadNodes).ok()?;
                    let text = difference(&seen, &now, &tenants);
                    if text.is_empty() {
                        continue;
                    }
                    return Some((Ok(Bytes::from(text)), (app, actor, now, wake, false)));
                }
                () = tokio::time::sleep(KEEP_ALIVE) => Bytes::from_static(b": still here\n\n"),
                _ = stopping.wait_for(|stop| *stop) => return None,
            };
            auth::reader(&app, &actor, Act::ReadNodes).ok()?;
            return Some((Ok(text), (app, actor, seen, wake, false)));
        }
    })
}

fn difference(before: &View, after: &View, tenants: &Tenants) -> String {
    let changed = before.state.nodes.diff(&after.state.nodes).filter_map(|item| match item {
        DiffItem::Add(_, node) | DiffItem::Update { new: (_, node), .. } => Some(node),
        DiffItem::Remove(..) => None,
    });
    let mut text = String::new();
    for node in changed.filter(|node| tenants.include(&node.tenant)) {
        let item = NodeItem::of(&after.state, node);
        if let Ok(json) = serde_json::to_string(&item) {
            text.push_str(&format!("event: node\nid: {}\ndata: {json}\n\n", after.applied_index));
        }
    }
    text
}
