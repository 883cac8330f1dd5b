//! TLS between replicas: both ends show a replica's certificate of this domain. The proof of the log key follows inside.

use crate::process::clock::BelievedClock;
use journal::{BoxedFuture, PeerConnection, PeerConnector};
use lifecycle::clock::BEHIND;
use lifecycle::names::{IssuerId, ReplicaId, Serial, TrustDomain};
use pki::replica_cert::{ReplicaCertificate, verify_replica};
use pki::verify::is_issued_by;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, ClientConfig, ConnectionCommon, DigitallySignedStruct, DistinguishedName, Error,
    ServerConfig, SignatureScheme,
};
use std::io::{Error as IoError, ErrorKind};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// How long connecting and the handshake may take.
const LIMIT: Duration = Duration::from_secs(5);
/// What both ends derive from the handshake, for the proof to be bound to.
const EXPORT: &[u8] = b"EXPORTER-enlist-replica";
const PROTOCOL: &[u8] = b"enlist-replica/1";

/// By what other replicas are verified.
#[derive(Clone)]
struct PeerTrust {
    domain: Option<TrustDomain>,
    roots: Vec<CertificateDer<'static>>,
    /// Every issuer on record that signs for the control plane, whatever became of it.
    issuers: Vec<(IssuerId, CertificateDer<'static>)>,
}

/// Who is at the other end of a connection, and what only both ends know.
struct ShownPeer {
    certificate: ReplicaCertificate,
    issuer: Option<IssuerId>,
    above: Vec<Serial>,
    binding: [u8; 32],
}

/// What this replica shows to others, and how it judges them.
pub struct PeerTls {
    identity: RwLock<Option<Arc<CertifiedKey>>>,
    trust: RwLock<PeerTrust>,
    clock: Arc<BelievedClock>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl std::fmt::Debug for PeerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PeerTls")
    }
}

impl PeerTls {
    pub fn new(clock: Arc<BelievedClock>) -> Arc<Self> {
        let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
        let trust = RwLock::new(PeerTrust { domain: None, roots: Vec::new(), issuers: Vec::new() });
        Arc::new(Self { identity: RwLock::new(None), trust, clock, algorithms })
    }

    pub fn show(&self, identity: CertifiedKey) {
        *self.identity.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(identity));
    }

    pub fn shown(&self) -> Option<Arc<CertifiedKey>> {
        self.identity.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on these roots vouch for replicas of this domain.
    pub fn trust(
        &self,
        domain: TrustDomain,
        roots: Vec<CertificateDer<'static>>,
        issuers: Vec<(IssuerId, CertificateDer<'static>)>,
    ) {
        *self.trust.write().unwrap_or_else(PoisonError::into_inner) =
            PeerTrust { domain: Some(domain), roots, issuers };
    }

    fn judge(
        &self,
        leaf: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
    ) -> Result<ReplicaCertificate, CertificateError> {
        let PeerTrust { domain, roots, .. } =
            self.trust.read().unwrap_or_else(PoisonError::into_inner).clone();
        let domain = domain.ok_or(CertificateError::UnknownIssuer)?;
        let now = self.clock.now();
        let verified = |at| verify_replica(leaf, sent, &roots, &domain, at);
        // A start accepts a clock that is so far behind: only the others can tell such a replica that it is.
        verified(now).or_else(|_| verified(now.plus(BEHIND))).map_err(|error| {
            tracing::debug!(%error, "a peer was refused");
            CertificateError::ApplicationVerificationFailure
        })
    }

    fn acceptor(self: &Arc<Self>) -> Result<TlsAcceptor, Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(Arc::new(PeerVerifier(self.clone())))
            .with_cert_resolver(Arc::new(ShownCertificate(self.clone())));
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    fn connector(self: &Arc<Self>) -> Result<TlsConnector, Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(PeerVerifier(self.clone())))
            .with_client_cert_resolver(Arc::new(ShownCertificate(self.clone())));
        config.resumption = Resumption::disabled();
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(TlsConnector::from(Arc::new(config)))
    }

    /// The issuer on record that signed a certificate: by its signature, whatever was shown above it.
    fn issuer_of(&self, leaf: &CertificateDer<'_>) -> Option<IssuerId> {
        let trust = self.trust.read().unwrap_or_else(PoisonError::into_inner);
        trust.issuers.iter().find(|(_, issuer)| is_issued_by(leaf, issuer)).map(|(id, _)| id.clone())
    }

    fn peer<D>(&self, connection: &ConnectionCommon<D>) -> std::io::Result<ShownPeer> {
        let refused = |what: &str| IoError::new(ErrorKind::PermissionDenied, what.to_owned());
        let chain = connection.peer_certificates().unwrap_or_default();
        let (leaf, sent) = chain.split_first().ok_or_else(|| refused("no certificate"))?;
        let certificate = self.judge(leaf, sent).map_err(|_| refused("no replica's certificate"))?;
        let above = sent.iter().filter_map(|sent| pki::describe::facts(sent).ok()).map(|facts| facts.serial);
        let binding = connection.export_keying_material([0; 32], EXPORT, None).map_err(IoError::other)?;
        Ok(ShownPeer { certificate, issuer: self.issuer_of(leaf), above: above.collect(), binding })
    }

    /// The handshake of an incoming connection.
    pub async fn accept(self: &Arc<Self>, stream: TcpStream) -> std::io::Result<PeerConnection> {
        let accepting = self.acceptor().map_err(IoError::other)?.accept(stream);
        let stream = tokio::time::timeout(LIMIT, accepting).await.map_err(|_| ErrorKind::TimedOut)??;
        let shown = self.peer(stream.get_ref().1)?;
        Ok(connection(Box::new(stream), shown))
    }

    async fn reach(self: Arc<Self>, replica: ReplicaId, address: String) -> std::io::Result<PeerConnection> {
        if self.shown().is_none() {
            return Err(IoError::other("this replica has no certificate of its own yet"));
        }
        let stream = TcpStream::connect(&address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from("replica").map_err(IoError::other)?;
        let stream = self.connector().map_err(IoError::other)?.connect(name, stream).await?;
        let shown = self.peer(stream.get_ref().1)?;
        let other = shown.certificate.replica;
        if other != replica {
            return Err(IoError::other(format!("{address} is replica {other}, not {replica}")));
        }
        Ok(connection(Box::new(stream), shown))
    }
}

fn connection(stream: Box<dyn journal::PeerStream>, shown: ShownPeer) -> PeerConnection {
    let ShownPeer { certificate, issuer, above, binding } = shown;
    let ReplicaCertificate { replica, serial, fingerprint, .. } = certificate;
    PeerConnection { stream, replica, serial, fingerprint, issuer, above, binding }
}

/// Connects as this replica.
pub struct PeerDialer(pub Arc<PeerTls>);

impl PeerConnector for PeerDialer {
    fn connect(&self, replica: ReplicaId, address: String) -> BoxedFuture<std::io::Result<PeerConnection>> {
        let tls = self.0.clone();
        Box::pin(async move {
            let reached = tokio::time::timeout(LIMIT, tls.reach(replica, address)).await;
            reached.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
        })
    }
}

#[derive(Debug)]
struct ShownCertificate(Arc<PeerTls>);

impl ResolvesServerCert for ShownCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.shown()
    }
}

impl ResolvesClientCert for ShownCertificate {
    fn resolve(&self, _hints: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.shown()
    }

    fn has_certs(&self) -> bool {
        self.0.shown().is_some()
    }
}

#[derive(Debug)]
struct PeerVerifier(Arc<PeerTls>);

impl PeerVerifier {
    fn signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, leaf, signature, &self.0.algorithms)
    }
}

fn only_tls13() -> Error {
    Error::General("TLS 1.2 is not spoken".to_owned())
}

impl ClientCertVerifier for PeerVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.0.judge(leaf, sent).map(|_| ClientCertVerified::assertion()).map_err(Error::InvalidCertificate)
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _leaf: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(only_tls13())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature(message, leaf, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.algorithms.supported_schemes()
    }
}

impl ServerCertVerifier for PeerVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.0.judge(leaf, sent).map(|_| ServerCertVerified::assertion()).map_err(Error::InvalidCertificate)
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _leaf: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(only_tls13())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature(message, leaf, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.algorithms.supported_schemes()
    }
}
