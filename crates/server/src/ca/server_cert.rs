//! The control plane's own certificate: issued, recorded, presented and renewed by the domain itself.

mod configured;

pub use configured::{ConfiguredCertificate, presents, read as read_configured};

use crate::ca::hsm;
use crate::ca::keys::SERVER_CONTEXT;
use crate::cluster;
use crate::process::app::{App, Provenance};
use crate::process::chance;
use crate::process::datadir::{DataDir, DirError, replace};
use lifecycle::names::{ReplicaId, Span, Timestamp};
use lifecycle::registry::{Actor, Command, ServerCertificate, State};
use pki::seal::Kek;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::sync::{Arc, PoisonError, RwLock};

const LIFETIME: Span = Span::from_days(365);
/// Sealed like the intermediate: a copy of the directory cannot play the control plane.
const KEY_FILE: &str = "server.key.sealed";

#[derive(Debug, thiserror::Error)]
pub enum ServerCertError {
    #[error("the server certificate could not be made: {0}")]
    Make(String),
    #[error(transparent)]
    Write(#[from] DirError),
    #[error("the server certificate was not recorded: {0}")]
    Record(String),
    #[error("this replica was removed from the cluster, and has no server certificate that is valid")]
    Removed,
}

/// What the listener presents now.
#[derive(Debug)]
pub struct PresentedCertificate {
    key: RwLock<Option<Arc<CertifiedKey>>>,
}

impl PresentedCertificate {
    pub fn empty() -> Arc<Self> {
        Arc::new(Self { key: RwLock::new(None) })
    }

    /// The pin of the leaf, as a client that connects now would find it: every name gets the same one.
    pub fn pin(&self) -> Option<String> {
        let key = self.key.read().unwrap_or_else(PoisonError::into_inner).clone()?;
        key.cert.first().map(|leaf| pki::digest::fingerprint(leaf).hex())
    }

    /// Whether there is one, and it has not ended.
    pub fn is_valid(&self, at: Timestamp) -> bool {
        let key = self.key.read().unwrap_or_else(PoisonError::into_inner).clone();
        let leaf = key.as_ref().and_then(|key| key.cert.first());
        leaf.and_then(|leaf| pki::describe::facts(leaf).ok()).is_some_and(|facts| at < facts.not_after)
    }

    fn set(&self, key: CertifiedKey) {
        *self.key.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(key));
    }
}

impl ResolvesServerCert for PresentedCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.key.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Presents the certificate on disk if it is still good, else makes, records and keeps a new one.
pub async fn ensure(app: &App, presented: &PresentedCertificate) -> Result<(), ServerCertError> {
    // What is sealed meanwhile must not be left behind under the old key.
    let sealing = app.ca.sealing().await;
    let _still = sealing.map_err(|failure| ServerCertError::Make(failure.message))?;
    if let Some(files) = &app.config.own_certificate {
        return configured::present(app, files, presented);
    }
    let at = app.now();
    if let Some(key) = on_disk(app, at, Wanted::Current) {
        // What stands above it may have changed.
        let pem = pki::pem::chain_pem(key.cert.iter().map(|der| der.as_ref()));
        let path = app.ca.dir.ca("server.pem");
        if !std::fs::read(&path).is_ok_and(|found| found == pem.as_bytes()) {
            replace(&path, pem.as_bytes(), 0o644)?;
        }
        presented.set(key);
        return Ok(());
    }
    // None is issued to a removed replica. It says that it was removed under the one that it had.
    if cluster::is_removed(app) {
        let (chain, key) = kept(app).ok_or(ServerCertError::Removed)?;
        let facts = chain.first().and_then(|leaf| pki::describe::facts(leaf).ok());
        let valid = facts.is_some_and(|facts| facts.not_before <= at && at < facts.not_after);
        let certified = certified(chain, &key).filter(|_| valid);
        presented.set(certified.ok_or(ServerCertError::Removed)?);
        return Ok(());
    }
    let made = make(app, presented, at).await;
    // Better one that is due than none, while an issuer's key is out of reach.
    if made.is_err()
        && let Some(key) = on_disk(app, at, Wanted::Valid)
    {
        presented.set(key);
    }
    made
}

async fn make(app: &App, presented: &PresentedCertificate, at: Timestamp) -> Result<(), ServerCertError> {
    let make = |error: &dyn std::fmt::Display| ServerCertError::Make(error.to_string());
    let serial = chance::serial(at).map_err(|error| make(&error))?;
    let names = app.config.certificate_names();
    let issuer = app.ca.keys.server_issuer(&app.view().state).map_err(|error| make(&error))?;
    let made = hsm::observed(app, &issuer, || {
        pki::server_cert::issue_server(&issuer, &names, &app.config.server_cn, serial, at, LIFETIME)
    })
    .map_err(|error| make(&error))?;
    let record = ServerCertificate {
        serial: made.signed.serial.clone(),
        fingerprint: made.signed.fingerprint,
        issuer: issuer.id(),
        not_after: made.signed.not_after,
        replica: app.journal.replica(),
    };
    let command = Command::RecordServerCertificate(record);
    let recorded = app.commit(Actor::Reconciler, &Provenance::internal(), command).await;
    let (_, view) = recorded.map_err(|failure| ServerCertError::Record(failure.message))?;
    let chain = chain(&view.state, app.journal.replica(), made.signed.der.clone(), at);
    let pem = pki::pem::chain_pem(chain.iter().map(|der| der.as_ref()));
    let sealed = app.ca.keys.kek().seal(SERVER_CONTEXT, &made.key_pkcs8).map_err(|error| make(&error))?;
    replace(&app.ca.dir.keys(KEY_FILE), &sealed, 0o600)?;
    replace(&app.ca.dir.ca("server.pem"), pem.as_bytes(), 0o644)?;
    let key = PrivateKeyDer::Pkcs8(made.key_pkcs8.to_vec().into());
    presented.set(certified(chain, &key).ok_or_else(|| make(&"the key does not match the certificate"))?);
    tracing::info!(serial = %made.signed.serial, not_after = %made.signed.not_after, "server certificate issued");
    Ok(())
}

/// The key on disk under another key-encryption key. One that cannot be read is made anew at the next start.
pub fn reseal(dir: &DataDir, old: &Kek, next: &Kek) -> Result<(), DirError> {
    let path = dir.keys(KEY_FILE);
    let key = journal::read_small(&path).ok().and_then(|sealed| old.unseal(SERVER_CONTEXT, &sealed).ok());
    match key.and_then(|key| next.seal(SERVER_CONTEXT, &key).ok()) {
        Some(sealed) => replace(&path, &sealed, 0o600),
        None => Ok(()),
    }
}

/// Leaf, issuer and roots: a pin on any of them can be checked by whoever sees the chain. The cross-certificates of a new root
/// come before the roots: OpenSSL takes the first certificate that could have signed, and a host that trusts the old root
/// alone must not be led to the new one, which signs itself.
fn chain(state: &State, replica: ReplicaId, leaf: Vec<u8>, at: Timestamp) -> Vec<CertificateDer<'static>> {
    let mut chain = vec![CertificateDer::from(leaf)];
    let issuer = state.server_certificate_of(replica).and_then(|own| state.issuers.get(&own.issuer));
    for der in issuer
        .map(|issuer| issuer.certificate.clone())
        .into_iter()
        .chain(state.cross_certificates(at).map(<[u8]>::to_vec))
        .chain(state.server_trust().map(<[u8]>::to_vec))
    {
        let der = CertificateDer::from(der);
        if !chain.contains(&der) {
            chain.push(der);
        }
    }
    chain
}

fn certified(chain: Vec<CertificateDer<'static>>, key: &PrivateKeyDer<'static>) -> Option<CertifiedKey> {
    let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(key).ok()?;
    let certified = CertifiedKey::new(chain, key);
    certified.keys_match().ok()?;
    Some(certified)
}

/// What is asked of a certificate that is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// By the issuer that signs now, for these names, and not yet due for renewal.
    Current,
    /// Not ended.
    Valid,
}

/// What is on disk: a chain, and the key of its leaf.
fn kept(app: &App) -> Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let dir = &app.ca.dir;
    let chain = pki::pem::certificates(&std::fs::read(dir.ca("server.pem")).ok()?).ok()?;
    let key =
        app.ca.keys.kek().unseal(SERVER_CONTEXT, &journal::read_small(&dir.keys(KEY_FILE)).ok()?).ok()?;
    Some((chain, PrivateKeyDer::Pkcs8(key.to_vec().into())))
}

/// The kept certificate, if it is the recorded one.
fn on_disk(app: &App, at: Timestamp, wanted_state: Wanted) -> Option<CertifiedKey> {
    let (chain, key) = kept(app)?;
    let leaf = chain.first()?;
    let facts = pki::describe::facts(leaf).ok()?;
    let view = app.view();
    let recorded = view.state.server_certificate_of(app.journal.replica())?;
    let names = pki::describe::server_names(leaf).ok()?;
    let wanted = app.config.certificate_names();
    let due =
        facts.not_before.plus(Span::from_millis(facts.not_after.since(facts.not_before).millis() / 3 * 2));
    let current = view.state.server_issuer().is_none_or(|issuer| recorded.issuer == issuer.id)
        && facts.common_name.as_deref() == Some(&*app.config.server_cn)
        && at < due
        && wanted.iter().all(|name| names.contains(name));
    // One that was issued by a clock far ahead is not valid yet.
    let valid = facts.not_before <= at && at < facts.not_after && recorded.fingerprint == facts.fingerprint;
    let good = valid && (current || wanted_state == Wanted::Valid);
    let fresh = self::chain(&view.state, app.journal.replica(), leaf.to_vec(), at);
    good.then(|| certified(fresh, &key)).flatten()
}
