//! Housekeeping: reads committed state and proposes. State is the queue, so nothing is lost at a restart.

pub mod anchor;
pub mod claims;
mod clock_skew;
mod copies;
pub mod denied;
mod evidence;
mod expiry;
pub mod forward;
mod issuers;
mod liveness;
mod long_silence;
pub mod memory_issuer;
mod repair;
mod replica_clocks;
pub mod revocations;
mod walk;
pub mod webhook;

use crate::ca::bundle_file;
use crate::ca::server_cert::{self, PresentedCertificate};
use crate::cluster::corroboration::Corroboration;
use crate::cluster::{self, QUORUM_LOST, announce, clock as cluster_clock, membership};
use crate::process::anchor as trail_anchor;
use crate::process::app::{App, Provenance};
use api::code::Code;
use journal::{Leadership, View, checkpoint_message};
use lifecycle::names::{IssuerId, ReplicaId, Span, Timestamp};
use lifecycle::registry::{Actor, Checkpoint, Command, IssuerState};
use std::sync::Arc;
use std::time::Duration;

const TICK: Duration = Duration::from_secs(1);
/// A checkpoint is signed after so many lines, or after so long if there are new ones.
const CHECKPOINT_LINES: u64 = 1000;
const CHECKPOINT_AGE: Span = Span::from_minutes(5);
const TICKS_PER_TIDY: u64 = 5;
const TICKS_PER_CERTIFICATE_CHECK: u64 = 3600;
const TICKS_PER_ISSUER_CHECK: u64 = 60;
const TICKS_PER_ANNOUNCEMENT: u64 = 60;

/// Runs until the process stops.
pub async fn run(app: Arc<App>, presented: Arc<PresentedCertificate>) {
    // In which term this replica led when it last looked, and under whom it was.
    let mut led: Option<u64> = app.journal.leadership().await.map(|leadership| leadership.term());
    // What an earlier run left unsigned is signed first.
    sign_if_behind(&app).await;
    let mut leader = Leader::new(&app);
    let mut signs = authorities(&app);
    let mut tick: u64 = 0;
    let mut announced = false;
    let mut announcement_refused: Option<&str> = None;
    let mut leader_heard = LeaderHeard::default();
    let mut copies = copies::CopySearch::default();
    let mut corroboration = Corroboration::default();
    let mut certificate_missing = presented.pin().is_none();
    let mut certificate_failed = false;
    loop {
        tokio::select! {
            () = tokio::time::sleep(TICK) => {}
            () = app.stopped() => return,
        }
        tick += 1;
        let now_signs = authorities(&app);
        let rolled = signs != now_signs;
        signs = now_signs;
        // What this replica alone has seen, and its own certificate: every replica.
        app.edge.refusals.flush(&app, false).await;
        app.edge.refused_renewals.flush(&app, false).await;
        app.edge.repeated_failures.flush(&app).await;
        app.edge.hardware_guesses.flush(&app).await;
        leader_heard.tick(&app, tick == 1);
        copies.tick(&app).await;
        liveness::record_sightings(&app).await;
        denied::record_sightings(&app, false).await;
        evidence::Evidence::hear(&app).await;
        if app.clock.is_believed() {
            repair::tick(&app).await;
        }
        // What goes by the time waits until the time is known.
        let is_recordable = app.journal.quorum_age() <= QUORUM_LOST;
        let missing = certificate_missing && app.ca.hsm.is_available() && is_recordable;
        let again = certificate_failed && tick.is_multiple_of(TICKS_PER_ANNOUNCEMENT);
        let due = tick.is_multiple_of(TICKS_PER_CERTIFICATE_CHECK) || rolled || missing || again;
        if due && app.clock.is_believed() {
            let ensured = server_cert::ensure(&app, &presented).await;
            if let Err(error) = ensured.as_ref()
                && (!certificate_failed || !missing)
            {
                tracing::error!(%error, "the server certificate was not renewed");
            }
            // Tried again once the HSM signs; and, where there is none to present, once a majority answers.
            let waits = app.ca.keys.hsm().is_some() || presented.pin().is_none();
            certificate_missing = ensured.is_err() && waits;
            certificate_failed = ensured.is_err();
        }
        if rolled {
            bundle_file::follow(&app);
            announce::follow_trust(&app);
        }
        if tick.is_multiple_of(TICKS_PER_ANNOUNCEMENT) || rolled || !announced {
            announced = announce(&app, &mut announcement_refused).await;
        }
        corroboration.tick(&app).await;
        cluster_clock::tick(&app).await;
        match app.journal.leadership().await {
            Some(leadership) => {
                if led != Some(leadership.term()) {
                    leader.begin(&app);
                }
                led = Some(leadership.term());
                leader.tick(&app, &leadership, tick, rolled).await;
            }
            None => led = None,
        }
    }
}

/// Under which leader, with a majority behind it, what this replica hears can be written down.
#[derive(Default)]
struct LeaderHeard {
    leader: Option<(ReplicaId, u64)>,
    has_no_majority: bool,
    /// Why the others do not talk to this replica.
    excluded: Option<&'static Code>,
}

impl LeaderHeard {
    /// An outage of the control plane makes nobody silent, on followers either.
    fn tick(&mut self, app: &App, is_start: bool) {
        let lost = app.journal.quorum_age() > QUORUM_LOST;
        let leader = app.journal.leader().filter(|_| !lost);
        let now = leader.map(|leader| (leader, app.journal.replication().term));
        let excluded = cluster::exclusions(app).next();
        if now.is_some() && now != self.leader && !is_start {
            app.fleet.listen_from(app.now());
        }
        self.leader = now;
        if let Some(why) = excluded.filter(|_| excluded != self.excluded) {
            let remedy = why.hint;
            tracing::error!(code = why.word, remedy, "the other replicas do not talk to this one");
        }
        self.excluded = excluded;
        match (self.has_no_majority, lost && excluded.is_none()) {
            (false, true) => tracing::warn!(
                "no majority of the cluster answers: changes are refused until it does; start the missing replicas"
            ),
            (true, false) if !lost => tracing::info!("a majority of the cluster answers again"),
            (false, false) | (true, true | false) => {}
        }
        self.has_no_majority = lost && excluded.is_none();
    }
}

/// A replica of a cluster keeps its address and its certificate on record. Tells whether nothing is left to do.
async fn announce(app: &App, refused: &mut Option<&'static str>) -> bool {
    let is_member = app.view().state.member(app.journal.replica()).is_ok();
    let is_excluded = cluster::exclusions(app).next().is_some();
    if !is_member || is_excluded || !app.clock.is_believed() {
        return !is_member;
    }
    match announce::ensure(app).await {
        // The renewal that ends the certificate of an issuer that was rolled follows at once: the issuer waits for it to retire.
        Ok(()) => {
            *refused = None;
            announce::is_settled(&app.view().state, app.journal.replica())
        }
        Err(failure) => {
            // Tried every second, and logged when the reason is another.
            if refused.replace(failure.code.word) != Some(failure.code.word) {
                tracing::warn!(
                    code = failure.code.word,
                    "the replica was not announced: {}",
                    failure.message
                );
            }
            false
        }
    }
}

/// What signs now, and what hosts trust: when it changes, this replica presents another chain.
fn authorities(app: &App) -> (Vec<IssuerId>, u64) {
    let view = app.view();
    let signing = view.state.domain_issuers_in(IssuerState::Active).map(|issuer| issuer.id.clone());
    (signing.collect(), view.state.bundle_version)
}

/// What is done by the replica that leads, and by no other.
struct Leader {
    checkpoints: Checkpoints,
    clock_skew: clock_skew::ClockSkew,
    expiry: expiry::Expiry,
    long_silence: long_silence::LongSilence,
    evidence: evidence::Evidence,
}

impl Leader {
    fn new(app: &App) -> Self {
        Self {
            checkpoints: Checkpoints::at_start(app),
            clock_skew: clock_skew::ClockSkew::default(),
            expiry: expiry::Expiry::default(),
            long_silence: long_silence::LongSilence::default(),
            evidence: evidence::Evidence::new(),
        }
    }

    /// This replica leads from now on, and did not when it started. Whoever was heard by another leader has its grace again; what was
    /// seen by it is not known.
    fn begin(&mut self, app: &App) {
        *self = Self { checkpoints: Checkpoints::on_record(app), ..Self::new(app) };
        app.fleet.listen_from(app.now());
    }

    async fn tick(&mut self, app: &App, leadership: &Leadership, tick: u64, rolled: bool) {
        membership::tick(app, leadership).await;
        self.checkpoints.sign_if_due(app, leadership).await;
        self.clock_skew.tick(app, leadership).await;
        self.evidence.tick(app, leadership).await;
        forward::forget(app, leadership).await;
        anchor::forget(app, leadership).await;
        claims::forget(app, leadership).await;
        // What goes by the time waits until the time is known: nothing expires by a clock that is not believed.
        if !app.clock.is_believed() {
            return;
        }
        liveness::tick(app, leadership).await;
        self.expiry.tick(app, leadership).await;
        self.long_silence.tick(app, leadership).await;
        issuers::look_for_active(app, leadership).await;
        if tick.is_multiple_of(TICKS_PER_ISSUER_CHECK) || rolled {
            issuers::tick(app, leadership).await;
        }
        if tick.is_multiple_of(TICKS_PER_TIDY) {
            let tidying = if app.clock.lets_forget() { Command::Tidy } else { Command::Expire };
            propose(app, leadership, tidying).await;
        }
    }
}

/// Proposes what would change something; the rest is no entry. Nothing once leadership is lost: what was decided
/// before may be another replica's to decide now.
async fn propose(app: &App, leadership: &Leadership, command: Command) -> Option<Arc<View>> {
    if !app.journal.still_leads(leadership) {
        return None;
    }
    record(app, command).await
}

/// Records what this replica has seen itself, leader or not. While no majority answers, which is logged once, nothing is tried.
async fn record(app: &App, command: Command) -> Option<Arc<View>> {
    if app.journal.quorum_age() > QUORUM_LOST {
        return None;
    }
    match app.commit(Actor::Reconciler, &Provenance::internal(), command).await {
        Ok((_, view)) => Some(view),
        Err(failure) => {
            tracing::warn!(code = failure.code.word, "housekeeping was refused: {}", failure.message);
            None
        }
    }
}

/// The last checkpoint, whoever signed it.
struct Checkpoints {
    at: Timestamp,
    /// A revocation is not left without one: a directory that was put back from before it is to be noticed.
    denials: u64,
}

impl Checkpoints {
    /// What an earlier run left unsigned was signed just before.
    fn at_start(app: &App) -> Self {
        Self { at: app.clock.now(), denials: app.view().state.denials }
    }

    /// When another leader signed the last one is not known: what it left unsigned, a revocation perhaps, is signed at once. Some of it may
    /// not be applied here yet, so that it is no question of how many lines there are now.
    fn on_record(app: &App) -> Self {
        Self { at: Timestamp::from_millis(0), denials: app.view().state.denials }
    }

    async fn sign_if_due(&mut self, app: &App, leadership: &Leadership) {
        let (now, view) = (app.clock.now(), app.view());
        let (lines, denials) = (unsigned_lines(&view), view.state.denials);
        let is_due = lines >= CHECKPOINT_LINES
            || denials != self.denials
            || (lines > 0 && now.since(self.at) >= CHECKPOINT_AGE);
        // One that was not recorded is due again at the next tick.
        if is_due && sign_checkpoint(app, leadership).await {
            *self = Self { at: now, denials };
        }
    }
}

/// How many lines came after the last checkpoint. Its own line needs none.
fn unsigned_lines(view: &View) -> u64 {
    view.audit.seq.saturating_sub(view.state.checkpoint + 1)
}

/// Signs the trail if there are lines after the last checkpoint. The checkpoint's own line is one more.
pub async fn sign_if_behind(app: &App) {
    if unsigned_lines(&app.view()) > 0
        && let Some(leadership) = app.journal.leadership().await
    {
        sign_checkpoint(app, &leadership).await;
    }
}

/// Signs the trail as it is now. Whether that is on record.
async fn sign_checkpoint(app: &App, leadership: &Leadership) -> bool {
    let view = app.view();
    let Some(domain) = &view.state.domain else { return false };
    let message = checkpoint_message(&domain.cluster, view.audit.seq, &view.audit.head);
    match app.ca.keys.audit.sign(&message) {
        Ok(signature) => {
            let checkpoint = Checkpoint { seq: view.audit.seq, head: view.audit.head, signature };
            let recorded = propose(app, leadership, Command::RecordCheckpoint(checkpoint)).await;
            let Some(view) = recorded else { return false };
            trail_anchor::write_soon(app, &view).await;
            true
        }
        Err(error) => {
            tracing::error!(%error, "a checkpoint could not be signed");
            false
        }
    }
}
