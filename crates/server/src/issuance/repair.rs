//! Repair bundles: what an operator carries to a host that has nothing left to recover with.

use crate::fleet::recovery_token::{self, Drawn};
use crate::http::failure::Failure;
use crate::process::app::{App, Provenance};
use api::agent::RecoveryProfile;
use journal::View;
use lifecycle::names::{NodeId, Span, TokenId};
use lifecycle::registry::{
    Actor, BundleEndpoint, BundleRecord, Command, IssueRepairBundle, RecoveryToken, Rejection,
};
use std::sync::Arc;

/// Lines that are read at once while the one about a bundle is looked for.
const CHUNK: usize = 500;

/// A bundle on record, and the value of its token for the only time.
pub struct IssuedBundle {
    pub drawn: Drawn,
    pub token: RecoveryToken,
    pub record: BundleRecord,
    /// Where the host is to turn to, as it goes on record.
    pub profile: RecoveryProfile,
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
    let view = app.view();
    let before = view.audit.seq;
    let profile = recovery_token::profile(app, &view.state);
    let ca = pki::digest::fingerprint(profile.ca.as_bytes());
    let command = IssueRepairBundle {
        node: node.clone(),
        mint: drawn.mint,
        ttl,
        profile: app.config.recovery.id.clone(),
        endpoint: Some(BundleEndpoint { url: profile.url.clone(), ca }),
    };
    let (_, view) = app.commit(actor, origin, Command::IssueRepairBundle(command)).await?;
    let record = view.state.nodes.get(&node).and_then(|node| node.recovery.token(drawn.mint.token));
    let token = record.cloned().ok_or(Rejection::PreparedStale)?;
    let mut after = before;
    while after < view.audit.seq {
        if let Some(record) = recorded(app, token.id, after, CHUNK).await? {
            return Ok(IssuedBundle { drawn, token, record, profile, view });
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
            issued_by: text("actor")?.to_owned(),
            url: text("recovery_url").map(str::to_owned),
            ca: text("recovery_ca_sha256").map(str::to_owned),
        })
    })
    .flatten()
}
