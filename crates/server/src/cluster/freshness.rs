//! Every request is judged by what the cluster has acknowledged, if there is a leader to ask; otherwise by what this replica knows,
//! and the answer says how old that is.

use crate::process::app::App;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderName, HeaderValue};
use std::sync::Arc;

const STATE_AGE: HeaderName = HeaderName::from_static(api::header::STATE_AGE);

pub async fn layer(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    if app.journal.is_alone() || is_about_itself(request.uri().path()) {
        return next.run(request).await;
    }
    let fresh = super::caught_up(&app).await;
    let mut response = next.run(request).await;
    if !fresh {
        response.headers_mut().insert(STATE_AGE, HeaderValue::from(super::state_age_ms(&app)));
    }
    response
}

/// What a replica says of itself it knows.
fn is_about_itself(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz" | "/metrics" | "/openapi.json" | "/v1/cluster")
}
