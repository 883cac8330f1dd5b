//! TLS: version 1.3 only, no resumption, client certificates optional and checked against the registry.

use crate::process::app::App;
use lifecycle::names::{Source, Timestamp};
use lifecycle::registry::{Certificate, Presented, State};
use pki::svid::SvidId;
use pki::verify::{MAX_LEAF_BYTES, PeerCertificate, PeerError};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls13_signature,
    verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, ResolvesServerCert};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme,
};
use std::sync::{Arc, Weak};

/// Certificates that a client may send: its leaf and what stands above it. Nothing but the leaf is used; a client that
/// sends more than any chain has is refused with alert 42. rustls bounds the whole message to 64 KiB.
const SENT_CERTIFICATES: usize = 8;

/// The listener's configuration. Resumption is off: a resumed session would skip the check of the certificate.
pub fn server_config(
    app: &Arc<App>,
    certificate: Arc<dyn ResolvesServerCert>,
) -> Result<ServerConfig, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = Arc::new(NodeVerifier::new(app, &provider)?);
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(certificate);
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Checks a client certificate at the handshake: chain, time, deny list. Every request is checked again.
struct NodeVerifier {
    app: Weak<App>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl std::fmt::Debug for NodeVerifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NodeVerifier")
    }
}

impl NodeVerifier {
    fn new(app: &Arc<App>, provider: &CryptoProvider) -> Result<Self, Error> {
        // What cannot be read stops the start, and not the first handshake.
        app.ca.anchors.of(&app.view().state).map_err(|error| Error::General(error.to_string()))?;
        let algorithms = provider.signature_verification_algorithms;
        Ok(Self { app: Arc::downgrade(app), algorithms })
    }

    fn check(&self, leaf: &CertificateDer<'_>, chain: &[CertificateDer<'_>]) -> Result<(), CertificateError> {
        if chain.len() >= SENT_CERTIFICATES || leaf.len() > MAX_LEAF_BYTES {
            return Err(CertificateError::BadEncoding);
        }
        let app = self.app.upgrade().ok_or(CertificateError::ApplicationVerificationFailure)?;
        let view = app.view();
        let now = app.now();
        let issuers = app.ca.anchors.of(&view.state).map_err(|error| {
            tracing::error!(%error, "the issuers of client certificates cannot be read");
            CertificateError::ApplicationVerificationFailure
        })?;
        let svid = app.ca.spire.check(leaf, chain, app.clock.now());
        if let Some(Ok(peer)) = &svid {
            return svid_node(&app, &view.state, peer, now);
        }
        let by_issuer = match svid {
            Some(refused) => refused,
            None => issuers.check(leaf, app.clock.now()),
        };
        let peer = match by_issuer {
            Ok(peer) => peer,
            Err(error) => {
                let peer = imported(&view.state, leaf).ok_or_else(|| refused(error))?;
                if now < peer.not_before {
                    return Err(refused(PeerError::NotYetValid));
                }
                peer
            }
        };
        // To the moment: a connection ends then, so none may begin.
        if peer.not_after <= now {
            return Err(CertificateError::Expired);
        }
        match view.state.presented(&peer.serial, &peer.fingerprint, now) {
            // Where its use is reported, it is refused below, by the same alert, once its holder has shown that it has the key.
            Presented::Recorded(_, verdict) if verdict.is_denied() && !verdict.is_reported_when_used() => {
                Err(CertificateError::Revoked)
            }
            Presented::Recorded(..) | Presented::Unknown => Ok(()),
            Presented::Forged => Err(CertificateError::BadEncoding),
        }
    }

    /// Asked once the peer has shown that it holds the key: only then does an old certificate that comes back
    /// say something about its holder.
    fn refusal(&self, leaf: &CertificateDer<'_>) -> Option<CertificateError> {
        let (Some(app), Ok(peer)) = (self.app.upgrade(), PeerCertificate::read(leaf)) else {
            return Some(CertificateError::ApplicationVerificationFailure);
        };
        // An SVID is on no record, whatever serial it bears.
        if is_svid(&app, leaf) {
            return None;
        }
        let (view, now) = (app.view(), app.now());
        match view.state.presented(&peer.serial, &peer.fingerprint, now) {
            Presented::Recorded(Certificate { owner, .. }, verdict) if verdict.is_reported_when_used() => {
                app.metrics.handshake_refused("revoked");
                app.fleet.denied.seen(owner, &peer.serial, source());
                Some(CertificateError::Revoked)
            }
            Presented::Recorded(Certificate { owner, .. }, verdict) if verdict.shows_a_copy() => {
                app.metrics.handshake_refused("superseded");
                app.fleet.presence.suspect_superseded(owner, &peer.serial, source(), now);
                Some(CertificateError::BadEncoding)
            }
            Presented::Recorded(..) | Presented::Unknown => None,
            // It went on record under another certificate between the two halves of the handshake.
            Presented::Forged => Some(CertificateError::BadEncoding),
        }
    }
}

/// What the registry says of the node that an SVID stands for. One that is not registered is told so, which a handshake cannot.
fn svid_node(
    app: &App,
    state: &State,
    peer: &PeerCertificate,
    now: Timestamp,
) -> Result<(), CertificateError> {
    if peer.not_after <= now {
        return Err(CertificateError::Expired);
    }
    let node = peer.svid.as_ref().and_then(|svid| app.ca.spire.node(&svid.id));
    let node = node.and_then(|id| state.nodes.get(&id));
    if node.is_some_and(|node| node.state.is_gone()) { Err(CertificateError::Revoked) } else { Ok(()) }
}

/// Whether it is of a trust domain beside our own, and not a certificate that is on record byte for byte.
fn is_svid(app: &App, leaf: &CertificateDer<'_>) -> bool {
    let domain = SvidId::claimed(leaf).map(|id| id.domain);
    domain.is_some_and(|domain| app.ca.spire.accepts(&domain)) && imported(&app.view().state, leaf).is_none()
}

/// A certificate that was made elsewhere and is on record, byte for byte: whatever it lacks, an operator has
/// imported it. Its issuer's signature was checked then.
fn imported(state: &State, leaf: &CertificateDer<'_>) -> Option<PeerCertificate> {
    let peer = PeerCertificate::read(leaf).ok()?;
    let record = state.certificates.get(&peer.serial).filter(|record| record.imported)?;
    (record.fingerprint == peer.fingerprint)
        .then(|| PeerCertificate { not_after: peer.not_after.min(record.not_after), ..peer })
}

tokio::task_local! {
    /// Where the handshake in progress comes from: rustls does not tell its verifier.
    pub static SOURCE: Source;
}

fn source() -> Option<Source> {
    SOURCE.try_with(|source| *source).ok()
}

/// By these rustls chooses the alert: 44 revoked, 45 expired, 48 unknown issuer, 42 for everything else.
fn refused(error: PeerError) -> CertificateError {
    match error {
        PeerError::Expired => CertificateError::Expired,
        PeerError::UnknownIssuer => CertificateError::UnknownIssuer,
        // Also where the serial is on no record: nothing that a revoked issuer signed is good.
        PeerError::RevokedIssuer => CertificateError::Revoked,
        PeerError::NotYetValid
        | PeerError::Malformed(_)
        | PeerError::WrongTrustDomain
        | PeerError::NotClientAuth => CertificateError::BadEncoding,
    }
}

impl ClientCertVerifier for NodeVerifier {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verdict = self.check(leaf, chain);
        if let (Err(error), Some(app)) = (&verdict, self.app.upgrade()) {
            app.metrics.handshake_refused(match error {
                CertificateError::Revoked => "revoked",
                CertificateError::Expired => "expired",
                CertificateError::UnknownIssuer => "unknown_issuer",
                _ => "bad_certificate",
            });
        }
        verdict.map(|()| ClientCertVerified::assertion()).map_err(Error::InvalidCertificate)
    }

    /// TLS 1.2 is not spoken.
    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _leaf: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let valid = match pki::verify::raw_key(leaf) {
            None => verify_tls13_signature(message, leaf, signature, &self.algorithms)?,
            Some(key) => verify_tls13_signature_with_raw_key(message, &key, signature, &self.algorithms)?,
        };
        match self.refusal(leaf) {
            Some(error) => Err(Error::InvalidCertificate(error)),
            None => Ok(valid),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// What a verified handshake says about its peer. Read once per connection.
pub fn peer_certificate(app: &App, sent: &[CertificateDer<'_>]) -> Option<PeerCertificate> {
    let (leaf, chain) = sent.split_first()?;
    let view = app.view();
    if let Some(imported) = imported(&view.state, leaf) {
        return Some(imported);
    }
    // Verified again, because rustls does not hand on which CA vouched for it.
    match app.ca.spire.check(leaf, chain, app.clock.now()) {
        Some(svid) => svid.ok(),
        None => PeerCertificate::read(leaf).ok(),
    }
}
