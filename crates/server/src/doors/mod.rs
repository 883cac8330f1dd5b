//! Doors: each turns one wire shape into the same commands and back. A door holds no rules.
//! Which are open is local configuration; the native one always is.

mod grpc_health;
pub mod host;
pub mod native;
pub mod pact;
mod plfm;
mod probectl;
mod reflection;
pub mod taskrun;

use crate::http::failure::Failure;
use crate::issuance::enroll::Naming;
use crate::process::app::App;
use crate::process::chance;
use api::code;
use axum::Router;
use axum::body::Body;
use http::Response;
use lifecycle::names::{IdempotencyHash, Label, NodeId, ProfileName, is_steering};
use lifecycle::registry::Door;
use std::sync::Arc;
use tower::ServiceExt;

/// How much of a host's own words is kept.
const REASON_LENGTH: usize = 200;

/// How nodes are named where the door has no way of its own: by a ULID, unless the profile is another door's.
const NAMING: Naming = Naming { requested: |_| Ok(None), drawn };

fn drawn(app: &App, profile: &ProfileName) -> Result<NodeId, Failure> {
    if Door::Probectl.profile().as_ref() == Some(profile) {
        return probectl::agent_id();
    }
    drawn_id(&chance::ulid(app.now())?.to_string())
}

fn drawn_id(text: &str) -> Result<NodeId, Failure> {
    NodeId::parse(text).map_err(|error| Failure::internal("a drawn id is no node id", &error))
}

/// The paths of every open door.
pub fn router(app: &Arc<App>) -> Router<Arc<App>> {
    let native = Router::new()
        .route_service("/enlist.agent.v1.Agent/{method}", native::service(app))
        .route_service("/grpc.health.v1.Health/{method}", grpc_health::service(app));
    let native = match app.edge.reflection {
        true => {
            let described = reflection::service(app);
            let earlier = described.clone().map_request(reflection::renamed);
            native
                .route_service("/grpc.reflection.v1.ServerReflection/{method}", described)
                .route_service("/grpc.reflection.v1alpha.ServerReflection/{method}", earlier)
        }
        false => native,
    };
    app.config.doors.serve.iter().fold(native, |router, door| match door {
        Door::Plfm => router.merge(plfm::router()),
        Door::Probectl => router.merge(probectl::router()),
        Door::Taskrun => router.merge(taskrun::router(app)),
        Door::Pact => router.merge(pact::router(app)),
        Door::Native => router,
    })
}

/// Whether a gRPC service of an open door has this path; the service itself says which methods it has.
pub fn serves_grpc(app: &App, path: &str) -> bool {
    let Some((service, method)) = path.strip_prefix('/').and_then(|path| path.split_once('/')) else {
        return false;
    };
    serves(app, service) && !method.is_empty() && !method.contains('/')
}

/// Whether this gRPC service is one of an open door, or one of gRPC's own.
pub fn serves(app: &App, service: &str) -> bool {
    match service {
        native::SERVICE | grpc_health::SERVICE => true,
        reflection::SERVICE | reflection::EARLIER => app.edge.reflection,
        taskrun::stream::SERVICE => app.config.doors.serve.contains(&Door::Taskrun),
        pact::ENROLLMENT | pact::BOOT_CONFIG => app.config.doors.serve.contains(&Door::Pact),
        _ => false,
    }
}

/// Whether the answer of this path lasts as long as both ends want.
pub fn lasts(path: &str) -> bool {
    request_lasts(path) || path == pact::SUBSCRIBE
}

/// Whether the request does too.
pub fn request_lasts(path: &str) -> bool {
    matches!(path, native::LIVE | taskrun::stream::CONNECT)
}

/// A refusal by gRPC, in the words of the path's document.
pub fn refusal(path: &str, failure: &Failure) -> Response<Body> {
    if pact::owns(path) { pact::refusal(failure) } else { native::refusal(failure) }
}

/// The key by which a caller asks again after a lost answer, if it gave one.
fn idempotency(value: Option<&[u8]>) -> Result<Option<IdempotencyHash>, Failure> {
    let Some(value) = value else { return Ok(None) };
    match std::str::from_utf8(value).ok().and_then(|text| Label::parse(text).ok()) {
        Some(key) => Ok(Some(pki::digest::idempotency_hash(key.as_str().as_bytes()))),
        None => Err(Failure::new(
            code::IDEMPOTENCY_KEY_INVALID,
            "the idempotency key is not 1 to 128 visible characters",
        )),
    }
}

/// A host's own words, made fit for a line.
fn plain(reason: &str) -> String {
    let printable = |c: char| if is_steering(c) { ' ' } else { c };
    let text: String = reason.chars().take(REASON_LENGTH).map(printable).collect();
    if text.trim().is_empty() { "unspecified".to_owned() } else { text }
}
