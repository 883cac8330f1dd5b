//! The plane's certificates and its listener.

use std::sync::Arc;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use lifecycle::names::{Span, Timestamp, TrustDomain};
use pki::hierarchy::{self, Hierarchy};
use pki::issuer::SigningIssuer;
use pki::server_cert::issue_server;
use rustls::crypto::aws_lc_rs;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::plane::{Door, Plane};

/// A founded domain with its issuer of nodes.
pub struct Domain {
    pub name: TrustDomain,
    pub made: Hierarchy,
    pub issuer: SigningIssuer,
}

impl Domain {
    pub fn found(at: Timestamp) -> Self {
        let name = TrustDomain::parse("test.example").unwrap();
        let made = hierarchy::create(&name, at, [[1; 16], [2; 16], [3; 16]]).unwrap();
        let issuer = SigningIssuer::new(&made.node.der, &made.node.key).unwrap();
        Self { name, made, issuer }
    }

    /// Client certificates are optional, as on a real listener.
    pub fn tls(&self, at: Timestamp) -> ServerConfig {
        let names = ["localhost", "127.0.0.1"];
        let issuer = SigningIssuer::new(&self.made.server.der, &self.made.server.key).unwrap();
        let server = issue_server(&issuer, &names, "plane", [3; 16], at, Span::from_days(1)).unwrap();
        let der = |der: &[u8]| CertificateDer::from(der.to_vec());
        let chain = vec![der(&server.signed.der), der(&self.made.server.der), der(&self.made.root_der)];
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(der(&self.made.root_der)).unwrap();
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_client_cert_verifier(clients.allow_unauthenticated().build().unwrap())
            .with_single_cert(chain, PrivatePkcs8KeyDer::from(server.key_pkcs8.to_vec()).into())
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        config
    }
}

pub async fn listen(listener: TcpListener, config: ServerConfig, plane: Arc<Plane>) {
    let acceptor = TlsAcceptor::from(Arc::new(config));
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(serve(acceptor.clone(), stream, plane.clone()));
    }
}

async fn serve(acceptor: TlsAcceptor, stream: TcpStream, plane: Arc<Plane>) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let peer = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first().cloned());
    let service = api::agent::AgentServer::new(Door { plane, peer });
    let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    let _ = connection.await;
}
