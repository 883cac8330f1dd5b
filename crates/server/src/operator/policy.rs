//! `/v1/policy`.

use super::extract::{Caller, Json};
use crate::app::App;
use crate::auth;
use crate::failure::Failure;
use api::rest::policy::{PolicyItem, PolicyList};
use axum::extract::State;
use lifecycle::registry::{Act, Command, SetPolicy};
use std::sync::Arc;

pub async fn show(State(app): State<Arc<App>>, caller: Caller) -> Result<axum::Json<PolicyList>, Failure> {
    let (view, _) = auth::reader(&app, &caller.actor, Act::ReadPolicy)?;
    Ok(axum::Json(PolicyList::of(&view.state.policy)))
}

pub async fn set(
    State(app): State<Arc<App>>,
    caller: Caller,
    Json(PolicyItem { key, value }): Json<PolicyItem>,
) -> Result<axum::Json<PolicyItem>, Failure> {
    let command = Command::SetPolicy(SetPolicy { key: key.clone(), value });
    app.commit(caller.actor, &caller.origin, command).await?;
    let value = app.view().state.policy.get(&key).unwrap_or_default();
    Ok(axum::Json(PolicyItem { key, value }))
}
