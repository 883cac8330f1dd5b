//! The operator API: one file per family of paths. Each handler reads, or gives one command.

mod audit;
mod ca;
mod events;
mod extract;
mod health;
mod nodes;
mod operators;
mod policy;
mod tenants;
mod tokens;

pub use health::metrics_text;

use crate::app::App;
use crate::doors;
use crate::failure::Failure;
use api::code;
use axum::Router;
use axum::response::IntoResponse;
use axum::routing::{delete, get};
use std::sync::Arc;

/// Every path of the TLS port and of the operator socket.
pub fn router(app: &Arc<App>) -> Router {
    Router::new()
        .route("/v1/tokens", get(tokens::list).post(tokens::create))
        .route("/v1/tokens/{id}", get(tokens::show).delete(tokens::revoke))
        .route("/v1/nodes", get(nodes::list))
        .route("/v1/nodes/{id}", get(nodes::show))
        .route("/v1/tenants", get(tenants::list).post(tenants::create))
        .route("/v1/policy", get(policy::show).put(policy::set))
        .route("/v1/ca", get(ca::show))
        .route("/v1/ca/bundle", get(ca::bundle))
        .route("/v1/audit", get(audit::list))
        .route("/v1/audit/export", get(audit::export))
        .route("/v1/audit/verify", get(audit::verify))
        .route("/v1/operators", get(operators::list).post(operators::add))
        .route("/v1/operators/{name}", delete(operators::remove))
        .route("/v1/operator-keys", get(operators::list_keys).post(operators::create_key))
        .route("/v1/operator-keys/{id}", delete(operators::revoke_key))
        .route("/v1/events", get(events::follow))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics))
        .route("/openapi.json", get(health::openapi))
        .route_service("/enlist.agent.v1.Agent/{method}", doors::native::service(app))
        .fallback(|| async { Failure::new(code::NOT_FOUND, "there is nothing at this path").into_response() })
        .method_not_allowed_fallback(|| async {
            Failure::new(code::METHOD_NOT_ALLOWED, "this path has no such method").into_response()
        })
        .with_state(app.clone())
}
