//! `/v1/events`: nodes and alerts as they change, as server-sent events. A slow reader skips what it missed in between:
//! what it gets is always the newest state, and nothing is queued for it.

use crate::edge::authenticate;
use crate::fleet::alert_changes;
use crate::http::extract::Caller;
use crate::http::failure::Failure;
use crate::process::app::App;
use crate::process::views::Views;
use api::rest::alerts::AlertEvent;
use api::rest::nodes::{NodeEvent, NodeItem, NodeLiveness};
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::header;
use imbl::ordmap::DiffItem;
use journal::View;
use lifecycle::names::NodeId;
use lifecycle::registry::{Act, Actor, Node, Tenants, may_read};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// A comment now and then, so that both ends notice when the other is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub async fn follow(State(app): State<Arc<App>>, caller: Caller) -> Result<Response, Failure> {
    let views = Views::new(&app);
    authenticate::reader(&app, &caller.actor, Act::ReadNodes)?;
    let kind = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((kind, Body::from_stream(changes(app, caller.actor, views))).into_response())
}

fn changes(app: Arc<App>, actor: Actor, views: Views) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let greeting = futures::stream::iter([Ok(Bytes::from_static(b": following\n\n"))]);
    let rest = futures::stream::unfold((app, actor, views), |(app, actor, mut views)| async move {
        loop {
            let text = tokio::select! {
                next = views.next() => {
                    let (before, now) = next?;
                    let tenants = still_allowed(&app, &now, &actor)?;
                    difference(&app, &before, &now, &tenants)
                }
                () = tokio::time::sleep(KEEP_ALIVE) => {
                    still_allowed(&app, views.seen(), &actor)?;
                    ": still here\n\n".to_owned()
                }
            };
            if !text.is_empty() {
                return Some((Ok(Bytes::from(text)), (app, actor, views)));
            }
        }
    });
    greeting.chain(rest)
}

/// Rights may have gone since the stream began: by a change, or by time alone.
fn still_allowed(app: &App, view: &View, actor: &Actor) -> Option<Tenants> {
    let mut state = view.state.clone();
    state.at = app.now();
    may_read(&state, actor, Act::ReadNodes).ok()
}

/// What to tell a reader who knew `before`.
fn difference(app: &App, before: &View, after: &View, tenants: &Tenants) -> String {
    let mut text = String::new();
    let mut tell = |name: &str, data: Result<String, serde_json::Error>| {
        if let Ok(json) = data {
            text.push_str(&format!("event: {name}\nid: {}\ndata: {json}\n\n", after.applied_index));
        }
    };
    for id in touched(before, after) {
        let known = |view: &View| view.state.nodes.get(id).cloned();
        let Some(node) = known(after).filter(|node| tenants.include(&node.tenant)) else { continue };
        // When it was last seen is no news: every node would be told of every few minutes.
        let shown = |view: &View, node: &Node| NodeItem {
            last_seen: None,
            ..NodeItem::of(&view.state, node, &NodeLiveness::default())
        };
        if known(before).is_none_or(|old| shown(before, &old) != shown(after, &node)) {
            let item = NodeItem::of(&after.state, &node, &app.fleet.presence.live(id));
            let at = Some(after.state.at.to_string());
            tell("node", serde_json::to_string(&NodeEvent { at, item }));
        }
    }
    for (change, alert) in alert_changes::changes(&before.state, &after.state) {
        if alert_changes::is_visible(&after.state, tenants, alert) {
            tell("alert", serde_json::to_string(&AlertEvent::of(change, alert)));
        }
    }
    text
}

/// Nodes that may look different now: by themselves, or by an alert about them, which is their health.
fn touched<'a>(before: &'a View, after: &'a View) -> BTreeSet<&'a NodeId> {
    let changed = before.state.nodes.diff(&after.state.nodes).filter_map(|item| match item {
        DiffItem::Add(id, _) | DiffItem::Update { new: (id, _), .. } => Some(id),
        DiffItem::Remove(..) => None,
    });
    let alerts =
        alert_changes::changes(&before.state, &after.state).filter_map(|(_, alert)| alert.node.as_ref());
    changed.chain(alerts).collect()
}
