//! The operator API: one file per family of paths. Each handler reads, or gives one command.

pub(crate) mod acts;
mod alerts;
mod audit;
mod audit_readers;
mod bootstrap;
mod ca;
mod clock;
mod cluster;
mod events;
mod health;
mod import;
mod node_filter;
pub(crate) mod nodes;
mod operators;
mod overlay;
mod policy;
mod register;
mod renewal;
mod repair;
mod tenants;
mod timeline;
pub(crate) mod tokens;
mod vclusters;

pub use audit_readers::AuditReaders;
pub use health::metrics_text;

use crate::cluster::freshness;
use crate::doors;
use crate::http::cross_site;
use crate::http::failure::Failure;
use crate::process::app::App;
use api::code;
use axum::Router;
use axum::response::IntoResponse;
use axum::routing::{delete, get, post};
use std::sync::Arc;

/// Whether it is there, and whether it serves.
pub fn health_router() -> Router<Arc<App>> {
    Router::new().route("/healthz", get(health::alive)).route("/readyz", get(health::ready))
}

/// Every path of the TLS port and of the operator socket.
pub fn router(app: &Arc<App>) -> Router {
    Router::new()
        .route("/v1/tokens", get(tokens::list).post(tokens::create))
        .route("/v1/tokens/{id}", get(tokens::show).delete(tokens::revoke))
        .route("/v1/nodes", get(nodes::list).post(register::register))
        .route("/v1/nodes/{id}", get(nodes::show))
        .route("/v1/nodes/{id}/timeline", get(timeline::show))
        .route("/v1/nodes/import", post(import::import))
        // A node may be called `batch`, too.
        .route("/v1/nodes/batch", get(nodes::show_batch).post(register::batch))
        .route("/v1/nodes/{id}/drain", post(acts::drain))
        .route("/v1/nodes/{id}/undrain", post(acts::undrain))
        .route("/v1/nodes/{id}/quarantine", post(acts::quarantine))
        .route("/v1/nodes/{id}/release", post(acts::release))
        .route("/v1/nodes/{id}/rotate", post(acts::rotate))
        .route("/v1/nodes/{id}/decommission", post(acts::decommission))
        .route("/v1/nodes/{id}/revoke", post(acts::revoke))
        .route("/v1/nodes/{id}/reinstate", post(acts::reinstate))
        .route("/v1/nodes/{id}/label", post(acts::label))
        .route("/v1/nodes/{id}/repair-bundle", post(repair::issue))
        .route("/v1/nodes/{id}/recovery/revoke", post(acts::revoke_recovery))
        .route("/v1/nodes/{id}/assign", post(acts::assign))
        .route("/v1/nodes/{id}/unassign", post(acts::unassign))
        .route("/v1/nodes/{id}/move", post(acts::relocate))
        .route("/v1/nodes/{id}/config", post(vclusters::set_node_config).put(vclusters::set_node_config))
        .route("/v1/vclusters", get(vclusters::list).post(vclusters::create))
        .route("/v1/vclusters/{name}", get(vclusters::show).delete(vclusters::remove))
        .route(
            "/v1/vclusters/{name}/config",
            get(vclusters::show_config).put(vclusters::set_config).post(vclusters::set_config),
        )
        .route(
            "/v1/vcluster-defaults",
            get(vclusters::show_defaults).put(vclusters::set_defaults).post(vclusters::set_defaults),
        )
        .route("/v1/overlay", get(overlay::status))
        .route("/v1/alerts", get(alerts::list))
        .route("/v1/alerts/{id}", get(alerts::show))
        .route("/v1/alerts/{id}/ack", post(alerts::acknowledge))
        .route("/v1/tenants", get(tenants::list).post(tenants::create))
        .route("/v1/policy", get(policy::show).put(policy::set))
        .route("/v1/ca", get(ca::show))
        .route("/v1/ca/bundle", get(ca::bundle))
        .route("/v1/ca/crl", get(ca::list))
        .route("/v1/ca/trust", get(ca::trust))
        .route("/v1/ca/bootstrap", get(bootstrap::list).post(bootstrap::issue))
        .route("/v1/ca/bootstrap/{name}", delete(bootstrap::revoke))
        .route("/v1/ca/roll", get(ca::roll))
        .route("/v1/ca/roll/prepare", post(ca::prepare))
        .route("/v1/ca/roll/activate", post(ca::activate))
        .route("/v1/ca/roll/retire", post(ca::retire))
        .route("/v1/ca/roll/abandon", post(ca::abandon))
        .route("/v1/ca/lists", post(ca::import_list))
        .route("/v1/ca/issuers/{id}/revoke", post(ca::revoke))
        .route("/v1/ca/rewrap", post(ca::rewrap))
        .route("/v1/ca/step-ca", post(ca::change_step_ca))
        .route("/v1/audit", get(audit::list))
        .route("/v1/audit/export", get(audit::export))
        .route("/v1/audit/verify", get(audit::verify))
        .route("/v1/operators", get(operators::list).post(operators::add))
        // An operator may be called `renew`, too.
        .route("/v1/operators/renew", post(renewal::renew).delete(renewal::remove))
        .route("/v1/operators/{name}", delete(operators::remove))
        .route("/v1/operator-keys", get(operators::list_keys).post(operators::create_key))
        .route("/v1/operator-keys/{id}", delete(operators::revoke_key))
        .route("/v1/events", get(events::follow))
        .route("/v1/cluster", get(cluster::show))
        .route("/v1/cluster/tokens", post(cluster::create_token))
        .route("/v1/cluster/join", post(cluster::join))
        .route("/v1/cluster/replicas/{id}/remove", post(cluster::remove))
        .route("/v1/server/clock", get(clock::show))
        .route("/v1/server/clock/accept", post(clock::accept))
        .merge(health_router())
        .route("/metrics", get(health::metrics))
        .route("/openapi.json", get(health::openapi))
        .merge(doors::router(app))
        .fallback(|| async { Failure::new(code::NOT_FOUND, "there is nothing at this path").into_response() })
        .method_not_allowed_fallback(|| async {
            Failure::new(code::METHOD_NOT_ALLOWED, "this path has no such method").into_response()
        })
        .layer(axum::middleware::from_fn_with_state(app.clone(), freshness::layer))
        .layer(axum::middleware::from_fn_with_state(app.clone(), cross_site::guard))
        .with_state(app.clone())
}
