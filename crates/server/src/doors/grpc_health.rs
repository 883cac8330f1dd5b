//! `grpc.health.v1`: the readiness of `/readyz` for clients and load balancers that speak gRPC. Like that path it needs no
//! credential, so it says whether this replica serves and not why.

use crate::doors;
use crate::process::app::App;
use api::code;
use api::grpc::health::health_check_response::ServingStatus;
use api::grpc::health::health_server::{Health, HealthServer};
use api::grpc::health::{HealthCheckRequest, HealthCheckResponse};
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use std::sync::Arc;
use std::time::Duration;
use tonic::{Request, Response, Status};

use crate::http::failure::Failure;

pub const SERVICE: &str = "grpc.health.v1.Health";
/// How soon a watcher hears of a change.
const LOOK: Duration = Duration::from_secs(2);

pub fn service(app: &Arc<App>) -> HealthServer<Readiness> {
    let limit = usize::try_from(crate::edge::body::BODY_LIMIT).unwrap_or(usize::MAX);
    HealthServer::new(Readiness { app: app.clone() }).max_decoding_message_size(limit)
}

pub struct Readiness {
    app: Arc<App>,
}

impl Readiness {
    fn status(&self) -> ServingStatus {
        if self.app.readiness().0 { ServingStatus::Serving } else { ServingStatus::NotServing }
    }

    /// The server as a whole, or a service that it has: all of them serve or none does.
    fn knows(&self, service: &str) -> bool {
        service.is_empty() || doors::serves(&self.app, service)
    }
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

#[tonic::async_trait]
impl Health for Readiness {
    type WatchStream = BoxStream<'static, Result<HealthCheckResponse, Status>>;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        if self.knows(&request.get_ref().service) {
            return Ok(Response::new(response(self.status())));
        }
        let failure = Failure::new(code::NOT_FOUND, "this control plane has no such gRPC service");
        Err(doors::native::status(&failure))
    }

    /// Nothing is spawned: a watcher that does not read is not looked after, and without a credential its connection ends
    /// after a minute.
    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let known = self.knows(&request.get_ref().service);
        let watched = Readiness { app: self.app.clone() };
        let changes = stream::unfold((watched, None), move |(watched, sent)| async move {
            loop {
                let now = if known { watched.status() } else { ServingStatus::ServiceUnknown };
                if sent != Some(now) {
                    return Some((Ok(response(now)), (watched, Some(now))));
                }
                tokio::select! {
                    () = tokio::time::sleep(LOOK) => {}
                    // It has said by then that it does not serve any more.
                    () = watched.app.stopped(), if now != ServingStatus::Serving => return None,
                }
            }
        });
        Ok(Response::new(changes.boxed()))
    }
}
