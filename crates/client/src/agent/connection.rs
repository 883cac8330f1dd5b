//! One connection to one server, for one call.

use super::Reply;
use crate::connect::{Connection, connect};
use crate::error::{ApiError, Error, retry_after};
use crate::unreachable::Unreachable;
use crate::url::ServerUrl;
use crate::watched::Cause;
use api::agent::{AgentClient, NotNeeded};
use api::error::ErrorDetail;
use api::header;
use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status};

const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// An answer holds a dozen certificates at most.
const ANSWER_BYTES: usize = 256 * 1024;
/// On a standing connection a message may hold two configuration documents of 256 KiB each.
const STREAM_BYTES: usize = 640 * 1024;
/// What a server takes.
const REQUEST_BYTES: usize = 64 * 1024;
const HEADER_BYTES: u32 = 16 * 1024;

/// How often a standing connection is asked whether it still stands, and how long it may take to say so.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// What goes with a call beside its message.
#[derive(Clone)]
pub(super) struct CallMetadata {
    idempotency: Option<MetadataValue<Ascii>>,
    correlation: MetadataValue<Ascii>,
}

impl CallMetadata {
    pub(super) fn new(idempotency: Option<&str>, correlation: &str) -> Result<Self, Error> {
        let value = |text: &str, what: &str| {
            MetadataValue::try_from(text).map_err(|_| Error::Usage(format!("{text:?} is not {what}")))
        };
        let idempotency = idempotency.map(|key| value(key, "an idempotency key")).transpose()?;
        Ok(Self { idempotency, correlation: value(correlation, "a correlation id")? })
    }

    pub(super) fn attach<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert(header::CORRELATION_ID, self.correlation.clone());
        if let Some(key) = &self.idempotency {
            request.metadata_mut().insert(header::IDEMPOTENCY_KEY, key.clone());
        }
        request
    }
}

#[derive(Debug)]
pub(super) struct GrpcConnection {
    client: AgentClient<Channel>,
    server: ServerUrl,
    cause: Cause,
}

impl GrpcConnection {
    pub(super) async fn open(
        server: ServerUrl,
        tls: Arc<ClientConfig>,
        until: Instant,
    ) -> Result<Self, Error> {
        Self::over(server, tls, until, ANSWER_BYTES, |endpoint| endpoint).await
    }

    /// For a stream: a peer that has silently gone away is noticed.
    pub(super) async fn open_standing(
        server: ServerUrl,
        tls: Arc<ClientConfig>,
        until: Instant,
    ) -> Result<Self, Error> {
        Self::over(server, tls, until, STREAM_BYTES, |endpoint| {
            endpoint
                .http2_keep_alive_interval(KEEP_ALIVE)
                .keep_alive_timeout(KEEP_ALIVE)
                .keep_alive_while_idle(true)
        })
        .await
    }

    async fn over(
        server: ServerUrl,
        tls: Arc<ClientConfig>,
        until: Instant,
        message_bytes: usize,
        tune: impl FnOnce(Endpoint) -> Endpoint,
    ) -> Result<Self, Error> {
        let connected = connect(&server, tls, until).await;
        let (stream, cause) = connected.map_err(|cause| Error::unreachable(server.to_string(), cause))?;
        let time_left = until.saturating_duration_since(Instant::now()).min(CALL_TIMEOUT);
        let channel = channel(&server, stream, time_left, tune).await?;
        let client = AgentClient::new(channel)
            .max_decoding_message_size(message_bytes)
            .max_encoding_message_size(REQUEST_BYTES);
        Ok(Self { client, server, cause })
    }

    /// Cloning shares the connection.
    pub(super) fn client(&self) -> AgentClient<Channel> {
        self.client.clone()
    }

    pub(super) fn read<T>(self, answer: Result<Response<T>, Status>) -> Result<Reply<T>, Error> {
        match answer {
            Ok(answer) => {
                let time = answer.metadata().get(header::SERVER_TIME);
                let server_time = time.and_then(|value| value.to_str().ok()?.parse().ok());
                Ok(Reply { server_time, server: self.server, message: answer.into_inner() })
            }
            Err(status) => Err(self.failure(&status)),
        }
    }

    /// A status with an error detail is the control plane's refusal; without one the connection or a proxy failed.
    pub(super) fn failure(&self, status: &Status) -> Error {
        match ErrorDetail::from_status(status) {
            Some(detail) => {
                let asked = status.metadata().get(header::RETRY_AFTER);
                let retry_after = asked.and_then(|value| retry_after(value.to_str().ok()?));
                let time = status.metadata().get(header::SERVER_TIME);
                let server_time = time.and_then(|value| value.to_str().ok()?.parse().ok());
                let not_needed = NotNeeded::from_status(status);
                Error::Refused(Box::new(ApiError { detail, retry_after, server_time, not_needed }))
            }
            None => self.broken(accident(status)),
        }
    }

    /// What broke the connection, or else this.
    pub(super) fn broken(&self, otherwise: Unreachable) -> Error {
        Error::unreachable(self.server.to_string(), self.cause.get().unwrap_or(otherwise))
    }

    pub(super) fn server(&self) -> &ServerUrl {
        &self.server
    }
}

/// How the library says that the answer was a 5xx of HTTP.
const SERVER_FAULT: [&str; 2] = ["HTTP status code 5", "response with status: 5"];

/// A status that no control plane made: the library's own, or a proxy's.
fn accident(status: &Status) -> Unreachable {
    let what = || format!("{:?}: {}", status.code(), status.message());
    match status.code() {
        Code::DeadlineExceeded => Unreachable::TimedOut("answer"),
        // This side gives up on a call only when its time is over.
        Code::Cancelled => Unreachable::TimedOut("answer"),
        Code::Unavailable => Unreachable::Network(what()),
        // What stands before the control plane is there, and the control plane is not. The library tells the second
        // way if a page comes with it.
        _ if SERVER_FAULT.iter().any(|words| status.message().contains(words)) => {
            Unreachable::Network(what())
        }
        _ => Unreachable::Garbage(what()),
    }
}

/// A channel over this connection and no other: once it is gone, the call has failed.
async fn channel(
    server: &ServerUrl,
    stream: Connection,
    time_left: Duration,
    tune: impl FnOnce(Endpoint) -> Endpoint,
) -> Result<Channel, Error> {
    let unusable = |error: &dyn std::fmt::Display| Error::Fault(format!("{server}: {error}"));
    let authority = server.authority();
    let origin = Uri::try_from(format!("https://{authority}")).map_err(|error| unusable(&error))?;
    let mut stream = Some(stream);
    let connector = tower::service_fn(move |_: Uri| {
        let stream = stream.take().map(TokioIo::new);
        async move { stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)) }
    });
    // The connection is encrypted already: for the library it looks plain, for the server it does not.
    let endpoint = Endpoint::from_shared(format!("http://{authority}")).map_err(|error| unusable(&error))?;
    tune(endpoint)
        .origin(origin)
        .timeout(time_left)
        .http2_max_header_list_size(HEADER_BYTES)
        .connect_with_connector(connector)
        .await
        .map_err(|error| Error::unreachable(server.to_string(), Unreachable::Garbage(error.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_5xx_is_an_absence_and_a_page_is_somebody_else() {
        let flag = "received message with invalid compression flag: 60";
        let page = |status: &str| format!("{flag} while receiving response with status: {status}");
        for (status, absent) in [
            (Status::internal(page("503 Service Unavailable")), true),
            (Status::unknown("grpc-status header missing, mapped from HTTP status code 500"), true),
            (Status::internal(page("200 OK")), false),
        ] {
            assert_eq!(matches!(accident(&status), Unreachable::Network(_)), absent, "{status}");
        }
    }
}
