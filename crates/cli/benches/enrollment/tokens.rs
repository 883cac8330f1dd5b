//! Tokens, as an operator on the same machine makes them.

use crate::plane::Plane;
use crate::wire::Error;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;

/// Tokens through the operator socket, on a few connections.
pub async fn mint(plane: &Plane, count: usize) -> Result<Vec<String>, Error> {
    let socket = plane.data().join("operator.sock");
    let mut tasks = Vec::new();
    for part in 0..16 {
        let socket = socket.clone();
        let share = count / 16 + usize::from(part < count % 16);
        tasks.push(tokio::spawn(async move {
            let stream = UnixStream::connect(socket).await?;
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
            let driver = tokio::spawn(connection);
            let mut tokens = Vec::with_capacity(share);
            for _ in 0..share {
                let request = http::Request::post("/v1/tokens")
                    .header("host", "localhost")
                    .header("content-type", "application/json");
                let response =
                    sender.send_request(request.body(Full::new(Bytes::from_static(b"{}")))?).await?;
                let body = response.into_body().collect().await?.to_bytes();
                let value: serde_json::Value = serde_json::from_slice(&body)?;
                tokens
                    .push(value.get("token").and_then(|token| token.as_str()).ok_or("no token")?.to_owned());
            }
            driver.abort();
            Ok::<_, Error>(tokens)
        }));
    }
    let mut tokens = Vec::with_capacity(count);
    for task in tasks {
        tokens.extend(task.await??);
    }
    Ok(tokens)
}
