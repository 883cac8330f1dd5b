//! An operator on the same machine.

use crate::plane::Plane;
use crate::wire::Error;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::UnixStream;

pub struct Operator(SendRequest<Full<Bytes>>);

impl Operator {
    pub async fn connect(plane: &Plane) -> Result<Self, Error> {
        let stream = UnixStream::connect(plane.data().join("operator.sock")).await?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self(sender))
    }

    pub async fn ask(&mut self, method: &str, path: &str, body: Value) -> Result<Value, Error> {
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header("host", "localhost").header("content-type", "application/json");
        self.0.ready().await?;
        let response = self.0.send_request(request.body(Full::new(Bytes::from(body.to_string())))?).await?;
        let status = response.status();
        let bytes = response.into_body().collect().await?.to_bytes();
        if !status.is_success() {
            return Err(format!("{method} {path}: {status} {}", String::from_utf8_lossy(&bytes)).into());
        }
        Ok(if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes)? })
    }

    pub async fn token(&mut self, fields: Value) -> Result<(String, String), Error> {
        let minted = self.ask("POST", "/v1/tokens", fields).await?;
        let text = |name: &str| minted.get(name).and_then(Value::as_str).map(str::to_owned).ok_or("no token");
        Ok((text("token_id")?, text("token")?))
    }
}
