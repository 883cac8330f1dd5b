//! `/v1/nodes/{id}/repair-bundle`.

use super::nodes::parse;
use crate::http::extract::{Caller, Json, Segment, duration};
use crate::http::failure::Failure;
use crate::issuance::repair;
use crate::process::app::App;
use api::rest::nodes::{IssueRepairBundleRequest, RepairBundle};
use api::rest::secret::Secret;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use std::sync::Arc;

pub async fn issue(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(id): Segment,
    Json(IssueRepairBundleRequest { expires }): Json<IssueRepairBundleRequest>,
) -> Result<impl IntoResponse, Failure> {
    let (node, ttl) = (parse(&id)?, duration("expires", expires.as_deref())?);
    let issued_by = caller.actor.to_string();
    let issued = repair::issue(&app, caller.actor, &caller.origin, node.clone(), ttl).await?;
    let view = &issued.view;
    let profile = issued.profile;
    let bundle = RepairBundle {
        version: RepairBundle::VERSION,
        node_id: node.to_string(),
        domain: view.state.domain.as_ref().map(|domain| domain.name.to_string()).unwrap_or_default(),
        recovery_token: Secret::new(issued.drawn.value.as_str()),
        recovery_profile_id: profile.id,
        recovery_url: profile.url,
        recovery_ca_pem: profile.ca,
        issued_by,
        issued_at: issued.token.minted_at.to_string(),
        expires_at: issued.token.expires_at.to_string(),
        audit_seq: issued.record.seq,
        audit_hash: issued.record.hash,
    };
    // It holds a secret that nobody on the way should keep.
    Ok(([(header::CACHE_CONTROL, "no-store")], axum::Json(bundle)))
}
