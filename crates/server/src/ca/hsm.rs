//! The HSM with the keys of issuers: who may wait for it, and whether it signs.
//!
//! What signs waits for the HSM on a thread of its own kind, never on one that serves others. While the last signature of a key
//! failed, nobody waits: requests are refused at once, and only the watch asks, until it signs again.

use crate::ca::{ephemeral, keys};
use crate::http::failure::Failure;
use crate::process::app::App;
use crate::process::chance;
use crate::process::config::ControlPlaneConfig;
use crate::process::datadir::{DataDir, DirError, replace};
use api::code;
use lifecycle::names::{IssuerUse, TrustDomain};
use lifecycle::registry::{Issuer, IssuerKind, IssuerState, State};
use pki::issuer::SigningIssuer;
use pki::leaf::SignError;
use pki::pkcs11::{Hsm, HsmError, HsmKey, KeyReference, PinMemory, SESSIONS, SessionProgram, rolled_label};
use pki::roll::{self, IntermediateRequest};
use pki::seal::{Kek, KekSource};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Which PIN the token refused, sealed.
const REFUSED_PIN: &str = "pkcs11-pin.refused";
/// Labels of the keys that sign, a line each.
const LABELS: &str = "pkcs11.labels";
/// How often a key that signs is asked whether it does, and one that does not.
const WATCH: Duration = Duration::from_secs(10);
const WATCH_FAILED: Duration = Duration::from_secs(1);
/// Threads that wait at once: one more than each session has in hand.
const AT_ONCE: usize = SESSIONS * 2;
/// How long a request for a certificate waits for its turn.
const TURN: Duration = Duration::from_secs(10);

/// The token that a configuration names. It is not contacted yet.
pub fn open(
    config: &ControlPlaneConfig,
    dir: &DataDir,
    kek: &Arc<Kek>,
) -> Result<Option<Arc<Hsm>>, HsmError> {
    let Some(pkcs11) = &config.pkcs11 else { return Ok(None) };
    let pins = PinMemory::in_file(dir.keys(REFUSED_PIN), kek.clone());
    Hsm::with_program(pkcs11.token.clone(), pins, session_program(config)?).map(Some)
}

/// A vendor's module is not given the key-encryption key.
pub fn session_program(config: &ControlPlaneConfig) -> Result<SessionProgram, HsmError> {
    let program = SessionProgram::own()?;
    Ok(match &config.kek {
        KekSource::Env(name) => program.without(name),
        KekSource::File(_) => program,
    })
}

/// How the keys in the HSM were found last.
pub struct HsmWatch {
    turns: Semaphore,
    /// Whether they were asked since the start.
    is_checked: AtomicBool,
    /// By label.
    keys: RwLock<BTreeMap<String, WatchedKey>>,
}

/// A key that is to sign, or will be once its issuer is activated.
#[derive(Default)]
struct WatchedKey {
    is_active: bool,
    /// Why it does not sign.
    failure: Option<HsmError>,
}

impl HsmWatch {
    /// Of a replica that has one, or none.
    pub fn new(hsm: Option<&Arc<Hsm>>) -> Self {
        let is_checked = AtomicBool::new(hsm.is_none());
        Self { turns: Semaphore::new(AT_ONCE), is_checked, keys: RwLock::default() }
    }

    /// Whether every key that is to sign now does, as far as is known.
    pub fn is_available(&self) -> bool {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let signs = |key: &WatchedKey| !key.is_active || key.failure.is_none();
        self.is_checked.load(Ordering::Acquire) && keys.values().all(signs)
    }

    /// Until the keys are asked again.
    fn pause(&self) -> Duration {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let is_well =
            self.is_checked.load(Ordering::Acquire) && keys.values().all(|key| key.failure.is_none());
        if is_well { WATCH } else { WATCH_FAILED }
    }

    fn failure(&self, label: &str) -> Option<HsmError> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.get(label).and_then(|key| key.failure.clone())
    }

    /// Logged when it changes. What signs no more is nobody's concern here.
    fn note(&self, label: &str, failure: Option<&HsmError>) {
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = keys.get_mut(label).map(|key| &mut key.failure) else { return };
        match failure {
            // Not the HSM's doing.
            Some(HsmError::Busy | HsmError::Closed) => {}
            Some(error) => {
                if known.as_ref() != Some(error) {
                    let remedy = error.remedy();
                    tracing::error!(key = label, %error, remedy, "the key in the HSM does not sign");
                }
                *known = Some(error.clone());
            }
            None => {
                if known.take().is_some() {
                    tracing::info!(key = label, "the key in the HSM signs again");
                }
            }
        }
    }

    /// From now on these, and no others; whether they are active. Says whether other keys sign than before.
    fn set_keys(&self, watched: &BTreeMap<String, bool>) -> bool {
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        let before: Vec<String> =
            keys.iter().filter(|(_, key)| key.is_active).map(|(label, _)| label.clone()).collect();
        keys.retain(|label, _| watched.contains_key(label));
        for (label, is_active) in watched {
            keys.entry(label.clone()).or_default().is_active = *is_active;
        }
        !before.iter().eq(watched.iter().filter(|(_, is_active)| **is_active).map(|(label, _)| label))
    }
}

fn unavailable() -> Failure {
    Failure::new(code::ISSUER_UNAVAILABLE, "the HSM with the issuer's key does not sign now").retry_after(5)
}

/// A turn to have a node's certificate signed, for who may need one: at most so many threads wait for the HSM. None where it
/// is not needed, or of no use: what is asked again after a lost answer needs no signature.
pub async fn turn(app: &App) -> Result<Option<SemaphorePermit<'_>>, Failure> {
    let issuer = ephemeral::node_signer(app).ok();
    let Some(issuer) = issuer.filter(|issuer| issuer.hsm_key().is_some() && ready(app, issuer).is_ok())
    else {
        return Ok(None);
    };
    match tokio::time::timeout(TURN, app.ca.hsm.turns.acquire()).await {
        // It may have failed while others were waiting for it.
        Ok(Ok(_)) if ready(app, &issuer).is_err() => Ok(None),
        Ok(Ok(permit)) => Ok(Some(permit)),
        Ok(Err(_)) | Err(_) => Err(unavailable()),
    }
}

/// Refuses at once while the issuer's key is known not to sign.
pub fn ready(app: &App, issuer: &SigningIssuer) -> Result<(), Failure> {
    let failure = issuer.hsm_key().and_then(|key| app.ca.hsm.failure(key.label()));
    if failure.is_some() { Err(unavailable()) } else { Ok(()) }
}

/// Has something signed. Whoever else is served by this thread goes on elsewhere while the HSM is at it.
pub fn observed<T, E: HsmFailure>(
    app: &App,
    issuer: &SigningIssuer,
    sign: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let Some(key) = issuer.hsm_key() else { return sign() };
    let signed = tokio::task::block_in_place(sign);
    match signed.as_ref().map_err(HsmFailure::hsm) {
        Ok(_) => app.ca.hsm.note(key.label(), None),
        Err(Some(error)) => app.ca.hsm.note(key.label(), Some(error)),
        Err(None) => {}
    }
    signed
}

/// The same, with what a caller is told.
pub fn signed<T, E: HsmFailure>(
    app: &App,
    issuer: &SigningIssuer,
    what: &str,
    sign: impl FnOnce() -> Result<T, E>,
) -> Result<T, Failure> {
    ready(app, issuer)?;
    let signed = observed(app, issuer, sign);
    signed.map_err(|error| failure_of(&error).unwrap_or_else(|| Failure::internal(what, &error)))
}

/// What a caller is told, if it is the HSM that failed.
pub fn failure_of(error: &impl HsmFailure) -> Option<Failure> {
    error.hsm().map(|_| unavailable())
}

/// Errors that may be the HSM's.
pub trait HsmFailure: std::fmt::Display {
    fn hsm(&self) -> Option<&HsmError>;
}

impl HsmFailure for SignError {
    fn hsm(&self) -> Option<&HsmError> {
        SignError::hsm(self)
    }
}

impl HsmFailure for pki::crl::CrlError {
    fn hsm(&self) -> Option<&HsmError> {
        match self {
            Self::Sign(error) => error.hsm(),
            _ => None,
        }
    }
}

impl HsmFailure for pki::hierarchy::HierarchyError {
    fn hsm(&self) -> Option<&HsmError> {
        match self {
            Self::Sign(error) => error.hsm(),
            _ => None,
        }
    }
}

/// The keys of issuers that sign now, and of those that are prepared to.
fn watched(app: &App, state: &State) -> Vec<(HsmKey, bool)> {
    let key = |record: &Issuer| app.ca.keys.open(record).ok()?.hsm_key().cloned();
    let in_state = |wanted: IssuerState| {
        let records = state.domain_issuers_in(wanted).filter(|record| record.kind == IssuerKind::Pkcs11);
        records.filter_map(key).map(move |key| (key, wanted == IssuerState::Active))
    };
    in_state(IssuerState::Prepared).chain(in_state(IssuerState::Active)).collect()
}

/// Which keys sign, for `server check`, which does not read the registry.
pub fn write_labels(dir: &DataDir, labels: &[String]) -> Result<(), DirError> {
    let lines: String = labels.iter().map(|label| format!("{label}\n")).collect();
    replace(&dir.keys(LABELS), lines.as_bytes(), 0o600)
}

/// Why the key of an issuer that is to sign, or is prepared to, does not.
pub fn failure(app: &App, issuer: &Issuer) -> Option<String> {
    let is_watched = matches!(issuer.state, IssuerState::Active | IssuerState::Prepared);
    if issuer.kind != IssuerKind::Pkcs11 || !is_watched {
        return None;
    }
    let opened = app.ca.keys.open(issuer).ok()?;
    app.ca.hsm.failure(opened.hsm_key()?.label()).map(|error| error.to_string())
}

/// Which keys are to sign follows what the registry says now.
pub fn follow(app: &App, state: &State) -> Vec<HsmKey> {
    let keys = watched(app, state);
    let labels: BTreeMap<String, bool> =
        keys.iter().map(|(key, is_active)| (key.label().to_owned(), *is_active)).collect();
    let is_first = !app.ca.hsm.is_checked.load(Ordering::Acquire);
    if app.ca.hsm.set_keys(&labels) || is_first {
        let active = labels.into_iter().filter(|(_, is_active)| *is_active);
        // Without it, `server check` looks for the token alone.
        let _ = write_labels(&app.ca.dir, &active.map(|(label, _)| label).collect::<Vec<_>>());
    }
    keys.into_iter().map(|(key, _)| key).collect()
}

/// Asks each key for a signature.
pub async fn check(app: &App) {
    let keys = follow(app, &app.view().state);
    for key in keys {
        let asked = key.clone();
        let Ok(found) = tokio::task::spawn_blocking(move || asked.check()).await else { return };
        app.ca.hsm.note(key.label(), found.as_ref().err());
    }
    app.ca.hsm.is_checked.store(true, Ordering::Release);
}

/// Does so until the process stops.
pub async fn watch(app: Arc<App>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(app.ca.hsm.pause()) => {}
            () = app.stopped() => return,
        }
        check(&app).await;
    }
}

/// What is wrong with the HSM of a configuration, for `server check`. Waits for it.
pub fn complaint(dir: &DataDir, config: &ControlPlaneConfig, kek: &Arc<Kek>) -> Option<String> {
    let first = &config.pkcs11.as_ref()?.key;
    let known = journal::read_small(&dir.keys(LABELS)).unwrap_or_default();
    let known = String::from_utf8_lossy(&known);
    let labels: Vec<&str> = known.lines().filter(|label| !label.is_empty()).collect();
    let found = open(config, dir, kek).and_then(|hsm| {
        let Some(hsm) = hsm else { return Ok(()) };
        if labels.is_empty() {
            // No issuer has its key there yet, or any more: the token is to be there, and to take the PIN.
            return match hsm.find(first) {
                Err(HsmError::KeyMissing { .. }) => Ok(()),
                found => found.map(drop),
            };
        }
        labels.iter().try_for_each(|label| hsm.find(label).map(drop))
    });
    found.err().map(|error| format!("pkcs11: {error}: {}", error.remedy()))
}

/// A new key in the HSM for the next issuer of a use, and the request for its certificate. What is sealed of it is its place.
pub fn request(app: &App, domain: &TrustDomain, usage: IssuerUse) -> Result<IntermediateRequest, Failure> {
    let (Some(hsm), Some(config)) = (app.ca.keys.hsm(), &app.config.pkcs11) else {
        let failure = Failure::new(code::BAD_REQUEST, "kind: no HSM is configured");
        return Err(failure.remedy("set [pkcs11] in enlist.toml and start the control plane again"));
    };
    let label = rolled_label(&config.key, usage.as_str(), chance::key_label()?);
    let made = tokio::task::block_in_place(|| {
        let key = hsm.generate(&label)?;
        Ok((roll::request_for(domain, usage, &key), key))
    });
    let (request, key) = made.map_err(|error: HsmError| {
        tracing::error!(%label, %error, remedy = error.remedy(), "no key for the next issuer was made in the HSM");
        let message = format!("no key for the next issuer could be made in the HSM: {error}");
        Failure::new(code::ISSUER_UNAVAILABLE, message).remedy(error.remedy()).retry_after(5)
    })?;
    let csr_pem = request.map_err(|error| Failure::internal("the next issuer's key did not sign", &error))?;
    Ok(IntermediateRequest { csr_pem, spki: key.spki(), key: KeyReference { label }.to_bytes() })
}

/// What a record of the registry holds of a key in the HSM.
pub fn issuer(
    record: &Issuer,
    unsealed: &[u8],
    hsm: Option<&Arc<Hsm>>,
) -> Result<SigningIssuer, keys::UnsealError> {
    let unusable = |why: String| keys::UnsealError::Unusable { what: "issuer", why };
    let reference = KeyReference::read(unsealed)
        .ok_or_else(|| unusable("the place of its key in the HSM is not recorded".to_owned()))?;
    let hsm = hsm.ok_or_else(|| keys::UnsealError::NoHsm { label: reference.label.clone() })?;
    SigningIssuer::in_hsm(&record.certificate, hsm, &reference.label)
        .map_err(|error| unusable(error.to_string()))
}
