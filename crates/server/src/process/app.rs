//! What every request can reach: the journal and the rooms.

use crate::ca::{CertificateAuthority, ephemeral};
use crate::cluster::{self, Replication};
use crate::edge::Edge;
use crate::fleet::Fleet;
use crate::http::failure::Failure;
use crate::issuance::IssuanceLimits;
use crate::operator::AuditReaders;
use crate::process::activity_log::Activity;
use crate::process::anchor::AnchorQueue;
use crate::process::chance;
use crate::process::clock::BelievedClock;
use crate::process::config::{ControlPlaneConfig, IssuerReadiness};
use crate::process::metrics::{MeasuredParts, Metrics};
use crate::reconcile::webhook::AlertQueue;
use api::code;
use journal::{Committed, Journal, View};
use lifecycle::names::{IssuerUse, Label, ReplicaId, RequestId, Source, Timestamp};
use lifecycle::registry::{Actor, Command, Envelope, Node, Outcome, State, Subject, would_apply};
use pki::overlay_proof::ClaimKey;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::watch;

/// Seconds after which a caller that needs the time may try again.
const CLOCK_RETRY: u32 = 10;

pub struct App {
    pub(crate) config: ControlPlaneConfig,
    pub(crate) journal: Arc<Journal>,
    pub(crate) cluster: Replication,
    pub(crate) clock: Arc<BelievedClock>,
    pub(crate) edge: Edge,
    pub(crate) fleet: Fleet,
    pub(crate) ca: CertificateAuthority,
    pub(crate) issuance: IssuanceLimits,
    pub(crate) audit_readers: AuditReaders,
    pub(crate) metrics: Metrics,
    pub(crate) alert_queue: AlertQueue,
    pub(crate) anchor_queue: AnchorQueue,
    /// The URLs nodes are sent to.
    advertised: Vec<String>,
    /// True once the process should end.
    stopping: watch::Receiver<bool>,
}

/// Where a request comes from and how it is to be recorded.
#[derive(Debug, Clone)]
pub struct Provenance {
    pub source: Source,
    pub request_id: Option<Label>,
    pub correlation_id: Option<Label>,
}

impl Provenance {
    pub fn internal() -> Self {
        Self { source: Source::Internal, request_id: None, correlation_id: None }
    }
}

/// The node that a command is about, if it is a peer of others.
fn peer_concerned(command: &Command, state: &State) -> Option<Arc<Node>> {
    let Subject::Node(id) = command.subject() else { return None };
    state.nodes.get(id).filter(|node| node.is_peer()).cloned()
}

impl App {
    pub fn new(
        config: ControlPlaneConfig,
        (journal, cluster): (Arc<Journal>, Replication),
        clock: Arc<BelievedClock>,
        (ca, claim_key): (CertificateAuthority, ClaimKey),
        edge: Edge,
        advertised: Vec<String>,
        stopping: watch::Receiver<bool>,
    ) -> Arc<Self> {
        let metrics = Metrics::new(MeasuredParts {
            loki: config.loki.is_some(),
            hsm: config.pkcs11.is_some(),
            step_ca: journal.view().state.has_step_ca(),
        });
        let listening_since = clock.now().max(journal.view().state.at);
        Arc::new(Self {
            config,
            journal,
            cluster,
            clock,
            edge,
            fleet: Fleet::new(listening_since, claim_key),
            ca,
            issuance: IssuanceLimits::default(),
            audit_readers: AuditReaders::default(),
            metrics,
            alert_queue: AlertQueue::default(),
            anchor_queue: AnchorQueue::default(),
            advertised,
            stopping,
        })
    }

    /// Ends when the process should.
    pub async fn stopped(&self) {
        // The sender is held by the server until everything has ended; without it there is nothing to serve.
        let _ = self.stopping.clone().wait_for(|stop| *stop).await;
    }

    /// The registry as this replica knows it now.
    pub fn view(&self) -> Arc<View> {
        self.journal.view()
    }

    /// Now, but never earlier than what has been applied: ids and certificates are dated by it.
    pub fn now(&self) -> Timestamp {
        self.clock.now().max(self.view().state.at)
    }

    /// Refuses what needs to know the time while the clock is not believed. Asked before a credential is looked at, so
    /// that none is judged or used up by a wrong time.
    pub fn knows_the_time(&self) -> Result<(), Failure> {
        if self.clock.is_believed() && !self.cluster.clock_is_off.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(Failure::new(code::CLOCK_SKEW, "the control plane does not know what time it is")
            .retry_after(CLOCK_RETRY))
    }

    fn allows(&self, command: &Command) -> Result<(), Failure> {
        if command.needs_time() { self.knows_the_time() } else { Ok(()) }
    }

    /// Answers other replicas from now on.
    pub fn serve_peers(&self) -> std::io::Result<()> {
        self.cluster.serve(&self.journal, self.config.peer_address(), self.stopping.clone())
    }

    /// The URLs of this replica.
    pub fn own_urls(&self) -> Vec<String> {
        self.advertised.clone()
    }

    /// The URLs nodes are sent to: those of this replica, then those of the others, the first of each before the second of any. One that
    /// holds a certificate and is not replicated to has not proven that it has the key of the log: a stolen token alone
    /// sends no host anywhere.
    pub fn servers(&self) -> Vec<String> {
        let (view, own) = (self.view(), self.journal.replica());
        let mut urls = self.advertised.clone();
        let is_proven = |id: ReplicaId| id != own && self.journal.is_replicated(id);
        let others: Vec<&[String]> = view
            .state
            .members()
            .filter(|member| is_proven(member.id))
            .map(|member| member.urls.as_slice())
            .collect();
        let most = others.iter().map(|urls| urls.len()).max().unwrap_or(0);
        for turn in 0..most {
            for url in others.iter().filter_map(|urls| urls.get(turn)) {
                if !urls.contains(url) {
                    urls.push(url.clone());
                }
            }
        }
        urls
    }

    /// Whether this replica serves, and what is wrong with it. A gap in the trail is reported but does not stop the service, nor does an
    /// issuer that does not sign where `[ready] issuer` is `warn`.
    pub fn readiness(&self) -> (bool, Vec<&'static str>) {
        let mut reasons = Vec::new();
        if *self.stopping.borrow() {
            reasons.push("stopping");
        }
        if self.journal.failure().is_some() {
            reasons.extend(["replication_stopped", "store_unusable"]);
        }
        reasons.extend(cluster::complaints(self));
        if !self.clock.is_believed() {
            reasons.push("clock_skew");
        }
        // What keeps this replica from issuing alone; all else works, so that an operator may have it told without taking load away.
        let mut issuer = Vec::new();
        if !ephemeral::is_published(self) {
            issuer.push("issuer_not_published");
        }
        let (is_hsm_away, now) = (!self.ca.hsm.is_available(), self.now());
        // Without an issuer for itself the control plane goes on with the certificate that it has.
        let is_step_ca_away = !self.ca.step_ca.is_available();
        if is_hsm_away
            || is_step_ca_away
            || self.view().state.uses_without_issuer(now).contains(&IssuerUse::Node)
        {
            issuer.push("issuer_unavailable");
        }
        let is_required = self.config.ready.issuer == IssuerReadiness::Required;
        if is_required {
            reasons.append(&mut issuer);
        }
        if !is_hsm_away && !self.ca.presented.is_valid(now) {
            reasons.push("server_certificate_missing");
        }
        let ready = reasons.is_empty();
        reasons.append(&mut issuer);
        if self.journal.audit_gap().is_some_and(|gap| !gap.refilled) || self.journal.lines_missing() {
            reasons.push("audit_gap");
        }
        (ready, reasons)
    }

    /// What a command is dated by. While the clock here is not believed, time may have stood still: by the leader's, as it was last heard,
    /// the command is not too old for it.
    fn dated(&self) -> Timestamp {
        let leader = self.journal.leader().filter(|_| !self.clock.is_believed());
        let heard = leader.and_then(|leader| self.journal.standing(leader).report);
        self.now().max(heard.map_or(Timestamp::from_millis(0), |report| report.now))
    }

    pub fn envelope(&self, actor: Actor, origin: &Provenance, command: Command) -> Result<Envelope, Failure> {
        Ok(Envelope {
            id: RequestId(chance::ulid(self.dated())?),
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
        origin: &Provenance,
        command: Command,
    ) -> Result<(Outcome, Arc<View>), Failure> {
        self.allows(&command)?;
        let envelope = self.envelope(actor, origin, command)?;
        let mut view = self.view();
        let (mut answer, mut changes) = would_apply(&view.state, &envelope, self.clock.now());
        if !changes && !self.journal.is_alone() && !self.journal.is_leader() {
            // What this replica has not heard of yet may be the reason: nothing is refused by what it does not know.
            if let Ok(fresh) = self.journal.barrier().await {
                view = fresh;
                (answer, changes) = would_apply(&view.state, &envelope, self.clock.now());
            }
        }
        if !changes {
            return Ok((answer?, view));
        }
        let peer = peer_concerned(&envelope.command, &view.state);
        let Committed { answer, view } = self.propose(envelope).await?;
        let outcome = answer?;
        let is_peer = |node: &Node| view.state.nodes.get(&node.id).is_some_and(|now| now.is_peer());
        if let Some(ended) = peer.filter(|node| !is_peer(node)) {
            // Its peers are told before the one who gave the command is answered: they know even if this process ends then.
            let revision = view.state.overlay_revision(&ended.tenant);
            self.fleet.overlays.feeds.spread(&ended.tenant, revision).await;
        }
        Ok((outcome, view))
    }

    /// Whom the others exclude does not wait for them.
    fn not_proposed(&self, error: journal::ProposeError) -> Failure {
        if let Some(cause) = self.journal.failure() {
            return not_stored(error, &cause);
        }
        let failure = Failure::from(error);
        match cluster::exclusions(self).next() {
            Some(why) if failure.code == code::NO_QUORUM => {
                let message = format!("the other replicas do not talk to this one ({})", why.word);
                Failure { message, ..failure }.remedy(why.hint)
            }
            Some(_) | None => failure,
        }
    }

    /// Commits without asking first; the answer may be a rejection.
    pub async fn propose(&self, envelope: Envelope) -> Result<Committed, Failure> {
        self.allows(&envelope.command)?;
        let activity = Activity::of(&envelope, &self.view().state);
        let timer = self.metrics.commit_timer();
        let committed = self.journal.propose(envelope).await.map_err(|error| self.not_proposed(error))?;
        timer.observe(&self.metrics);
        match (&committed.answer, activity) {
            // Granted by an earlier command, which has its line.
            (Ok(Outcome::Enrolled { replayed: true, .. } | Outcome::Recovered { replayed: true, .. }), _) => {
            }
            (Ok(_), Some(activity)) => activity.write(),
            (Ok(_), None) | (Err(_), _) => {}
        }
        Ok(committed)
    }
}

/// This replica can write nothing any more, and stops.
fn not_stored(error: journal::ProposeError, cause: &str) -> Failure {
    let (code, applied) = match error {
        journal::ProposeError::OutcomeUnknown => {
            (code::OUTCOME_UNKNOWN, "whether the request was carried out is not known")
        }
        journal::ProposeError::Unavailable | journal::ProposeError::ShuttingDown => {
            (code::UNAVAILABLE, "the request was not carried out")
        }
    };
    let message = format!("this replica cannot write its log any more ({cause}); {applied}");
    Failure::new(code, message).retry_after(1).remedy(
        "make room on the disk of its data directory (`df -h`), or replace the disk, and start that control plane again; then send the \
         request again",
    )
}
