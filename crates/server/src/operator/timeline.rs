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
use lifecycle::names::{Timestamp, VclusterId};
use lifecycle::registry::{Act, Node, NodeReach, Rejection, Vclusters};
use std::sync::Arc;

/// How many lines of the trail one request may look through; the cursor says where to go on.
const SCAN: u64 = 50_000;

/// Which lines about a node the caller is shown: all, or for those narrowed to vClusters the ones since the node came into
/// theirs, and of these none that names another vCluster.
enum ToldLines {
    All,
    Since(Option<Timestamp>, Vclusters),
}

/// What a line says of when and where.
#[derive(serde::Deserialize)]
struct LinePlace {
    at: String,
    vcluster: Option<String>,
    from_vcluster: Option<String>,
}

impl ToldLines {
    fn of(reach: &NodeReach, node: &Node) -> Self {
        if reach.vclusters.is_all() {
            return ToldLines::All;
        }
        ToldLines::Since(node.assignments.last().map(|last| last.at), reach.vclusters.clone())
    }

    fn include(&self, text: &str) -> bool {
        let ToldLines::Since(joined, vclusters) = self else { return true };
        let Some(joined) = joined else { return false };
        let Ok(line) = serde_json::from_str::<LinePlace>(text) else { return false };
        let own = |name: String| VclusterId::parse(&name).is_ok_and(|id| vclusters.include(&id));
        Timestamp::parse(&line.at).is_ok_and(|at| at >= *joined)
            && [line.vcluster, line.from_vcluster].into_iter().flatten().all(own)
    }
}

/// For whoever may see the node.
pub async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(id): Segment,
    Query(query): Query<PageQuery>,
) -> Result<axum::Json<AuditPage>, Failure> {
    let (view, reach) = authenticate::node_reader(&app, &caller.actor, Act::ReadNodes)?;
    let id = parse(&id)?;
    let Some(node) = view.state.nodes.get(&id).filter(|node| reach.includes(node)) else {
        return Err(Rejection::NodeNotFound { node: id }.into());
    };
    let told = ToldLines::of(&reach, node);
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
    // It is given on when the walk is over, even if nobody waits for it any more.
    let turn = app.audit_readers.search(&caller.actor).await?;
    let reader = app.clone();
    let about = Selection { after, until, node: Some(id.to_string()), ..Selection::default() };
    let read = move || {
        let found = reader.journal.audit().select(&about, limit);
        drop(turn);
        found
    };
    let found = tokio::task::spawn_blocking(read).await.map_err(|error| unreadable(&error))?;
    let found = found.map_err(|error| unreadable(&error))?;
    let full = found.len() == limit;
    let reached = found.last().map(|(seq, _)| *seq).filter(|_| full).unwrap_or(until);
    let found = found.into_iter().filter(|(_, text)| told.include(text));
    let items = found.map(|(_, text)| line(text)).collect::<Result<_, _>>()?;
    let next_cursor = (reached < view.audit.seq).then(|| reached.to_string());
    Ok(axum::Json(AuditPage { items, next_cursor }))
}
