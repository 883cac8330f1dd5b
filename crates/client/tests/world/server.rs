//! Servers on loopback.

use super::authority::Leaf;
use client::ServerUrl;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, SignatureScheme};
use rustls_pki_types::{CertificateDer, UnixTime};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

pub fn config(leaf: &Leaf, rest: &[&CertificateDer<'static>]) -> ServerConfig {
    with_verifier(leaf, rest, None)
}

/// A server that asks for a certificate and refuses it.
pub fn refusing(leaf: &Leaf, rest: &[&CertificateDer<'static>], refusal: CertificateError) -> ServerConfig {
    with_verifier(leaf, rest, Some(refusal))
}

fn with_verifier(
    leaf: &Leaf,
    rest: &[&CertificateDer<'static>],
    refusal: Option<CertificateError>,
) -> ServerConfig {
    let mut chain = vec![leaf.der.clone()];
    chain.extend(rest.iter().map(|der| (*der).clone()));
    let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap();
    let builder = match refusal {
        None => builder.with_no_client_auth(),
        Some(refusal) => builder.with_client_cert_verifier(Arc::new(Refuses(refusal))),
    };
    let mut config = builder.with_single_cert(chain, leaf.key.clone_key()).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

/// Serves every connection with `handle`. A refused client gets to read why, as a control plane lets it.
pub async fn serve<F>(
    config: ServerConfig,
    handle: impl Fn(TlsStream<TcpStream>) -> F + Send + 'static,
) -> ServerUrl
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            match acceptor.accept(stream).into_fallible().await {
                Ok(stream) => {
                    tokio::spawn(handle(stream));
                }
                Err((_, mut stream)) => {
                    let _ = stream.shutdown().await;
                    let _ = stream.read(&mut [0; 4096]).await;
                }
            }
        }
    });
    ServerUrl::parse(&format!("https://localhost:{port}")).unwrap()
}

/// Serves one connection without a word; tells how much was said to it when it is over.
pub async fn hears(config: ServerConfig) -> (ServerUrl, oneshot::Receiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let (tell, heard) = oneshot::channel();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let length = match acceptor.accept(stream).await {
            Ok(mut stream) => stream.read(&mut [0; 1024]).await.unwrap_or(0),
            Err(_) => 0,
        };
        tell.send(length).unwrap();
    });
    (ServerUrl::parse(&format!("https://localhost:{port}")).unwrap(), heard)
}

/// Answers every greeting with an alert in plain text, as anybody on the way can.
pub async fn breaks_off(alert: u8) -> ServerUrl {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 16 * 1024]).await;
            let _ = stream.write_all(&[0x15, 3, 3, 0, 2, 2, alert]).await;
            let _ = stream.shutdown().await;
            let _ = stream.read(&mut [0; 4096]).await;
        }
    });
    ServerUrl::parse(&format!("https://localhost:{port}")).unwrap()
}

/// Answers every request with these bytes and closes.
pub async fn answers(config: ServerConfig, answer: impl Into<Vec<u8>>) -> ServerUrl {
    let answer: Arc<Vec<u8>> = Arc::new(answer.into());
    serve(config, move |mut stream| {
        let answer = answer.clone();
        async move {
            let _ = stream.read(&mut [0; 16 * 1024]).await;
            let _ = stream.write_all(&answer).await;
            let _ = stream.shutdown().await;
        }
    })
    .await
}

/// Sends the head, and then the same bytes for as long as anyone listens.
pub async fn never_ends(config: ServerConfig, head: &'static str, again: &'static [u8]) -> ServerUrl {
    serve(config, move |mut stream| async move {
        let _ = stream.read(&mut [0; 16 * 1024]).await;
        let _ = stream.write_all(head.as_bytes()).await;
        let again = again.repeat(4096);
        while stream.write_all(&again).await.is_ok() {}
    })
    .await
}

#[derive(Debug)]
struct Refuses(CertificateError);

impl ClientCertVerifier for Refuses {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Err(rustls::Error::InvalidCertificate(self.0.clone()))
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.3 only".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
