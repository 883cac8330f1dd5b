//! What hosts send, by hand: TLS, HTTP/2 and gRPC frames with nothing in between that costs more.

use api::agent::{EnrollRequest, EnrollResponse};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{Connection, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use rustls::client::WantsClientCert;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub use crate::framing::{Error, frame};

type Driver<B> = Connection<TokioIo<TlsStream<TcpStream>>, B, TokioExecutor>;

pub fn enrollment(token: String, csr: &str) -> Bytes {
    frame(&EnrollRequest { token, csr: csr.to_owned(), ..EnrollRequest::default() })
}

/// Who trusts the domain and has no certificate.
pub fn stranger(bundle: &[u8]) -> Result<ClientConfig, Error> {
    let mut config = trusting(bundle)?.with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

pub fn trusting(bundle: &[u8]) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, Error> {
    let mut roots = RootCertStore::empty();
    for der in pki::pem::certificates(bundle)? {
        roots.add(CertificateDer::from(der.to_vec()))?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13])?;
    Ok(builder.with_root_certificates(roots))
}

pub async fn connect<B>(address: &str, tls: Arc<ClientConfig>) -> Result<(SendRequest<B>, Driver<B>), Error>
where
    B: hyper::body::Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Error>,
{
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let stream = TlsConnector::from(tls).connect(ServerName::try_from("localhost")?, stream).await?;
    Ok(hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?)
}

pub fn call<B>(method: &str, body: B) -> Result<http::Request<B>, Error> {
    let request = http::Request::post(format!("https://localhost/enlist.agent.v1.Agent/{method}"));
    Ok(request.header("content-type", "application/grpc").header("te", "trailers").body(body)?)
}

pub async fn enroll(address: &str, tls: Arc<ClientConfig>, body: Bytes) -> Result<EnrollResponse, Error> {
    let (mut sender, connection) = connect(address, tls).await?;
    let driver = tokio::spawn(connection);
    let response = sender.send_request(call("Enroll", Full::new(body))?).await?;
    let status = response.headers().get("grpc-status").cloned();
    let bytes = response.into_body().collect().await?.to_bytes();
    driver.abort();
    match status {
        Some(status) if status != "0" => Err(format!("refused with grpc-status {status:?}").into()),
        _ => Ok(EnrollResponse::decode(bytes.get(5..).ok_or("a short answer")?)?),
    }
}
