//! What every request can reach: the journal, the keys, the limits, the counters.

use crate::ca::crl::Lists;
use crate::ca::keys::Keys;
use crate::config::ControlPlaneConfig;
use crate::edge::connections::Connections;
use crate::edge::limits::FailureLimits;
use crate::edge::places::Places;
use crate::edge::refusals::Refusals;
use crate::fleet::overlays::Overlays;
use crate::fleet::presence::Presence;
use crate::http::failure::Failure;
use crate::issuance::probe;
use crate::process::activity_log::Told;
use crate::process::chance;
use crate::process::clock;
use crate::process::datadir::DataDir;
use crate::process::metrics::Metrics;
use api::code;
use journal::{Committed, Journal, View};
use lifecycle::names::{Label, RequestId, Source, Timestamp};
use lifecycle::registry::{Actor, Command, Envelope, Outcome, would_apply};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, Semaphore, SemaphorePermit, watch};

/// Work in progress at once; the rest queues.
const IN_PROGRESS: usize = 512;
/// Readers of the audit trail at once; each keeps a thread and a disk busy.
const TIMELINES: usize = 2;
/// How long a request may queue before it is told to come back.
const QUEUE_LIMIT: Duration = Duration::from_secs(10);

pub struct App {
    pub dir: DataDir,
    pub config: ControlPlaneConfig,
    pub journal: Journal,
    pub keys: Keys,
    pub failures: FailureLimits,
    pub places: Places,
    pub connections: Connections,
    pub presence: Presence,
    /// Hosts that wait for news of their overlay, and answers with peers on their way.
    pub overlays: Overlays,
    /// Places among the hosts that are looked for.
    pub probes: Semaphore,
    /// Lists of revocations as signed last.
    pub lists: Lists,
    /// One change of the key-encryption key at a time.
    pub rewrapping: Mutex<()>,
    /// One walk over the whole audit trail at a time.
    pub walks: Semaphore,
    /// Places among those who look through it for some lines.
    pub timelines: Arc<Semaphore>,
    pub refusals: Refusals,
    pub metrics: Metrics,
    /// Nobody could be heard before.
    pub listening_since: Timestamp,
    /// Set by the first listener that is bound.
    pub advertised: std::sync::OnceLock<Vec<String>>,
    /// True once the process should end.
    pub stopping: watch::Receiver<bool>,
    pub(crate) capacity: Semaphore,
}

/// Where a request comes from and how it is to be recorded.
#[derive(Debug, Clone)]
pub struct Origin {
    pub source: Source,
    pub request_id: Option<Label>,
    pub correlation_id: Option<Label>,
}

impl Origin {
    pub fn internal() -> Self {
        Self { source: Source::Internal, request_id: None, correlation_id: None }
    }
}

impl App {
    pub fn new(
        dir: DataDir,
        config: ControlPlaneConfig,
        journal: Journal,
        keys: Keys,
        stopping: watch::Receiver<bool>,
    ) -> Arc<Self> {
        let listening_since = clock::now().max(journal.view().state.at);
        Arc::new(Self {
            dir,
            config,
            journal,
            keys,
            failures: FailureLimits::default(),
            places: Places::default(),
            connections: Connections::default(),
            presence: Presence::default(),
            overlays: Overlays::default(),
            probes: Semaphore::new(probe::AT_ONCE),
            lists: Lists::default(),
            rewrapping: Mutex::new(()),
            walks: Semaphore::new(1),
            timelines: Arc::new(Semaphore::new(TIMELINES)),
            listening_since,
            refusals: Refusals::default(),
            metrics: Metrics::default(),
            advertised: std::sync::OnceLock::new(),
            stopping,
            capacity: Semaphore::new(IN_PROGRESS),
        })
    }

    /// The registry as this replica knows it now.
    pub fn view(&self) -> Arc<View> {
        self.journal.view()
    }

    /// Now, but never earlier than what has been applied: ids and certificates are dated by it.
    pub fn now(&self) -> Timestamp {
        clock::now().max(self.view().state.at)
    }

    /// The URLs nodes are sent to.
    pub fn servers(&self) -> Vec<String> {
        self.advertised.get().cloned().unwrap_or_default()
    }

    /// Whether this replica serves, and what is wrong with it. A gap in the trail is reported but does not stop the
    /// service.
    pub fn readiness(&self) -> (bool, Vec<&'static str>) {
        let mut reasons = Vec::new();
        if *self.stopping.borrow() {
            reasons.push("stopping");
        }
        if self.journal.failure().is_some() {
            reasons.push("replication_stopped");
        }
        let ready = reasons.is_empty();
        if self.journal.audit_gap().is_some_and(|gap| !gap.refilled) {
            reasons.push("audit_gap");
        }
        (ready, reasons)
    }

    /// A place among the requests in progress.
    pub async fn place(&self) -> Result<SemaphorePermit<'_>, Failure> {
        match tokio::time::timeout(QUEUE_LIMIT, self.capacity.acquire()).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(Failure::new(code::OVERLOADED, "more requests than can be served now").retry_after(2)),
        }
    }

    pub fn envelope(&self, actor: Actor, origin: &Origin, command: Command) -> Result<Envelope, Failure> {
        Ok(Envelope {
            id: RequestId(chance::ulid(self.now())?),
            actor,
            source: origin.source,
            request_id: origin.request_id.clone(),
            correlation_id: origin.correlation_id.clone(),
            command,
        })
    }

    /// Commits a command; answers with its outcome and the view in which it is applied. One that would be refused or
    /// would change nothing is no entry: it is answered from the local view, which then comes back.
    pub async fn commit(
        &self,
        actor: Actor,
        origin: &Origin,
        command: Command,
    ) -> Result<(Outcome, Arc<View>), Failure> {
        let envelope = self.envelope(actor, origin, command)?;
        let view = self.view();
        let (answer, changes) = would_apply(&view.state, &envelope, clock::now());
        if !changes {
            return Ok((answer?, view));
        }
        let Committed { answer, view } = self.propose(envelope).await?;
        Ok((answer?, view))
    }

    /// Commits without asking first; the answer may be a rejection.
    pub async fn propose(&self, envelope: Envelope) -> Result<Committed, Failure> {
        let told = Told::of(&envelope);
        let timer = self.metrics.commit_timer();
        let committed = self.journal.propose(envelope).await?;
        timer.observe(&self.metrics);
        if let (Ok(_), Some(told)) = (&committed.answer, told) {
            told.write();
        }
        Ok(committed)
    }
}
