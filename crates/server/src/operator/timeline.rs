//! `/v1/nodes/{id}/timeline`: the lines of the trail that are about one node, oldest first.

use super::audit::{AuditPage, line, unreadable};
use super::nodes::parse;
use crate::edge::authenticate;
use crate::http::extract::{Caller, Query, Segment};
use crate::http::failure::Failure;
use crate::http::page::limit;
use crate::process::app::App;
use api::code;
use api::rest::page::PageQuery;
use axum::extract::State;
use journal::audit::Selection;
use lifecycle::registry::{Act, Rejection};
use std::sync::Arc;

/// How many lines of the trail one request may look through; the cursor says where to go on.
const SCAN: u64 = 50_000;

/// For whoever may see the node.
pub async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(id): Segment,
    Query(query): Query<PageQuery>,
) -> Result<axum::Json<AuditPage>, Failure> {
    let (view, tenants) = authenticate::reader(&app, &caller.actor, Act::ReadNodes)?;
    let id = parse(&id)?;
    if !view.state.nodes.get(&id).is_some_and(|node| tenants.include(&node.tenant)) {
        return Err(Rejection::NodeNotFound { node: id }.into());
    }
    let limit = limit(query.limit)?;
    let after: u64 = match query.cursor.as_deref().map(str::parse) {
        None => 0,
        Some(Ok(seq)) => seq,
        Some(Err(_)) => {
            return Err(Failure::new(
                code::BAD_REQUEST,
                "cursor is not valid: use next_cursor of the page before",
            ));
        }
    };
    let until = view.audit.seq.min(after.saturating_add(SCAN));
    // It is given back when the walk is over, even if nobody waits for it any more.
    let place = app.audit_readers.timeline().await?;
    let reader = app.clone();
    let about = Selection { after, until, node: Some(id.to_string()), ..Selection::default() };
    let read = move || {
        let found = reader.journal.audit().select(&about, limit);
        drop(place);
        found
    };
    let found = tokio::task::spawn_blocking(read).await.map_err(|error| unreadable(&error))?;
    let found = found.map_err(|error| unreadable(&error))?;
    let full = found.len() == limit;
    let reached = found.last().map(|(seq, _)| *seq).filter(|_| full).unwrap_or(until);
    let items = found.into_iter().map(|(_, text)| line(text)).collect::<Result<_, _>>()?;
    let next_cursor = (reached < view.audit.seq).then(|| reached.to_string());
    Ok(axum::Json(AuditPage { items, next_cursor }))
}
