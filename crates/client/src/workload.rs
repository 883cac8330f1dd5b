//! SPIFFE's Workload API: the identities that SPIRE gives to this process, over a socket of the host. Whatever listens there is
//! bounded in size and time, and believed only as far as the control plane believes the SVID.

use api::workload::{SpiffeWorkloadApiClient, X509svidRequest, X509svidResponse};
use http::Uri;
use hyper_util::rt::TokioIo;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::timeout;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Streaming};

/// For connection and HTTP/2 preface.
const CONNECT: Duration = Duration::from_secs(5);
/// Until the first SVID. SPIRE answers at once, if only to say that there is none.
const FIRST: Duration = Duration::from_secs(10);
/// A handful of SVIDs with their bundles.
const MESSAGE_BYTES: usize = 256 * 1024;
const HEADER_BYTES: u32 = 16 * 1024;
/// Without it SPIRE refuses: it keeps a browser from being made to ask.
const HEADER: &str = "workload.spiffe.io";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkloadError {
    #[error("{0:?} is not a socket of this host: expected unix:///PATH or /PATH")]
    Address(String),
    #[error("the Workload API cannot be reached: {0}")]
    Unreachable(String),
    #[error("the Workload API did not answer in time")]
    TimedOut,
    #[error("the Workload API gives no identity: {0}")]
    Refused(String),
    #[error("the Workload API ended the stream")]
    Ended,
}

/// The path of a socket, as `SPIFFE_ENDPOINT_SOCKET` names it.
pub fn socket_path(address: &str) -> Result<PathBuf, WorkloadError> {
    let path = address.strip_prefix("unix://").or_else(|| address.strip_prefix("unix:")).unwrap_or(address);
    match path.starts_with('/') && path.len() < 108 {
        true => Ok(PathBuf::from(path)),
        false => Err(WorkloadError::Address(address.chars().take(128).collect())),
    }
}

/// What SPIRE gives, and whatever it gives instead later.
#[derive(Debug)]
pub struct SvidStream {
    stream: Streaming<X509svidResponse>,
    first: bool,
}

impl SvidStream {
    pub async fn open(socket: &Path) -> Result<Self, WorkloadError> {
        let channel = match timeout(CONNECT, connect(socket)).await {
            Ok(channel) => channel?,
            Err(_) => return Err(WorkloadError::TimedOut),
        };
        let mut client = SpiffeWorkloadApiClient::new(channel).max_decoding_message_size(MESSAGE_BYTES);
        let mut request = Request::new(X509svidRequest {});
        request.metadata_mut().insert(HEADER, MetadataValue::from_static("true"));
        match timeout(FIRST, client.fetch_x509svid(request)).await {
            Ok(Ok(answer)) => Ok(Self { stream: answer.into_inner(), first: true }),
            Ok(Err(status)) => Err(refused(&status)),
            Err(_) => Err(WorkloadError::TimedOut),
        }
    }

    /// The next answer; after the first one there may be none for as long as the SVIDs live. Nothing is lost if this is dropped
    /// while it waits.
    pub async fn next(&mut self) -> Result<X509svidResponse, WorkloadError> {
        let message = match self.first {
            true => timeout(FIRST, self.stream.message()).await.map_err(|_| WorkloadError::TimedOut)?,
            false => self.stream.message().await,
        };
        self.first = false;
        match message {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err(WorkloadError::Ended),
            Err(status) => Err(refused(&status)),
        }
    }
}

/// What a stranger says is shortened before it is logged.
fn refused(status: &tonic::Status) -> WorkloadError {
    let said: String = status.message().chars().filter(|c| !c.is_control()).take(200).collect();
    WorkloadError::Refused(format!("{:?}: {said}", status.code()))
}

async fn connect(socket: &Path) -> Result<Channel, WorkloadError> {
    let unreachable = |error: &dyn std::fmt::Display| WorkloadError::Unreachable(error.to_string());
    let stream = UnixStream::connect(socket).await.map_err(|error| unreachable(&error))?;
    let mut stream = Some(stream);
    let connector = tower::service_fn(move |_: Uri| {
        let stream = stream.take().map(TokioIo::new);
        async move { stream.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::NotConnected)) }
    });
    Endpoint::from_static("http://localhost")
        .http2_max_header_list_size(HEADER_BYTES)
        .connect_with_connector(connector)
        .await
        .map_err(|error| unreachable(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_named_as_spiffe_names_them() {
        for address in ["unix:///run/spire/agent.sock", "unix:/run/spire/agent.sock", "/run/spire/agent.sock"]
        {
            assert_eq!(socket_path(address), Ok(PathBuf::from("/run/spire/agent.sock")));
        }
        for bad in ["", "tcp://127.0.0.1:1", "unix://relative", "agent.sock"] {
            assert!(socket_path(bad).is_err(), "{bad}");
        }
        assert!(socket_path(&format!("/{}", "a".repeat(200))).is_err());
    }
}
