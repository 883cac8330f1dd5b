//! One request to a server that is somebody else's: a webhook, Loki, a board of claims.
//!
//! Such a server is recognised by the system's roots or by a CA of its own, or not at all over plain http, which is for
//! servers on the same machine or network. Redirects are not followed, because what was configured is what was meant. Time
//! and size of the answer are bounded.

use crate::connect::{connect, dial};
use crate::rationed::RationedStream;
use crate::trust::{Trust, client_config};
use crate::unreachable::Unreachable;
use crate::url::{ServerUrl, UrlError};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header, uri::Scheme};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout_at};

const HEAD_BYTES: usize = 64 * 1024;
/// Beyond head and answer: chunks have lengths, and hyper reads ahead.
const SLACK_BYTES: usize = 64 * 1024;

/// Where to. The path may hold a secret, so only the origin is ever shown.
#[derive(Clone, PartialEq, Eq)]
pub struct ForeignUrl {
    secure: bool,
    server: ServerUrl,
    /// Name and port as written.
    authority: String,
    path: String,
}

/// What is asked.
#[derive(Debug, Clone)]
pub struct ForeignRequest {
    pub method: Method,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub body: Vec<u8>,
    /// From resolving the name to the last byte of the answer that is read.
    pub time_limit: Duration,
    /// So much of the answer is read; with 0 its head alone.
    pub answer_bytes: usize,
}

/// What came back.
#[derive(Debug)]
pub struct ForeignAnswer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    /// There was more of it than was to be read.
    pub is_cut: bool,
}

impl ForeignUrl {
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

    /// With the query, if there is one.
    pub fn path(&self) -> &str {
        &self.path
    }

    #[must_use]
    pub fn with_path(self, path: String) -> Self {
        Self { path, ..self }
    }

    /// Whether everybody on the way can read what is sent: plain http to another machine.
    pub fn is_exposed(&self) -> bool {
        let host = self.server.host();
        let own = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
        !self.secure && !own
    }

    /// Asks once, over a connection of its own. Any status is an answer.
    pub async fn ask(&self, trust: &Trust, request: ForeignRequest) -> Result<ForeignAnswer, Unreachable> {
        let deadline = Instant::now() + request.time_limit;
        if self.secure {
            let tls = client_config(trust, None, b"http/1.1")
                .map_err(|error| Unreachable::Network(error.to_string()))?;
            let (stream, _) = connect(&self.server, tls, deadline).await?;
            self.over(stream, request, deadline).await
        } else {
            let stream = dial(&self.server, deadline).await?;
            self.over(stream, request, deadline).await
        }
    }

    async fn over<S>(
        &self,
        stream: S,
        request: ForeignRequest,
        deadline: Instant,
    ) -> Result<ForeignAnswer, Unreachable>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let limit = request.answer_bytes;
        let ration = limit.saturating_mul(2).saturating_add(HEAD_BYTES + SLACK_BYTES);
        let stream = RationedStream::new(stream, ration, deadline);
        let mut built = Request::builder()
            .method(request.method)
            .uri(&self.path)
            .header(header::HOST, &self.authority)
            .header(header::USER_AGENT, "enlist")
            .header(header::CONNECTION, "close");
        for (name, value) in request.headers {
            built = built.header(name, value);
        }
        let built = built
            .body(Full::new(Bytes::from(request.body)))
            .map_err(|error| Unreachable::Network(error.to_string()))?;
        let talk = async {
            let builder = http1::Builder::new().max_buf_size(HEAD_BYTES).handshake(TokioIo::new(stream));
            let (mut sender, connection) = builder.await?;
            // Moves the connection along; how it ended is told by the request.
            let driver = async {
                let _ = connection.await;
                std::future::pending::<Infallible>().await
            };
            tokio::select! {
                answer = async { read(sender.send_request(built).await?, limit).await } => answer,
                never = driver => match never {},
            }
        };
        match timeout_at(deadline, talk).await {
            Err(_) => Err(Unreachable::TimedOut("answer")),
            Ok(Err(error)) => Err(broken(&error)),
            Ok(Ok(answer)) => Ok(answer),
        }
    }
}

/// Why there is no whole answer.
fn broken(error: &hyper::Error) -> Unreachable {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<io::Error>());
    match cause.map(|cause| (cause.kind(), cause)) {
        Some((ErrorKind::TimedOut, _)) => Unreachable::TimedOut("answer"),
        Some((ErrorKind::InvalidData, cause)) => Unreachable::Network(cause.to_string()),
        _ if error.is_parse() => Unreachable::Network(error.to_string()),
        _ => Unreachable::Closed,
    }
}

/// So much of an answer, piece by piece: its length is whatever the server says.
async fn read(answer: http::Response<Incoming>, limit: usize) -> Result<ForeignAnswer, hyper::Error> {
    let (head, mut incoming) = answer.into_parts();
    let mut body = Vec::new();
    let mut is_cut = false;
    while limit > 0 && !is_cut {
        let Some(frame) = incoming.frame().await else { break };
        if let Ok(data) = frame?.into_data() {
            let room = limit.saturating_sub(body.len());
            is_cut = data.len() > room;
            body.extend_from_slice(data.get(..room.min(data.len())).unwrap_or_default());
        }
    }
    Ok(ForeignAnswer { status: head.status, headers: head.headers, body, is_cut })
}

impl ForeignAnswer {
    /// For how long the server asks to be left alone, in seconds; a date is not read.
    pub fn retry_after(&self) -> Option<Duration> {
        let value = self.headers.get(header::RETRY_AFTER)?.to_str().ok()?;
        value.trim().parse().ok().map(Duration::from_secs)
    }
}

impl std::fmt::Display for ForeignUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}", if self.secure { "https" } else { "http" }, self.authority)
    }
}

impl std::fmt::Debug for ForeignUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ForeignUrl({self})")
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
            let url = ForeignUrl::parse(text).expect(text);
            assert_eq!((url.server.to_string().as_str(), url.path.as_str()), (server, path));
        }
    }

    #[test]
    fn what_is_no_url_of_a_server_is_refused() {
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
            assert!(ForeignUrl::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_may_be_secret_is_not_shown() {
        let url = ForeignUrl::parse("https://hooks.example/T0/secret?key=hush").expect("a URL");
        assert_eq!((format!("{url}"), format!("{url:?}")).0, "https://hooks.example");
        assert!(!format!("{url:?}").contains("secret") && !format!("{url:?}").contains("hush"));
    }

    #[test]
    fn plain_http_to_another_machine_is_exposed() {
        for (text, exposed) in [
            ("http://127.0.0.1:3100", false),
            ("http://localhost:3100", false),
            ("http://[::1]:3100", false),
            ("https://loki.example", false),
            ("http://loki.example:3100", true),
            ("http://10.0.0.1", true),
        ] {
            assert_eq!(ForeignUrl::parse(text).expect(text).is_exposed(), exposed, "{text}");
        }
    }

    async fn asked(answer: &'static str, answer_bytes: usize) -> Result<ForeignAnswer, Unreachable> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a caller");
            let mut some = [0; 4096];
            let _ = stream.read(&mut some).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        });
        let url = ForeignUrl::parse(&format!("http://{address}/in")).expect("a URL");
        let request = ForeignRequest {
            method: Method::GET,
            headers: Vec::new(),
            body: Vec::new(),
            time_limit: Duration::from_secs(30),
            answer_bytes,
        };
        url.ask(&Trust::system_roots(), request).await
    }

    #[tokio::test]
    async fn no_more_of_an_answer_is_read_than_asked_for() {
        const LONG: &str = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789";
        for (limit, body, is_cut) in [(4, "0123", true), (10, "0123456789", false), (0, "", false)] {
            let answer = asked(LONG, limit).await.expect("an answer");
            assert_eq!((answer.body.as_slice(), answer.is_cut), (body.as_bytes(), is_cut));
        }
    }

    #[tokio::test]
    async fn what_is_not_http_is_no_answer() {
        assert!(asked("hello, who is there?\r\n\r\n", 64).await.is_err());
        assert!(asked("", 64).await.is_err());
    }

    #[tokio::test]
    async fn heads_without_end_are_no_answer() {
        let heads: &'static str = "HTTP/1.1 100 Continue\r\n\r\n".repeat(40_000).leak();
        let error = asked(heads, 64).await.expect_err("no answer");
        assert_eq!(error, Unreachable::Network("the server sends more than an answer".to_owned()));
    }

    #[tokio::test]
    async fn a_server_may_ask_to_be_left_alone() {
        let answer = asked("HTTP/1.1 429 Slow\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n", 64).await;
        assert_eq!(answer.expect("an answer").retry_after(), Some(Duration::from_secs(7)));
    }
}
