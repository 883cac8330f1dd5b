//! The pact door: machines that are known by their hardware, and the configuration of their vClusters. gRPC in pact's own words.
//! Without a credential one can enroll here, and nothing else.

mod acts;
mod batch;
mod boot_config;
mod config_frames;
mod config_reader;
mod enroll;
mod enrollment;
mod hardware;
mod nodes;
mod register;
mod renew;
mod status;
mod subscription;

pub use status::refusal;

use crate::edge::body::{BATCH_LIMIT, BODY_LIMIT};
use crate::edge::shared_frames::interleaved;
use crate::process::app::App;
use api::doors::pact::enrollment::EnrollmentServiceServer;
use api::doors::pact::stream::BootConfigServiceServer;
use axum::Router;
use boot_config::Configurations;
use enrollment::Enrollments;
use lifecycle::registry::NodeState;
use std::sync::Arc;
use tower::util::MapResponseLayer;

pub const ENROLLMENT: &str = "pact.enrollment.EnrollmentService";
pub const BOOT_CONFIG: &str = "pact.stream.BootConfigService";
/// The one call whose answer lasts.
pub const SUBSCRIBE: &str = "/pact.stream.BootConfigService/SubscribeConfigUpdates";
/// The one call whose request may be large.
pub const BATCH: &str = "/pact.enrollment.EnrollmentService/BatchRegisterNodes";

pub fn router(app: &Arc<App>) -> Router<Arc<App>> {
    let enrollment = |limit: u64| {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        EnrollmentServiceServer::new(Enrollments { app: app.clone() }).max_decoding_message_size(limit)
    };
    let configurations = BootConfigServiceServer::new(Configurations { app: app.clone() })
        .max_decoding_message_size(usize::try_from(BODY_LIMIT).unwrap_or(usize::MAX));
    // Both answers consist of shared frames, also the one that is not counted among those that last.
    let configurations = Router::new()
        .route_service("/pact.stream.BootConfigService/{method}", configurations)
        .layer(MapResponseLayer::new(interleaved));
    Router::new()
        .route_service(BATCH, enrollment(BATCH_LIMIT))
        .route_service("/pact.enrollment.EnrollmentService/{method}", enrollment(BODY_LIMIT))
        .merge(configurations)
}

/// Whether failures of this path are told in pact's words.
pub fn owns(path: &str) -> bool {
    path.starts_with("/pact.")
}

/// The document has four states. Who has a certificate is active, confirmed or not; who is gone is revoked, however it ended.
fn state_word(state: NodeState) -> &'static str {
    match state {
        NodeState::Registered => "Registered",
        NodeState::Enrolled | NodeState::Active => "Active",
        NodeState::Inactive => "Inactive",
        NodeState::Revoked | NodeState::Decommissioned => "Revoked",
    }
}
