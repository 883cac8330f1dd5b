//! Repair bundles: what an operator carries to a host that has nothing left to recover with.

use crate::fleet::recovery_token::{self, Drawn};
use crate::http::failure::Failure;
use crate::process::app::{App, Provenance};
use journal::View;
use lifecycle::names::{NodeId, Span, TokenId};
use lifecycle::registry::{Actor, BundleRecord, Command, IssueRepairBundle, RecoveryToken, Rejection};
use std::sync::Arc;

/// Lines that are read at once while the one about a bundle is looked for.
const CHUNK: usize = 500;

/// A bundle on record, and the value of its token for the only time.
pub struct IssuedBundle {
    pub drawn: Drawn,
    pub token: RecoveryToken,
    pub record: BundleRecord,
    /// The registry in which it is on record.
    pub view: Arc<View>,
}

pub async fn issue(
    app: &Arc<App>,
    actor: Actor,
    origin: &Provenance,
    node: NodeId,
    ttl: Option<Span>,
) -> Result<IssuedBundle, Failure> {
    let drawn = recovery_token::draw(app)?;
    let before = app.view().audit.seq;
    let profile = app.config.recovery.id.clone();
    let command = IssueRepairBundle { node: node.clone(), mint: drawn.mint, ttl, profile };
    let (_, view) = app.commit(actor, origin, Command::IssueRepairBundle(command)).await?;
    let record = view.state.nodes.get(&node).and_then(|node| node.recovery.token(drawn.mint.token));
    let token = record.cloned().ok_or(Rejection::PreparedStale)?;
    let mut after = before;
    while after < view.audit.seq {
        if let Some(record) = recorded(app, token.id, after, CHUNK).await? {
            return Ok(IssuedBundle { drawn, token, record, view });
        }
        after = after.saturating_add(CHUNK as u64);
    }
    Err(Failure::internal("a repair bundle has no line in the audit trail", &token.id))
}

/// What the audit trail says of a token's bundle, in so many lines after one.
pub async fn recorded(
    app: &Arc<App>,
    token: TokenId,
    after: u64,
    count: usize,
) -> Result<Option<BundleRecord>, Failure> {
    let audit = app.journal.audit().clone();
    let unreadable =
        |error: &dyn std::fmt::Display| Failure::internal("the audit trail could not be read", error);
    let lines = tokio::task::spawn_blocking(move || audit.list(after, count)).await;
    let lines = lines.map_err(|error| unreadable(&error))?.map_err(|error| unreadable(&error))?;
    Ok(lines.iter().find_map(|line| parse(line, token)))
}

fn parse(line: &str, token: TokenId) -> Option<BundleRecord> {
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    let text = |field: &str| line.get(field).and_then(serde_json::Value::as_str);
    let ours = text("event_type") == Some("repair_bundle.issued")
        && text("recovery_token_id") == Some(token.to_string().as_str());
    ours.then(|| {
        Some(BundleRecord {
            seq: line.get("seq")?.as_u64()?,
            hash: text("hash")?.to_owned(),
            profile: text("recovery_profile_id")?.to_owned(),
        })
    })
    .flatten()
}
