//! Starting, serving and stopping.
//!
//! The order of starting matters: everything that can be refused is refused before anything is changed.

use crate::ca::bundle_file;
use crate::ca::keys::Keys;
pub use crate::ca::keys::UnsealError;
use crate::ca::log_key::{self, LogKeyError};
use crate::ca::rewrap::{self, PendingRewrap};
use crate::ca::server_cert::{self, ServerCertError};
use crate::ca::spire::{self, SpireDomains};
use crate::ca::{CertificateAuthority, ephemeral, hsm, step_ca};
use crate::cluster::local::{self, LocalReplica};
use crate::cluster::peer_tls::{self, PeerTls};
use crate::cluster::questions::FleetAnswers;
use crate::cluster::{Replication, announce, peer_watch};
use crate::edge::{Edge, connections, listener, plain, socket, tls};
use crate::fleet::{live, news, overlays};
use crate::operator;
use crate::process::anchor::{self, AnchorPlace, TrailAnchorError};
use crate::process::app::{App, Provenance};
use crate::process::chance;
use crate::process::clock::{self, BelievedClock};
use crate::process::config::{self, ConfigMistakes, ControlPlaneConfig};
use crate::process::config_warnings;
use crate::process::datadir::{DataDir, DirError, StoreVersion};
use crate::process::join::peer_options;
use crate::process::key_memory;
use crate::process::own_domain;
use crate::process::take_in;
use crate::reconcile;
use journal::{Journal, LogKey, OpenError, Options};
use lifecycle::clock::is_plausible;
use lifecycle::names::{Timestamp, TrustDomain};
use lifecycle::registry::{AcceptClock, AcceptRollback, Actor, Command, Confirmation, State};
use pki::seal::Kek;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

/// Descriptors kept for files, the log and the socket.
const RESERVED_FILES: u64 = 256;
/// Connections that the kernel holds until they are accepted, in a burst of them; the system may allow fewer.
const BACKLOG: u32 = 4096;
const STOP_LIMIT: Duration = Duration::from_secs(9);
/// How long after the beginning of a stop anybody may still wait for an HSM.
const HSM_STOP: Duration = Duration::from_secs(5);
/// How long the start waits for the anchor to be written, and how long a stop does.
const ANCHOR_START: Duration = Duration::from_secs(30);
const ANCHOR_STOP: Duration = Duration::from_secs(3);
/// How long the start waits for the other replicas, and how often it says so.
const CLUSTER_START: Duration = Duration::from_secs(10);
const TOLD_AGAIN: Duration = Duration::from_secs(10);
/// How long the start waits for an HSM.
const HSM_START: Duration = Duration::from_secs(3);
/// The same for step-ca.
const STEP_CA_START: Duration = Duration::from_secs(3);
/// How long a stop waits for another replica to lead.
const HAND_OVER: Duration = Duration::from_secs(3);
/// How long after the beginning of a stop the snapshot may still be written.
const SNAPSHOT_BY: Duration = Duration::from_secs(9);

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Config(#[from] ConfigMistakes),
    #[error(transparent)]
    Dir(#[from] DirError),
    #[error("key-encryption key: {0}")]
    Kek(#[from] pki::seal::KekError),
    #[error("this is not the key-encryption key that this directory was sealed with")]
    WrongKek,
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Unseal(#[from] UnsealError),
    /// A directory of the version before that cannot be taken in.
    #[error("{0}")]
    TakeIn(UnsealError),
    #[error(transparent)]
    Hsm(#[from] pki::pkcs11::HsmError),
    #[error(transparent)]
    LogKey(#[from] LogKeyError),
    #[error(transparent)]
    Anchor(#[from] TrailAnchorError),
    #[error("the clock says {now}, the last entry was written at {last}")]
    Clock { now: Timestamp, last: Timestamp },
    #[error(transparent)]
    ServerCert(#[from] ServerCertError),
    #[error("cannot listen on {address}: {error}")]
    Listen { address: SocketAddr, error: std::io::Error },
    #[error("cannot serve other replicas on {address}: {error}")]
    PeerListen { address: SocketAddr, error: std::io::Error },
    /// Before it had anything of the registry.
    #[error("the domain has several replicas, and this directory alone may not decide for them")]
    Replicated,
    #[error("this replica was removed from the cluster before it ever ran")]
    Removed,
    #[error("cannot serve {what} on {address}: {error}")]
    Plain { what: &'static str, address: SocketAddr, error: std::io::Error },
    #[error("the accepted rollback could not be recorded: {0}")]
    RollbackNotRecorded(String),
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    #[error(transparent)]
    Chance(#[from] chance::NoChance),
}

impl RunError {
    fn about(self, what: &'static str) -> Self {
        match self {
            RunError::Listen { address, error } => RunError::Plain { what, address, error },
            other => other,
        }
    }

    /// One line on what to do about it.
    pub fn remedy(&self) -> String {
        match self {
            RunError::Config(_) => {
                "correct enlist.toml; `enlist server check` reports every mistake".to_owned()
            }
            RunError::Replicated => {
                "start this replica (`enlist server run`), or give the command on the machine of one that runs".to_owned()
            }
            RunError::Dir(error) => error.remedy().to_owned(),
            RunError::Kek(pki::seal::KekError::Exposed { path, .. }) => {
                format!("nobody but its owner may read it: chmod 600 {}", path.display())
            }
            RunError::Unseal(UnsealError::NoHsm { .. }) => {
                "copy the section [pkcs11] from the enlist.toml of a replica that runs, and the file of the PIN that it names; every replica needs \
                 the HSM"
                    .to_owned()
            }
            RunError::Kek(_) | RunError::WrongKek | RunError::Unseal(_) => {
                "provide the key that the directory is sealed with: the one given to `server init`, or the latest given \
                 to `enlist ca rewrap`; enlist.toml says where it is looked for"
                    .to_owned()
            }
            RunError::LogKey(_) | RunError::TakeIn(_) => {
                "restore the directory from a backup; if a wrong key-encryption key is the cause, provide the right one"
                    .to_owned()
            }
            RunError::Anchor(error) => error.remedy().to_owned(),
            RunError::Hsm(error) => error.remedy().to_owned(),
            RunError::Open(error) => open_remedy(error),
            RunError::Clock { now, last } if now < last => {
                "correct the clock; if it is right, an earlier run wrote entries with a wrong one: `enlist server clock \
                 repair` sets the time back, --accept-clock goes on from the last entry"
                    .to_owned()
            }
            RunError::Clock { .. } => {
                "correct the clock, or start with --accept-clock if it is right".to_owned()
            }
            RunError::Listen { .. } => "choose another --listen address, or stop what uses it".to_owned(),
            RunError::PeerListen { .. } => {
                "set peer_listen in enlist.toml to another address, or stop what uses it".to_owned()
            }
            RunError::Removed => api::code::REPLICA_REMOVED.hint.to_owned(),
            RunError::Plain { what, .. } => format!(
                "choose another --{what} address (or `{what}` in enlist.toml), or stop what uses it"
            ),
            RunError::ServerCert(_) => {
                "is the machine's clock right? with a wrong one every issuer may have ended; otherwise see the log for the \
                 cause"
                    .to_owned()
            }
            RunError::Tls(_) | RunError::RollbackNotRecorded(_) | RunError::Chance(_) => "see the log for the cause".to_owned(),
        }
    }
}

/// A file that belongs to another user was left there by a command that ran as that user.
fn open_remedy(error: &OpenError) -> String {
    let Some(file) = error.not_permitted() else {
        return "nothing was changed; the message names the file and what can be done".to_owned();
    };
    let holds_version = |dir: &&std::path::Path| dir.join("VERSION").exists();
    let dir = file.ancestors().find(holds_version).unwrap_or(file);
    let user = crate::user_name(rustix::process::geteuid().as_raw());
    format!(
        "nothing was changed; a command that ran as another user, such as root, left files there: give them back with \
         `chown -R {user}: {}` as root",
        dir.display()
    )
}

/// What the flags of `server run` override in the configuration.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    pub listen: Vec<SocketAddr>,
    pub metrics: Option<SocketAddr>,
    pub health: Option<SocketAddr>,
    pub accept_clock: bool,
    /// Instead of the one in the configuration, which lies in the data directory.
    pub anchor: Option<AnchorPlace>,
    pub accept_rollback: bool,
    /// Serve gRPC server reflection.
    pub reflection: bool,
    /// Serve the operator socket and nothing else, of a domain that is not replicated.
    pub socket_only: bool,
}

/// A control plane that serves.
pub struct Server {
    app: Arc<App>,
    stop: watch::Sender<bool>,
    tasks: TaskTracker,
    bound: Vec<SocketAddr>,
    dir: DataDir,
    _lock: crate::process::datadir::DirLock,
}

/// Checks a directory and its configuration without starting anything.
pub fn check(dir: &DataDir) -> Result<ControlPlaneConfig, RunError> {
    dir.check_version()?;
    let config = config::load(&dir.config())?;
    anchor::check_place(dir, &config.audit)?;
    if let Some(domain) = own_domain::read(dir) {
        refuse_own_domain(&config, &domain)?;
    }
    if rewrap::begun(dir).is_none() {
        load_kek(dir, &config)?;
    }
    Ok(config)
}

/// No other CA speaks for the domain's own identities.
fn refuse_own_domain(config: &ControlPlaneConfig, own: &TrustDomain) -> Result<(), RunError> {
    let mistakes = config::own_domain(&config.spire, own);
    if mistakes.is_empty() { Ok(()) } else { Err(ConfigMistakes(mistakes).into()) }
}

fn load_kek(dir: &DataDir, config: &ControlPlaneConfig) -> Result<Kek, RunError> {
    let kek = config.kek.load()?;
    // Known by its id, so that a wrong key is recognised before the store is touched.
    let path = dir.keys(rewrap::ID);
    let known = journal::read_small(&path).map_err(|error| DirError::Io { path, error })?;
    if String::from_utf8_lossy(&known).trim() == kek.id() { Ok(kek) } else { Err(RunError::WrongKek) }
}

/// What is wrong with the HSM that a configuration names. Waits for its answer.
pub fn hsm_complaint(dir: &DataDir, config: &ControlPlaneConfig) -> Option<String> {
    let (kek, _) = load_keks(dir, config).ok()?;
    hsm::complaint(dir, config, &kek)
}

/// The key-encryption key and, where it was being changed, the next one: either may be the right one.
pub(super) fn load_keks(
    dir: &DataDir,
    config: &ControlPlaneConfig,
) -> Result<(Arc<Kek>, Option<PendingRewrap>), RunError> {
    let begun = rewrap::begun(dir);
    let kek = load_kek(dir, config).map(Arc::new);
    let kek = match &begun {
        Some(begun) => kek.unwrap_or_else(|_| begun.kek.clone()),
        None => kek?,
    };
    Ok((kek, begun))
}

/// The key of the log, of a directory that is locked; one of the version before is taken in first.
pub(super) async fn unlock(
    dir: &DataDir,
    kek: &Kek,
    begun: Option<&PendingRewrap>,
) -> Result<LogKey, RunError> {
    let keks: Vec<&Kek> = std::iter::once(kek).chain(begun.map(|begun| begun.kek.as_ref())).collect();
    take_in::take_in(dir, dir.check_version()?, &keks).await?;
    Ok(log_key::load(dir, &keks)?)
}

/// The domain's keys, by whichever key-encryption key opens them, which must also be the one that the log key is sealed with;
/// and whether a change of it that was begun has been made.
pub(super) fn unseal(
    dir: &DataDir,
    state: &State,
    log_key: &LogKey,
    kek: Arc<Kek>,
    begun: Option<PendingRewrap>,
    config: &ControlPlaneConfig,
) -> Result<(Keys, Option<(PendingRewrap, bool)>), RunError> {
    let token = hsm::open(config, dir, &kek)?;
    let begun = begun.map(|begun| {
        let keys = Keys::unseal(state, begun.kek.clone(), token.clone()).ok();
        (begun, keys)
    });
    let (keys, begun) = match begun {
        Some((begun, Some(keys))) => (keys, Some((begun, true))),
        Some((begun, None)) => (Keys::unseal(state, kek, token)?, Some((begun, false))),
        None => (Keys::unseal(state, kek, token)?, None),
    };
    log_key::check_sealed_with(dir, &keys.kek(), log_key)?;
    Ok((keys, begun))
}

/// The operator's word for a clock that is too far from the last entry, which goes on record; none where it is not
/// needed.
fn check_clock(last: Option<Timestamp>, accept: bool) -> Result<Option<AcceptClock>, RunError> {
    let now = clock::now();
    let Some(last) = last.filter(|last| !is_plausible(now, *last)) else { return Ok(None) };
    let accepted = accept.then_some(AcceptClock { from: last, to: now, confirm: Confirmation::NotAsked });
    accepted.map(Some).ok_or(RunError::Clock { now, last })
}

/// Starts a control plane; it serves when this returns.
pub async fn start(dir: DataDir, overrides: Overrides) -> Result<Server, RunError> {
    dir.check_owner()?;
    let mut config = check(&dir)?;
    for warning in config_warnings::warnings(&dir, &config) {
        tracing::warn!("{warning}");
    }
    if !overrides.listen.is_empty() {
        config.listen = overrides.listen;
    }
    config.metrics = overrides.metrics.or(config.metrics);
    config.health = overrides.health.or(config.health);
    let closed = config.listen.clone();
    if overrides.socket_only {
        (config.listen, config.metrics, config.health) = (Vec::new(), None, None);
    }
    config.audit.anchor = overrides.anchor.or(config.audit.anchor);
    anchor::check_place(&dir, &config.audit)?;
    let (kek, begun) = load_keks(&dir, &config)?;
    let lock = dir.lock()?;
    if dir.check_version()? == StoreVersion::Older {
        check_clock(journal::probe(dir.path(), None)?.last_at, overrides.accept_clock)?;
    }
    let listeners = bind(&config.listen)?;
    let metrics = bind(config.metrics.as_slice()).map_err(|error| error.about("metrics"))?;
    let health = bind(config.health.as_slice()).map_err(|error| error.about("health"))?;
    let log_key = unlock(&dir, &kek, begun.as_ref()).await?;
    let joined = local::load(&dir)?.joined();
    let last_at = journal::probe_replica(dir.path(), Some(&log_key), joined)?.last_at;
    let accepted = check_clock(last_at, overrides.accept_clock)?;
    let clock = Arc::new(BelievedClock::new(last_at.unwrap_or(Timestamp::from_millis(0))));
    let (stamps, walls, steady) = (clock.clone(), clock.clone(), clock.clone());
    let local = local::load(&dir)?;
    if overrides.socket_only && local.joined() {
        return Err(RunError::Replicated);
    }
    let tls = peer_tls(&dir, &kek, &local, &clock)?;
    let connector = Arc::new(peer_tls::PeerDialer(tls.clone()));
    let mut options = Options::new(dir.path(), Arc::new(move || stamps.now()), log_key.clone());
    options.wall = Some(Arc::new(move || walls.read().wall));
    options.steady = Some(Arc::new(move || steady.read().by_steady()));
    options.snapshot_bytes = Some(config.journal.snapshot_bytes);
    options.keep_bytes = config.journal.keep_bytes;
    options.replica = local.id;
    options.peers = Some(peer_options(&local, connector, chance::incarnation()?));
    let journal = Arc::new(Journal::open(options).await?);
    if overrides.socket_only && !journal.view().state.replicas.is_empty() {
        if let Err(error) = journal.shutdown().await {
            tracing::warn!(%error, "the log did not close cleanly");
        }
        return Err(RunError::Replicated);
    }
    let (stop, stopping) = watch::channel(false);
    let replication = Replication::new(tls, dir.clone());
    // The replica that was initialized knows its domain from its registry alone, and talks to the others before it serves.
    announce::trust(&replication.tls, &journal.view().state);
    let pulse = journal.clone();
    tokio::spawn(async move { pulse.keep_pulse().await });
    if local.joined() || !journal.view().state.replicas.is_empty() {
        let address = config.peer_address();
        replication
            .serve(&journal, address, stopping.clone())
            .map_err(|error| RunError::PeerListen { address, error })?;
        // The others may have been told another address when this replica joined, and send the log to where it says that it is.
        let announced = replication.listener.get().map(|bound| announce::peer_name(&config, *bound));
        if let Some(announced) = &announced {
            journal.is_reached_at(announced.clone());
        }
        reach_others(&journal, &local, address, announced.as_deref().unwrap_or_default()).await?;
    }
    if journal.view().state.has_ephemeral_issuers() {
        key_memory::forbid_swapping();
    }
    if let Some(domain) = &journal.view().state.domain {
        refuse_own_domain(&config, &domain.name)?;
        own_domain::write(&dir, &domain.name)?;
    }
    let (keys, begun) = unseal(&dir, &journal.view().state, &log_key, kek, begun, &config)?;
    let rolled_back = match anchor::check(&config.audit, &journal).await {
        Err(error) if !overrides.accept_rollback || !error.is_acceptable() => {
            // Only a restart with the right directory or anchor helps; what was opened is closed.
            if let Err(error) = journal.shutdown().await {
                tracing::warn!(%error, "the log did not close cleanly");
            }
            return Err(error.into());
        }
        checked => checked.err(),
    };
    rewrap::settle(&dir, begun)?;
    let bound: Vec<SocketAddr> = listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect();
    let first = bound.first().or(closed.first());
    let advertised = first.map(|first| config.advertised(*first)).unwrap_or_default();
    let authority = CertificateAuthority::new(
        keys,
        dir.clone(),
        SpireDomains::new(&config.spire, config_warnings::own_cas(&dir)),
    );
    let edge = Edge::new(connection_limit(), overrides.reflection);
    let claim_key = chance::claim_key()?;
    let (parts, keys) = ((journal, replication), (authority, claim_key));
    let app = App::new(config, parts, clock, keys, edge, advertised, stopping);
    announce::follow_trust(&app);
    app.journal.answer_peers(Arc::new(FleetAnswers::new(&app)));
    record_gap(&app).await;
    match rolled_back {
        Some(error) => accept_rollback(&app, &error).await?,
        None if overrides.accept_rollback => {
            tracing::warn!(
                "--accept-rollback was given, but nothing was put back: leave it out, or the anchor is of no use"
            );
        }
        None => {}
    }
    if let Err(why) = anchor::write_now(&app, &app.view(), ANCHOR_START).await {
        return Err(TrailAnchorError::NotWritable { why }.into());
    }

    if app.ca.keys.hsm().is_some() {
        // One that is there is known by then; for another nobody waits.
        let _ = tokio::time::timeout(HSM_START, hsm::check(&app)).await;
    }
    if app.view().state.has_step_ca() {
        // The same of step-ca.
        let _ = tokio::time::timeout(STEP_CA_START, step_ca::check(&app)).await;
    }
    let presented = app.ca.presented.clone();
    // Whoever has to roll the issuer that cannot sign needs the operator socket for it.
    if let Err(error) = server_cert::ensure(&app, &presented).await {
        if app.config.own_certificate.is_some() {
            return Err(error.into());
        }
        if app.ca.awaits_certificate() {
            tracing::warn!(%error, "TLS is not served yet: waiting for the HSM to sign the server certificate");
        } else {
            let remedy = "see that an issuer signs for the control plane (`enlist ca show`; `enlist ca roll prepare --use server`), or that the HSM is there";
            tracing::error!(%error, remedy, "no server certificate could be issued");
        }
    }
    bundle_file::write(&app)?;
    if let Some(accepted) = accepted {
        record_clock(&app, accepted).await;
    }
    // Not ready without it, and tried again every second.
    if let Err(failure) = ephemeral::ensure(&app).await {
        let code = failure.code.word;
        tracing::error!(code, "the ephemeral issuer was not published: {}", failure.message);
    }
    let tls = Arc::new(tls::server_config(&app, presented.clone())?);
    let operators = socket::bind(&dir.operator_socket())?;

    let tasks = TaskTracker::new();
    let router = operator::router(&app);
    for listener in listeners {
        tasks.spawn(listener::accept(app.clone(), listener, tls.clone(), router.clone(), tasks.clone()));
    }
    for listener in metrics {
        tasks.spawn(plain::accept(app.clone(), listener, plain::metrics(&app)));
    }
    for listener in health {
        tasks.spawn(plain::accept(app.clone(), listener, plain::health(&app)));
    }
    tasks.spawn(socket::accept(app.clone(), operators, router, tasks.clone()));
    if app.ca.keys.hsm().is_some() {
        tasks.spawn(hsm::watch(app.clone()));
    }
    if app.view().state.has_step_ca() {
        tasks.spawn(step_ca::watch(app.clone()));
        tasks.spawn(reconcile::revocations::run(app.clone()));
    }
    if app.view().state.has_ephemeral_issuers() {
        tasks.spawn(reconcile::memory_issuer::run(app.clone()));
    }
    tasks.spawn(connections::watch(app.clone()));
    tasks.spawn(peer_watch::run(app.clone()));
    if !app.ca.spire.is_empty() {
        tasks.spawn(spire::follow(app.clone()));
    }
    tasks.spawn(live::follow(app.clone()));
    tasks.spawn(overlays::follow(app.clone()));
    tasks.spawn(news::follow(app.clone()));
    if let Some(webhook) = app.config.alerts.webhook.clone() {
        tasks.spawn(reconcile::webhook::run(app.clone(), webhook));
    }
    if let Some(loki) = app.config.loki.clone() {
        tasks.spawn(reconcile::forward::run(app.clone(), loki));
    }
    if let Some(claims) = app.config.claims.clone() {
        tasks.spawn(reconcile::claims::run(app.clone(), claims));
    }
    if let Some(anchor) = app.config.audit.anchor.clone() {
        tasks.spawn(reconcile::anchor::run(app.clone(), anchor));
    }
    tasks.spawn(reconcile::run(app.clone(), presented));
    Ok(Server { app, stop, tasks, bound, dir, _lock: lock })
}

/// What this replica shows to others and trusts, before the registry says.
fn peer_tls(
    dir: &DataDir,
    kek: &Kek,
    local: &LocalReplica,
    clock: &Arc<BelievedClock>,
) -> Result<Arc<PeerTls>, RunError> {
    let tls = PeerTls::new(clock.clone());
    if let Some(kept) = local::kept(dir, kek) {
        tls.show(kept);
    }
    let roots = std::fs::read(dir.ca("bundle.pem")).ok().and_then(|pem| pki::pem::certificates(&pem).ok());
    if let (Some(domain), Some(roots)) = (&local.domain, roots) {
        tls.trust(domain.clone(), roots, Vec::new());
    }
    Ok(tls)
}

/// Waits until this replica has what the cluster knows: for as long as it takes if it knows nothing yet, else not for long, because
/// it can be asked and stopped without a majority too.
async fn reach_others(
    journal: &Journal,
    local: &LocalReplica,
    own: SocketAddr,
    announced: &str,
) -> Result<(), RunError> {
    let began = Instant::now();
    let mut told = began;
    loop {
        if journal.barrier().await.is_ok() {
            return Ok(());
        }
        let is_empty = journal.view().state.domain.is_none();
        let is_removed = journal.is_refused(journal::PeerRefusal::Removed);
        if is_empty && is_removed {
            return Err(RunError::Removed);
        }
        if !is_empty && (is_removed || began.elapsed() > CLUSTER_START) {
            tracing::warn!(
                "no majority of the cluster can be reached: starting with what this replica knows"
            );
            return Ok(());
        }
        if told.elapsed() > TOLD_AGAIN {
            let addresses: Vec<&str> = local.seeds.values().map(String::as_str).collect();
            let (others, remedy) = (
                addresses.join(" "),
                "see that the other replicas run, that this machine reaches them at their addresses, and that they reach this one by the address that it announces (names, listen and peer_listen in enlist.toml)",
            );
            tracing::warn!(others, listening = %own, announced, remedy, "waiting for the other replicas: none has sent this one the log yet");
            told = Instant::now();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn bind(addresses: &[SocketAddr]) -> Result<Vec<TcpListener>, RunError> {
    let bound = |&address: &SocketAddr| listen(address).map_err(|error| RunError::Listen { address, error });
    addresses.iter().map(bound).collect()
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// As many connections as the system allows files, less what the process itself needs.
fn connection_limit() -> usize {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
    let files = getrlimit(Resource::Nofile).current.unwrap_or(65_536);
    usize::try_from(files.saturating_sub(RESERVED_FILES).max(64)).unwrap_or(1024)
}

/// Lines that were missing at start are themselves a matter of record.
async fn record_gap(app: &App) {
    let Some(gap) = app.journal.audit_gap() else { return };
    tracing::warn!(from = gap.from, to = gap.to, refilled = gap.refilled, "audit lines were missing");
    if let Err(failure) =
        app.commit(Actor::Reconciler, &Provenance::internal(), Command::RecordAuditGap(gap)).await
    {
        tracing::error!(code = failure.code.word, "the gap could not be recorded: {}", failure.message);
    }
}

/// The directory is older than its anchor, and whoever started it has accepted that.
async fn accept_rollback(app: &App, error: &TrailAnchorError) -> Result<(), RunError> {
    tracing::warn!(
        %error,
        "the data directory is accepted all the same; enrollment tokens, recovery tokens and repair bundles of before are \
         void, and what was revoked since the copy must be revoked again"
    );
    let accept = AcceptRollback {
        directory_seq: app.view().audit.seq,
        anchor_seq: error.anchor_seq(),
        voids_recovery: true,
    };
    let command = Command::AcceptRollback(accept);
    let recorded = app.commit(Actor::Reconciler, &Provenance::internal(), command).await;
    // Without its line the anchor is not moved: the next start must ask again.
    recorded.map(drop).map_err(|failure| RunError::RollbackNotRecorded(failure.message))
}

/// `--accept-clock` is an operator's word like any other.
async fn record_clock(app: &App, accepted: AcceptClock) {
    let user = socket::user_name(rustix::process::geteuid().as_raw());
    let command = Command::AcceptClock(accepted);
    if let Err(failure) = app.commit(Actor::Local { user }, &Provenance::internal(), command).await {
        tracing::error!(code = failure.code.word, "the clock could not be recorded: {}", failure.message);
    }
}

impl Server {
    /// Where it listens, as a host would be told.
    pub fn url(&self) -> String {
        let first = self.bound.first().copied();
        let host = first.map_or_else(|| "localhost".to_owned(), |address| self.app.config.host(address));
        format!("https://{host}:{}", first.map_or(0, |address| address.port()))
    }

    /// The URLs that nodes are sent to.
    pub fn advertised(&self) -> Vec<String> {
        self.app.servers()
    }

    /// Ends when TLS is served: at once, unless the HSM has still to sign the first server certificate.
    pub async fn serving(&self) {
        while self.app.ca.awaits_certificate() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Ends when the journal has stopped by itself, with the reason: nothing can be granted any more.
    pub async fn failed(&self) -> String {
        loop {
            if let Some(cause) = self.app.journal.failure() {
                return cause;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Requests in progress have ended; those that wait for an HSM are not waited for as long as they would.
    async fn ended(&self) {
        let hsm = self.app.ca.keys.hsm();
        let all = self.tasks.wait();
        let Err(_) = tokio::time::timeout(HSM_STOP, all).await else { return };
        if let Some(hsm) = hsm {
            hsm.close();
        }
        self.tasks.wait().await;
    }

    /// Stops: another replica leads, no new connections, requests in progress end, what was counted is written, then the log closes.
    pub async fn stop(self) {
        let began = Instant::now();
        if self.app.journal.hand_over(HAND_OVER).await {
            tracing::info!("another replica leads now");
        }
        let _ = self.stop.send(true);
        self.tasks.close();
        if tokio::time::timeout(STOP_LIMIT, self.ended()).await.is_err() {
            tracing::warn!("some connections did not end in time");
        }
        self.app.edge.refusals.flush(&self.app, true).await;
        reconcile::denied::record_sightings(&self.app, true).await;
        self.app.edge.refused_renewals.flush(&self.app, true).await;
        reconcile::sign_if_behind(&self.app).await;
        reconcile::forward::flush(&self.app).await;
        // Reported by then; the stop goes on.
        let _ = anchor::write_now(&self.app, &self.app.view(), ANCHOR_STOP).await;
        let left = began.checked_add(SNAPSHOT_BY).map(|by| by.saturating_duration_since(Instant::now()));
        if let Err(error) = self.app.journal.shutdown_with_snapshot(left.unwrap_or_default()).await {
            tracing::error!(%error, "the log did not close cleanly");
        }
        if let Some(hsm) = self.app.ca.keys.hsm() {
            hsm.close();
        }
        let _ = std::fs::remove_file(self.dir.operator_socket());
    }
}
