//! `pact.enrollment.EnrollmentService`: who is let through to which act.

use super::{acts, batch, enroll, nodes, register, renew, status};
use crate::edge::authenticate::ConnectionPeer;
use crate::http::extract::Caller;
use crate::http::failure::Failure;
use crate::process::app::{App, Provenance};
use api::doors::pact::enrollment::{
    AssignNodeRequest, AssignNodeResponse, BatchRegisterNodesRequest, BatchRegisterNodesResponse,
    DecommissionNodeRequest, DecommissionNodeResponse, EnrollRequest, EnrollResponse, EnrollmentService,
    InspectNodeRequest, InspectNodeResponse, ListNodesRequest, ListNodesResponse, MoveNodeRequest,
    MoveNodeResponse, RegisterNodeRequest, RegisterNodeResponse, RenewCertRequest, RenewCertResponse,
    UnassignNodeRequest, UnassignNodeResponse,
};
use std::sync::Arc;
use tonic::{Request, Response, Status};

pub struct Enrollments {
    pub app: Arc<App>,
}

/// What the edge knows of a request's connection.
pub fn arrival<T>(request: &Request<T>) -> Result<(ConnectionPeer, Provenance), Failure> {
    let known = request.extensions();
    let found = known.get::<ConnectionPeer>().cloned().zip(known.get::<Provenance>().cloned());
    found.ok_or_else(|| Failure::internal("a request without its connection", &""))
}

impl Enrollments {
    /// An operator by its certificate, or whoever has an API key.
    async fn caller<T>(&self, request: &Request<T>) -> Result<Caller, Status> {
        Caller::of_call(&self.app, request).await.map_err(|failure| status::status(&failure))
    }
}

/// The answer to an act, or its refusal.
fn answered<T>(result: Result<T, Failure>) -> Result<Response<T>, Status> {
    result.map(Response::new).map_err(|failure| status::status(&failure))
}

#[tonic::async_trait]
impl EnrollmentService for Enrollments {
    /// Whatever credential comes with it is not looked at: what a machine says of its hardware is all that counts.
    async fn enroll(&self, request: Request<EnrollRequest>) -> Result<Response<EnrollResponse>, Status> {
        let (_, origin) = arrival(&request).map_err(|failure| status::status(&failure))?;
        enroll::enroll(&self.app, &origin, request).await.map(Response::new)
    }

    async fn register_node(
        &self,
        request: Request<RegisterNodeRequest>,
    ) -> Result<Response<RegisterNodeResponse>, Status> {
        let caller = self.caller(&request).await?;
        answered(register::register(&self.app, &caller, request.get_ref()).await)
    }

    async fn batch_register_nodes(
        &self,
        request: Request<BatchRegisterNodesRequest>,
    ) -> Result<Response<BatchRegisterNodesResponse>, Status> {
        let caller = self.caller(&request).await?;
        answered(batch::register(&self.app, &caller, request.into_inner()).await)
    }

    async fn decommission_node(
        &self,
        request: Request<DecommissionNodeRequest>,
    ) -> Result<Response<DecommissionNodeResponse>, Status> {
        let caller = self.caller(&request).await?;
        answered(acts::decommission(&self.app, caller, request.get_ref()).await)
    }

    async fn assign_node(
        &self,
        request: Request<AssignNodeRequest>,
    ) -> Result<Response<AssignNodeResponse>, Status> {
        let caller = self.caller(&request).await?;
        acts::assign(&self.app, caller, request.into_inner()).await.map(Response::new)
    }

    async fn unassign_node(
        &self,
        request: Request<UnassignNodeRequest>,
    ) -> Result<Response<UnassignNodeResponse>, Status> {
        let caller = self.caller(&request).await?;
        acts::unassign(&self.app, caller, request.into_inner()).await.map(Response::new)
    }

    async fn move_node(
        &self,
        request: Request<MoveNodeRequest>,
    ) -> Result<Response<MoveNodeResponse>, Status> {
        let caller = self.caller(&request).await?;
        acts::relocate(&self.app, caller, request.into_inner()).await.map(Response::new)
    }

    async fn renew_cert(
        &self,
        request: Request<RenewCertRequest>,
    ) -> Result<Response<RenewCertResponse>, Status> {
        let (peer, origin) = arrival(&request).map_err(|failure| status::status(&failure))?;
        answered(renew::renew(&self.app, &peer, &origin, request.into_inner()).await)
    }

    async fn list_nodes(
        &self,
        request: Request<ListNodesRequest>,
    ) -> Result<Response<ListNodesResponse>, Status> {
        let caller = self.caller(&request).await?;
        answered(nodes::list(&self.app, &caller, request.get_ref()).await)
    }

    async fn inspect_node(
        &self,
        request: Request<InspectNodeRequest>,
    ) -> Result<Response<InspectNodeResponse>, Status> {
        let caller = self.caller(&request).await?;
        answered(nodes::inspect(&self.app, &caller, request.get_ref()).await)
    }
}
