//! Connections of the machines: TCP from a few addresses of loopback, TLS, HTTP/2.

use crate::framing::Error;
use bytes::{Buf, Bytes, BytesMut};
use futures::Stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// One address alone has too few ports for machines that come twice.
const SOURCES: usize = 8;
/// As `enlist-agent` waits for a connection and for an answer.
const CONNECT_LIMIT: Duration = Duration::from_secs(30);
pub const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// A request body of any number of frames.
pub type Up = StreamBody<Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, std::convert::Infallible>> + Send>>>;

/// What the machines have in common.
#[derive(Clone)]
pub struct Dialer {
    pub address: SocketAddr,
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl Dialer {
    /// Trusts the certificates of a PEM file, or those given as DER.
    pub fn new(address: SocketAddr, roots: impl IntoIterator<Item = Vec<u8>>) -> Result<Self, Error> {
        let mut store = RootCertStore::empty();
        for der in roots {
            store.add(CertificateDer::from(der))?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        Ok(Self { address, roots: Arc::new(store), provider })
    }

    /// Without a certificate, or with one.
    pub fn tls(
        &self,
        identity: Option<(Vec<Vec<u8>>, PrivateKeyDer<'static>)>,
        protocol: &[u8],
    ) -> Result<Arc<ClientConfig>, Error> {
        let builder = ClientConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(self.roots.clone());
        let mut config = match identity {
            Some((chain, key)) => {
                builder.with_client_auth_cert(chain.into_iter().map(CertificateDer::from).collect(), key)?
            }
            None => builder.with_no_client_auth(),
        };
        config.resumption = Resumption::disabled();
        if !protocol.is_empty() {
            config.alpn_protocols = vec![protocol.to_vec()];
        }
        Ok(Arc::new(config))
    }

    pub async fn connect(
        &self,
        number: usize,
        tls: Arc<ClientConfig>,
    ) -> Result<TlsStream<TcpStream>, Error> {
        let opening = async {
            let socket = TcpSocket::new_v4()?;
            let last = u8::try_from(number % SOURCES)? + 2;
            socket.bind(SocketAddr::from(([127, 0, 0, last], 0)))?;
            let stream = socket.connect(self.address).await?;
            stream.set_nodelay(true)?;
            Ok::<_, Error>(TlsConnector::from(tls).connect(ServerName::try_from("localhost")?, stream).await?)
        };
        tokio::time::timeout(CONNECT_LIMIT, opening).await?
    }

    /// An HTTP/2 connection, driven until it ends or its last sender is dropped.
    pub async fn http2(
        &self,
        number: usize,
        tls: Arc<ClientConfig>,
    ) -> Result<(SendRequest<Up>, tokio::task::JoinHandle<()>), Error> {
        let stream = self.connect(number, tls).await?;
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        let driver = tokio::spawn(async move {
            // However it ends: the socket is closed.
            let _ = connection.await;
        });
        Ok((sender, driver))
    }
}

/// A whole request body.
pub fn once(body: Bytes) -> Up {
    let frames = futures::stream::once(async move { Ok(Frame::data(body)) });
    StreamBody::new(Box::pin(frames))
}

/// Calls a method; what comes back, message by message.
pub async fn call(sender: &mut SendRequest<Up>, path: &str, body: Up) -> Result<Messages, Error> {
    answered(sender, post(path).body(body)?).await
}

/// The same of a call that may be made again where its answer was lost, with the same idempotency key.
pub async fn call_once(
    sender: &mut SendRequest<Up>,
    path: &str,
    key: &str,
    body: Up,
) -> Result<Messages, Error> {
    answered(sender, post(path).header(api::header::IDEMPOTENCY_KEY, key).body(body)?).await
}

fn post(path: &str) -> http::request::Builder {
    http::Request::post(format!("https://localhost/{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
}

async fn answered(sender: &mut SendRequest<Up>, request: http::Request<Up>) -> Result<Messages, Error> {
    let response = tokio::time::timeout(ANSWER_LIMIT, sender.send_request(request)).await??;
    refused(response.headers())?;
    Ok(Messages { body: response.into_body(), read: BytesMut::new() })
}

fn refused(headers: &http::HeaderMap) -> Result<(), Error> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match text("grpc-status") {
        "" | "0" => Ok(()),
        status => {
            Err(format!("refused with {status} {} {}", text("enlist-code"), text("grpc-message")).into())
        }
    }
}

pub struct Messages {
    body: Incoming,
    read: BytesMut,
}

impl Messages {
    /// The next message; none at the end of a stream that ended well.
    pub async fn next<M: Message + Default>(&mut self) -> Result<Option<M>, Error> {
        loop {
            if let Some(message) = self.whole() {
                return Ok(Some(M::decode(message)?));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(frame) => match frame?.into_data() {
                    Ok(data) => self.read.extend_from_slice(&data),
                    Err(frame) => refused(&frame.into_trailers().unwrap_or_default())?,
                },
            }
        }
    }

    /// The one answer of a call, or the first message of a stream.
    pub async fn first<M: Message + Default>(&mut self) -> Result<M, Error> {
        let answer = tokio::time::timeout(ANSWER_LIMIT, self.next()).await??;
        Ok(answer.ok_or("no answer")?)
    }

    fn whole(&mut self) -> Option<Bytes> {
        let length = self.read.get(1..5).map(|mut length| length.get_u32() as usize)?;
        if self.read.len() < 5 + length {
            return None;
        }
        self.read.advance(5);
        Some(self.read.split_to(length).freeze())
    }
}
