//! Webhooks: one POST of JSON to a foreign server, and whether it was accepted.
//!
//! The receiver is not a control plane: it is recognised by the system's roots, or not at all over plain http,
//! which is for receivers on the same machine. Redirects are not followed, because what was configured is what
//! was meant.

use crate::connect::{connect, dial};
use crate::trust::{Trust, client_config};
use crate::unreachable::Unreachable;
use crate::url::{ServerUrl, UrlError};
use bytes::Bytes;
use http::{Request, StatusCode, Uri, header, uri::Scheme};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use std::convert::Infallible;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout_at};

/// From resolving the name to the head of the answer.
const TIME_LIMIT: Duration = Duration::from_secs(10);
const HEAD_BYTES: usize = 64 * 1024;

/// Where to. The path may hold a secret, so only the origin is ever shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Webhook {
    secure: bool,
    server: ServerUrl,
    /// Name and port as written.
    authority: String,
    path: String,
}

/// Why a receiver did not take what it was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Undelivered {
    #[error("{0}")]
    Unreachable(Unreachable),
    #[error("it answered {0}")]
    Refused(StatusCode),
    #[error("{0}")]
    Fault(String),
}

impl Undelivered {
    /// Whether the receiver said that it does not want this, rather than not now.
    pub fn is_final(&self) -> bool {
        match self {
            Undelivered::Refused(status) => {
                let later =
                    [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS];
                status.is_client_error() && !later.contains(status)
            }
            Undelivered::Unreachable(_) | Undelivered::Fault(_) => false,
        }
    }
}

impl Webhook {
    /// An http or https URL without user name and fragment.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let malformed = || UrlError::Malformed(text.to_owned());
        let uri: Uri = text.parse().map_err(|_| malformed())?;
        let authority = uri.authority().ok_or_else(malformed)?;
        if text.contains('#') || authority.as_str().contains('@') {
            return Err(malformed());
        }
        let secure = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(malformed()),
        };
        let host = authority.host();
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let name = ServerName::try_from(bare.to_owned()).map_err(|_| malformed())?;
        let port = match authority.as_str().strip_prefix(host) {
            Some("") if secure => 443,
            Some("") => 80,
            _ => authority.port_u16().filter(|port| *port != 0).ok_or_else(malformed)?,
        };
        Ok(Self {
            secure,
            server: ServerUrl::at(name, port),
            authority: authority.to_string(),
            path: uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string),
        })
    }

    /// Sends a JSON document; any 2xx says that it was taken.
    pub async fn post(&self, json: Vec<u8>) -> Result<(), Undelivered> {
        let deadline = Instant::now() + TIME_LIMIT;
        if self.secure {
            let tls = client_config(&Trust::SystemRoots, None, b"http/1.1")
                .map_err(|error| Undelivered::Fault(error.to_string()))?;
            let (stream, _) = connect(&self.server, tls, deadline).await.map_err(Undelivered::Unreachable)?;
            self.over(stream, json, deadline).await
        } else {
            let stream = dial(&self.server, deadline).await.map_err(Undelivered::Unreachable)?;
            self.over(stream, json, deadline).await
        }
    }

    async fn over<S>(&self, stream: S, json: Vec<u8>, deadline: Instant) -> Result<(), Undelivered>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let request = Request::post(&self.path)
            .header(header::HOST, &self.authority)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::USER_AGENT, "enlist")
            .header(header::CONNECTION, "close")
            .body(Full::new(Bytes::from(json)))
            .map_err(|error| Undelivered::Fault(error.to_string()))?;
        let talk = async {
            let builder = http1::Builder::new().max_buf_size(HEAD_BYTES).handshake(TokioIo::new(stream));
            let (mut sender, connection) = builder.await?;
            // Moves the connection along; how it ended is told by the request.
            let driver = async {
                let _ = connection.await;
                std::future::pending::<Infallible>().await
            };
            // Only the head of the answer counts, so the connection need not outlive it.
            tokio::select! {
                answer = sender.send_request(request) => answer.map(|answer| answer.status()),
                never = driver => match never {},
            }
        };
        match timeout_at(deadline, talk).await {
            Err(_) => Err(Undelivered::Unreachable(Unreachable::TimedOut("answer"))),
            Ok(Err(error)) if error.is_parse() => {
                Err(Undelivered::Unreachable(Unreachable::Network(error.to_string())))
            }
            Ok(Err(_)) => Err(Undelivered::Unreachable(Unreachable::Closed)),
            Ok(Ok(status)) if status.is_success() => Ok(()),
            Ok(Ok(status)) => Err(Undelivered::Refused(status)),
        }
    }
}

impl std::fmt::Display for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}", if self.secure { "https" } else { "http" }, self.authority)
    }
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Webhook({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    #[test]
    fn http_and_https_are_read_with_their_own_ports() {
        for (text, server, path) in [
            ("https://hooks.example/a/b?c=d", "https://hooks.example:443", "/a/b?c=d"),
            ("http://127.0.0.1:9000", "https://127.0.0.1:9000", "/"),
            ("http://hooks.example", "https://hooks.example:80", "/"),
            ("https://[::1]:8443/x", "https://[::1]:8443", "/x"),
        ] {
            let hook = Webhook::parse(text).expect(text);
            assert_eq!((hook.server.to_string().as_str(), hook.path.as_str()), (server, path));
        }
    }

    #[test]
    fn what_is_no_webhook_is_refused() {
        for bad in [
            "",
            "hooks.example",
            "/path",
            "ftp://a",
            "https://",
            "https://a:0/",
            "https://a:/",
            "https://a:99999",
            "https://u:p@a/",
            "https://a/#f",
            "https://a b/",
        ] {
            assert!(Webhook::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_may_be_secret_is_not_shown() {
        let hook = Webhook::parse("https://hooks.example/T0/secret?key=hush").expect("a URL");
        assert_eq!((format!("{hook}"), format!("{hook:?}")).0, "https://hooks.example");
        assert!(!format!("{hook:?}").contains("secret") && !format!("{hook:?}").contains("hush"));
    }

    /// A receiver that answers once, and gives back what it was sent.
    async fn answered(answer: &'static str) -> (Result<(), Undelivered>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let receiver = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a caller");
            let mut heard = Vec::new();
            while !heard.ends_with(b"{\"a\":1}") {
                let mut some = [0; 4096];
                let count = stream.read(&mut some).await.expect("readable");
                heard.extend_from_slice(&some[..count]);
            }
            stream.write_all(answer.as_bytes()).await.expect("writable");
            String::from_utf8(heard).expect("text")
        });
        let hook = Webhook::parse(&format!("http://{address}/in?x=1")).expect("a URL");
        let result = hook.post(b"{\"a\":1}".to_vec()).await;
        (result, receiver.await.expect("ends"))
    }

    #[tokio::test]
    async fn a_document_is_posted_and_any_2xx_takes_it() {
        let (result, heard) = answered("HTTP/1.1 204 No Content\r\n\r\n").await;
        assert_eq!(result, Ok(()));
        assert!(heard.starts_with("POST /in?x=1 HTTP/1.1\r\n"), "{heard}");
        assert!(heard.to_ascii_lowercase().contains("content-type: application/json\r\n"), "{heard}");
    }

    #[tokio::test]
    async fn redirects_and_refusals_are_not_taken() {
        let (result, _) =
            answered("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")
                .await;
        assert_eq!(result, Err(Undelivered::Refused(StatusCode::FOUND)));
        let (result, _) = answered("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await;
        assert!(result.is_err_and(|error| error.is_final()));
        let (result, _) = answered("HTTP/1.1 429 Slow Down\r\nContent-Length: 0\r\n\r\n").await;
        assert!(result.is_err_and(|error| !error.is_final()));
    }
}
