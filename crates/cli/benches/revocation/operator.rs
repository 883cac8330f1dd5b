//! An operator on the same machine.

use crate::plane::Plane;
use crate::wire::Error;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use std::time::Instant;
use tokio::net::UnixStream;

pub struct Operator(SendRequest<Full<Bytes>>);

impl Operator {
    pub async fn connect(plane: &Plane) -> Result<Self, Error> {
        let stream = UnixStream::connect(plane.data().join("operator.sock")).await?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self(sender))
    }

    /// When it was answered.
    pub async fn revoke(&mut self, node: &str) -> Result<Instant, Error> {
        let request = http::Request::post(format!("/v1/nodes/{node}/revoke"));
        self.ask(request, Bytes::from_static(b"{}")).await
    }

    /// Sets the document of nodes in no vCluster. When it was answered.
    pub async fn configure(&mut self, document: String) -> Result<Instant, Error> {
        self.ask(http::Request::put("/v1/vcluster-defaults"), document.into()).await
    }

    async fn ask(&mut self, request: http::request::Builder, body: Bytes) -> Result<Instant, Error> {
        let request = request.header("host", "localhost").header("content-type", "application/json");
        self.0.ready().await?;
        let response = self.0.send_request(request.body(Full::new(body))?).await?;
        let status = response.status();
        response.into_body().collect().await?;
        if status.is_success() { Ok(Instant::now()) } else { Err(format!("refused: {status}").into()) }
    }
}
