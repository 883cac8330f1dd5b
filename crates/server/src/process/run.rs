//! Starting, serving and stopping.
//!
//! The order of starting matters: everything that can be refused is refused before anything is changed.

use crate::ca::keys::{Keys, UnsealError};
use crate::ca::log_key::{self, LogKeyError};
use crate::ca::rewrap::{self, PendingRewrap};
use crate::ca::server_cert::{self, ServerCertError};
use crate::ca::{CertificateAuthority, ephemeral};
use crate::edge::{Edge, connections, listener, plain, socket, tls};
use crate::fleet::{live, news, overlays};
use crate::operator;
use crate::process::anchor::{self, TrailAnchorError};
use crate::process::app::{App, Provenance};
use crate::process::clock::{self, BelievedClock};
use crate::process::config::{self, ConfigMistakes, ControlPlaneConfig};
use crate::process::config_warnings;
use crate::process::datadir::{DataDir, DirError, StoreVersion};
use crate::process::key_memory;
use crate::process::take_in;
use crate::reconcile;
use journal::{Journal, LogKey, OpenError, Options};
use lifecycle::clock::is_plausible;
use lifecycle::names::Timestamp;
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
    LogKey(#[from] LogKeyError),
    #[error(transparent)]
    Anchor(#[from] TrailAnchorError),
    #[error("the clock says {now}, the last entry was written at {last}")]
    Clock { now: Timestamp, last: Timestamp },
    #[error(transparent)]
    ServerCert(#[from] ServerCertError),
    #[error("cannot listen on {address}: {error}")]
    Listen { address: SocketAddr, error: std::io::Error },
    #[error("cannot serve {what} on {address}: {error}")]
    Plain { what: &'static str, address: SocketAddr, error: std::io::Error },
    #[error("the accepted rollback could not be recorded: {0}")]
    RollbackNotRecorded(String),
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
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
            RunError::Dir(error) => error.remedy().to_owned(),
            RunError::Kek(pki::seal::KekError::Exposed { path, .. }) => {
                format!("nobody but its owner may read it: chmod 600 {}", path.display())
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
            RunError::Open(_) => {
                "nothing was changed; the message names the file and what can be done".to_owned()
            }
            RunError::Clock { now, last } if now < last => {
                "correct the clock; if it is right, an earlier run wrote entries with a wrong one: `enlist server clock \
                 repair` sets the time back, --accept-clock goes on from the last entry"
                    .to_owned()
            }
            RunError::Clock { .. } => {
                "correct the clock, or start with --accept-clock if it is right".to_owned()
            }
            RunError::Listen { .. } => "choose another --listen address, or stop what uses it".to_owned(),
            RunError::Plain { what, .. } => format!(
                "choose another --{what} address (or `{what}` in enlist.toml), or stop what uses it"
            ),
            RunError::ServerCert(_) => {
                "is the machine's clock right? with a wrong one every issuer may have ended; otherwise see the log for the \
                 cause"
                    .to_owned()
            }
            RunError::Tls(_) | RunError::RollbackNotRecorded(_) => "see the log for the cause".to_owned(),
        }
    }
}

/// What the flags of `server run` override in the configuration.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    pub listen: Vec<SocketAddr>,
    pub metrics: Option<SocketAddr>,
    pub health: Option<SocketAddr>,
    pub accept_clock: bool,
    /// Instead of the one in the configuration, which lies in the data directory.
    pub anchor: Option<std::path::PathBuf>,
    pub accept_rollback: bool,
    /// Serve gRPC server reflection.
    pub reflection: bool,
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
    anchor::check_place(dir, config.audit.anchor.as_deref())?;
    if rewrap::begun(dir).is_none() {
        load_kek(dir, &config)?;
    }
    Ok(config)
}

fn load_kek(dir: &DataDir, config: &ControlPlaneConfig) -> Result<Kek, RunError> {
    let kek = config.kek.load()?;
    // Known by its id, so that a wrong key is recognised before the store is touched.
    let path = dir.keys(rewrap::ID);
    let known = journal::read_small(&path).map_err(|error| DirError::Io { path, error })?;
    if String::from_utf8_lossy(&known).trim() == kek.id() { Ok(kek) } else { Err(RunError::WrongKek) }
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
) -> Result<(Keys, Option<(PendingRewrap, bool)>), RunError> {
    let begun = begun.map(|begun| {
        let keys = Keys::unseal(state, begun.kek.clone()).ok();
        (begun, keys)
    });
    let (keys, begun) = match begun {
        Some((begun, Some(keys))) => (keys, Some((begun, true))),
        Some((begun, None)) => (Keys::unseal(state, kek)?, Some((begun, false))),
        None => (Keys::unseal(state, kek)?, None),
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
    key_memory::forbid_dumps();
    let mut config = check(&dir)?;
    for warning in config_warnings::warnings(&dir, &config) {
        tracing::warn!("{warning}");
    }
    if !overrides.listen.is_empty() {
        config.listen = overrides.listen;
    }
    config.metrics = overrides.metrics.or(config.metrics);
    config.health = overrides.health.or(config.health);
    config.audit.anchor = overrides.anchor.or(config.audit.anchor);
    anchor::check_place(&dir, config.audit.anchor.as_deref())?;
    let (kek, begun) = load_keks(&dir, &config)?;
    let lock = dir.lock()?;
    if dir.check_version()? == StoreVersion::Older {
        check_clock(journal::probe(dir.path(), None)?.last_at, overrides.accept_clock)?;
    }
    let listeners = bind(&config.listen)?;
    let metrics = bind(config.metrics.as_slice()).map_err(|error| error.about("metrics"))?;
    let health = bind(config.health.as_slice()).map_err(|error| error.about("health"))?;
    let log_key = unlock(&dir, &kek, begun.as_ref()).await?;
    let last_at = journal::probe(dir.path(), Some(&log_key))?.last_at;
    let accepted = check_clock(last_at, overrides.accept_clock)?;
    let clock = Arc::new(BelievedClock::new(last_at.unwrap_or(Timestamp::from_millis(0))));
    let stamps = clock.clone();
    let options = Options::new(dir.path(), Arc::new(move || stamps.now()), log_key.clone());
    let journal = Journal::open(options).await?;
    if journal.view().state.has_ephemeral_issuers() {
        key_memory::forbid_swapping();
    }
    let (keys, begun) = unseal(&dir, &journal.view().state, &log_key, kek, begun)?;
    let rolled_back = match anchor::check(config.audit.anchor.as_deref(), &journal) {
        Err(error) if !overrides.accept_rollback => {
            // Only a restart with the right directory or anchor helps; what was opened is closed.
            if let Err(error) = journal.shutdown().await {
                tracing::warn!(%error, "the log did not close cleanly");
            }
            return Err(error.into());
        }
        checked => checked.err(),
    };
    rewrap::settle(&dir, begun)?;
    let (stop, stopping) = watch::channel(false);
    let bound: Vec<SocketAddr> = listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect();
    let advertised = bound.first().map(|first| config.advertised(*first)).unwrap_or_default();
    let authority = CertificateAuthority::new(keys, dir.clone());
    let edge = Edge::new(connection_limit(), overrides.reflection);
    let app = App::new(config, journal, clock, authority, edge, advertised, stopping);
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
    if let Err(why) = anchor::keep(&app, &app.view()).await {
        return Err(TrailAnchorError::NotWritable { why }.into());
    }

    let presented = app.ca.presented.clone();
    server_cert::ensure(&app, &presented).await?;
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
    tasks.spawn(connections::watch(app.clone()));
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
    tasks.spawn(reconcile::run(app.clone(), presented));
    Ok(Server { app, stop, tasks, bound, dir, _lock: lock })
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
        "the data directory is accepted all the same; unused enrollment tokens are revoked, and what was revoked since the \
         copy must be revoked again"
    );
    let accept = AcceptRollback { directory_seq: app.view().audit.seq, anchor_seq: error.anchor_seq() };
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
        let host = match first {
            Some(address) if address.ip().is_unspecified() => "localhost".to_owned(),
            Some(address) if address.is_ipv6() => format!("[{}]", address.ip()),
            Some(address) => address.ip().to_string(),
            None => "localhost".to_owned(),
        };
        format!("https://{host}:{}", first.map_or(0, |address| address.port()))
    }

    /// The URLs that nodes are sent to.
    pub fn advertised(&self) -> Vec<String> {
        self.app.servers()
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

    /// Stops: no new connections, requests in progress end, what was counted is written, then the log closes.
    pub async fn stop(self) {
        let began = Instant::now();
        let _ = self.stop.send(true);
        self.tasks.close();
        if tokio::time::timeout(STOP_LIMIT, self.tasks.wait()).await.is_err() {
            tracing::warn!("some connections did not end in time");
        }
        self.app.edge.refusals.flush(&self.app, true).await;
        reconcile::denied::record_sightings(&self.app, true).await;
        self.app.edge.refused_renewals.flush(&self.app, true).await;
        reconcile::sign_if_behind(&self.app).await;
        reconcile::forward::flush(&self.app).await;
        // Reported by then; the stop goes on.
        let _ = anchor::keep(&self.app, &self.app.view()).await;
        let left = began.checked_add(SNAPSHOT_BY).map(|by| by.saturating_duration_since(Instant::now()));
        if let Err(error) = self.app.journal.shutdown_with_snapshot(left.unwrap_or_default()).await {
            tracing::error!(%error, "the log did not close cleanly");
        }
        let _ = std::fs::remove_file(self.dir.operator_socket());
    }
}
