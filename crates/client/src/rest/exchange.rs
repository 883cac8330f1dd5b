//! One request and the head of its answer, over a connection of its own.

use crate::connect::connect;
use crate::error::Error;
use crate::unreachable::Unreachable;
use crate::url::ServerUrl;
use crate::watched::{Cause, Watched};
use bytes::Bytes;
use http::{Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

/// From sending the request to the end of its answer, streams excepted.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// For the head of an answer.
const HEAD_BYTES: usize = 64 * 1024;
const HEADERS: usize = 64;

#[derive(Debug, Clone)]
pub(super) enum RestTransport {
    Socket(PathBuf),
    /// Replicas of one control plane, in order of preference.
    Servers {
        servers: Vec<ServerUrl>,
        tls: Arc<ClientConfig>,
    },
}

/// One place where the operator API may be served.
pub(super) enum RestPlace<'a> {
    Socket(&'a Path),
    Server { server: &'a ServerUrl, tls: &'a Arc<ClientConfig> },
}

impl RestTransport {
    /// In order of preference.
    pub(super) fn places(&self) -> Vec<RestPlace<'_>> {
        match self {
            RestTransport::Socket(path) => vec![RestPlace::Socket(path)],
            RestTransport::Servers { servers, tls } => {
                servers.iter().map(|server| RestPlace::Server { server, tls }).collect()
            }
        }
    }

    /// The server, as errors name it.
    pub(super) fn server(&self) -> String {
        match self {
            RestTransport::Socket(path) => path.display().to_string(),
            RestTransport::Servers { servers, .. } => {
                servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
            }
        }
    }
}

/// Why there is no answer.
pub(super) struct FailedExchange {
    pub(super) error: Error,
    /// Whether the request may have reached the other side, and been carried out.
    pub(super) is_sent: bool,
}

impl FailedExchange {
    fn unsent(error: Error) -> Self {
        Self { error, is_sent: false }
    }

    fn sent(error: Error) -> Self {
        Self { error, is_sent: true }
    }
}

/// An answer whose head has come. Dropping it ends the connection.
pub(super) struct RestResponse {
    pub(super) response: Response<Incoming>,
    pub(super) source: ResponseSource,
    pub(super) deadline: Instant,
    pub(super) driver: Driver,
}

/// Where an answer comes from, to say so when it breaks off.
pub(super) struct ResponseSource {
    server: String,
    cause: Cause,
}

impl ResponseSource {
    pub(super) fn interrupted(&self, cause: Unreachable) -> Error {
        Error::unreachable(self.server.clone(), self.cause.get().unwrap_or(cause))
    }

    pub(super) fn unexpected(&self, what: impl Into<String>) -> Error {
        Error::unreachable(self.server.clone(), Unreachable::Garbage(what.into()))
    }

    /// It answered, and cannot serve.
    pub(super) fn unavailable(&self, what: impl Into<String>) -> Error {
        Error::unreachable(self.server.clone(), Unreachable::Network(what.into()))
    }

    pub(super) fn failed(&self, error: &hyper::Error) -> Error {
        if error.is_parse() {
            self.unexpected(error.to_string())
        } else {
            self.interrupted(Unreachable::Closed)
        }
    }
}

/// Moves the connection along, for as long as the answer is wanted.
pub(super) struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl RestResponse {
    pub(super) fn status(&self) -> StatusCode {
        self.response.status()
    }
}

pub(super) async fn exchange(
    place: &RestPlace<'_>,
    request: http::request::Builder,
    body: Option<Vec<u8>>,
) -> Result<RestResponse, FailedExchange> {
    let deadline = Instant::now() + CALL_TIMEOUT;
    match place {
        RestPlace::Socket(path) => {
            let server = path.display().to_string();
            let stream = UnixStream::connect(path).await;
            let stream = stream.map_err(|error| FailedExchange::unsent(socket_error(&server, &error)))?;
            let (stream, cause) = Watched::new(stream);
            let source = ResponseSource { server, cause };
            over(stream, source, request.header(header::HOST, "localhost"), body, deadline).await
        }
        RestPlace::Server { server, tls } => {
            let connected = connect(server, (*tls).clone(), deadline).await;
            let (stream, cause) = connected
                .map_err(|cause| FailedExchange::unsent(Error::unreachable(server.to_string(), cause)))?;
            let source = ResponseSource { server: server.to_string(), cause };
            over(stream, source, request.header(header::HOST, server.authority()), body, deadline).await
        }
    }
}

/// A socket that is missing, has no listener, or denies this user: each has its own remedy.
fn socket_error(server: &str, error: &std::io::Error) -> Error {
    let cause = match error.kind() {
        std::io::ErrorKind::ConnectionRefused => Unreachable::ConnectionRefused,
        std::io::ErrorKind::PermissionDenied => Unreachable::SocketForbidden,
        _ => Unreachable::Network(error.to_string()),
    };
    Error::unreachable(server, cause)
}

async fn over<S>(
    stream: S,
    source: ResponseSource,
    mut request: http::request::Builder,
    body: Option<Vec<u8>>,
    deadline: Instant,
) -> Result<RestResponse, FailedExchange>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // Also without a body: a request with a certificate that changes something must say that it is no web page's.
    if body.is_some() || request.method_ref() != Some(&http::Method::GET) {
        request = request.header(header::CONTENT_TYPE, "application/json");
    }
    let request = request
        .header(header::CONNECTION, "close")
        .body(Full::new(Bytes::from(body.unwrap_or_default())))
        .map_err(|error| Error::Usage(format!("the request cannot be written: {error}")))
        .map_err(FailedExchange::unsent)?;
    let handshake = http1::Builder::new()
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEADERS)
        .handshake(TokioIo::new(stream))
        .await;
    let (mut sender, connection) =
        handshake.map_err(|error| FailedExchange::unsent(source.failed(&error)))?;
    let driver = Driver(tokio::spawn(async move {
        // Its error reaches the one who waits for the answer.
        let _ = connection.await;
    }));
    match timeout_at(deadline, sender.send_request(request)).await {
        Err(_) => Err(FailedExchange::sent(source.interrupted(Unreachable::TimedOut("answer")))),
        Ok(Err(error)) => Err(FailedExchange::sent(source.failed(&error))),
        Ok(Ok(response)) => Ok(RestResponse { response, source, deadline, driver }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_is_not_for_this_user_is_no_matter_of_the_network() {
        let error = socket_error("/d/operator.sock", &std::io::ErrorKind::PermissionDenied.into());
        assert!(error.to_string().contains("may not use this operator socket"), "{error}");
        assert!(error.hint().contains("run as root") && error.exit_code() == 4);
    }
}
