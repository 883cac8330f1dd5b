//! `/v1/policy`.

use crate::edge::authenticate;
use crate::http::extract::{Caller, Json};
use crate::http::failure::Failure;
use crate::process::app::App;
use api::rest::policy::{PolicyItem, PolicyList, SetPolicyRequest};
use axum::extract::State;
use lifecycle::registry::{Act, Command, Confirmation, SetPolicy};
use std::sync::Arc;

pub async fn show(State(app): State<Arc<App>>, caller: Caller) -> Result<axum::Json<PolicyList>, Failure> {
    let (view, _) = authenticate::reader(&app, &caller.actor, Act::ReadPolicy)?;
    Ok(axum::Json(PolicyList::of(&view.state.policy)))
}

pub async fn set(
    State(app): State<Arc<App>>,
    caller: Caller,
    Json(SetPolicyRequest { key, value, confirm }): Json<SetPolicyRequest>,
) -> Result<axum::Json<PolicyItem>, Failure> {
    // Older logs hold values that do not fit, so that the rule is asked here and not where the log is applied.
    let (view, _) = authenticate::reader(&app, &caller.actor, Act::SetPolicy)?;
    view.state.check_policy_fits(&key, &value)?;
    let command =
        Command::SetPolicy(SetPolicy { key: key.clone(), value, confirm: Confirmation::Asked(confirm) });
    let (_, view) = app.commit(caller.actor, &caller.origin, command).await?;
    let value = view.state.policy.get(&key).unwrap_or_default();
    Ok(axum::Json(PolicyItem { key, value }))
}
