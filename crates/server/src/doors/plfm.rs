//! The plfm door: hosts with tokens, an overlay and a confirmation.

mod enroll;
mod host;
mod hosts;
mod overlay;
mod peers;
mod tokens;

use crate::process::app::App;
use axum::Router;
use axum::routing::{delete, get, post};
use std::sync::Arc;

pub fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/v1/hosts/enroll-tokens", get(tokens::list).post(tokens::create))
        .route("/v1/hosts/enroll-tokens/{id}", delete(tokens::revoke))
        .route("/v1/hosts/enroll", post(enroll::enroll))
        .route("/v1/hosts/{id}/confirm-enrollment", post(host::confirm))
        .route("/v1/hosts/{id}/overlay", get(overlay::show))
        .route("/v1/hosts", get(hosts::list))
        .route("/v1/hosts/{id}", get(hosts::show))
        .route("/v1/hosts/{id}/drain", post(hosts::drain))
        .route("/v1/hosts/{id}/decommission", post(hosts::decommission))
        .route("/v1/hosts/{id}/revoke", post(hosts::revoke))
}
