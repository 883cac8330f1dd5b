//! `/v1/tenants`.

use crate::edge::authenticate;
use crate::http::extract::{Caller, Json, bad};
use crate::http::failure::Failure;
use crate::process::app::App;
use api::rest::page::Page;
use api::rest::tenants::{self, TenantItem};
use axum::extract::State;
use http::StatusCode;
use lifecycle::names::TenantId;
use lifecycle::registry::{Act, Command, CreateTenant, Rejection};
use std::sync::Arc;

pub async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
) -> Result<axum::Json<Page<TenantItem>>, Failure> {
    let (view, tenants) = authenticate::reader(&app, &caller.actor, Act::ReadTenants)?;
    let seen = view.state.tenants.values().filter(|tenant| tenants.include(&tenant.name));
    Ok(axum::Json(Page::whole(seen.map(TenantItem::of).collect())))
}

pub async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    Json(request): Json<tenants::CreateTenantRequest>,
) -> Result<(StatusCode, axum::Json<TenantItem>), Failure> {
    let tenant = TenantId::parse(&request.name).map_err(bad)?;
    let command = Command::CreateTenant(CreateTenant { tenant: tenant.clone() });
    let (_, view) = app.commit(caller.actor, &caller.origin, command).await?;
    let made = view.state.tenants.get(&tenant).ok_or(Rejection::TenantNotFound { tenant })?;
    Ok((StatusCode::CREATED, axum::Json(TenantItem::of(made))))
}
