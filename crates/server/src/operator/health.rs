//! `/healthz`, `/readyz`, `/metrics`, `/openapi.json`.

use crate::cluster;
use crate::edge::authenticate;
use crate::http::extract::Caller;
use crate::http::failure::Failure;
use crate::process::app::App;
use api::rest::health::{Alive, Health};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{StatusCode, header};
use journal::View;
use lifecycle::registry::Act;
use std::sync::{Arc, LazyLock};

pub async fn alive() -> axum::Json<Alive> {
    axum::Json(Alive { ok: true })
}

/// Whether this replica serves. The reasons are words, so that a load balancer's log can be read.
pub async fn ready(State(app): State<Arc<App>>) -> Response {
    let (ready, reasons) = app.readiness();
    let reasons = reasons.into_iter().map(str::to_owned).collect();
    if let Some(cause) = app.journal.failure() {
        tracing::error!(%cause, "replication has stopped");
    }
    let role = cluster::role(&app).as_str().to_owned();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, axum::Json(Health { ready, reasons, role })).into_response()
}

/// On the TLS port for operators only; a scraper without a credential uses `--metrics`.
pub async fn metrics(State(app): State<Arc<App>>, caller: Caller) -> Result<Response, Failure> {
    let (view, _) = authenticate::reader(&app, &caller.actor, Act::ReadMetrics)?;
    Ok(metrics_text(&app, &view))
}

pub fn metrics_text(app: &App, view: &View) -> Response {
    let (ready, _) = app.readiness();
    app.metrics.replication(&cluster::status::figures(app), app.clock.read().wall);
    let overflowed = app.edge.refusals.overflowed();
    let outside = (app.ca.hsm.is_available(), app.ca.step_ca.is_available(), app.ca.spire.first_end());
    let text = app.metrics.text(view, &app.fleet, overflowed, ready, outside, app.clock.read());
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

/// Made once: it is served without authentication.
static OPENAPI: LazyLock<Result<Bytes, String>> =
    LazyLock::new(|| api::openapi::json().map(Bytes::from).map_err(|error| error.to_string()));

pub async fn openapi() -> Result<Response, Failure> {
    match &*OPENAPI {
        Ok(text) => Ok(([(header::CONTENT_TYPE, "application/json")], text.clone()).into_response()),
        Err(error) => Err(Failure::internal("the API could not be described", error)),
    }
}
