//! Housekeeping: reads committed state and proposes. State is the queue, so nothing is lost at a restart.

pub mod claims;
mod clock_skew;
pub mod denied;
mod evidence;
mod expiry;
pub mod forward;
mod issuers;
mod liveness;
mod long_silence;
mod memory_issuer;
mod repair;
mod walk;
pub mod webhook;

use crate::ca::server_cert::{self, PresentedCertificate};
use crate::process::anchor;
use crate::process::app::{App, Provenance};
use journal::{Leadership, View, checkpoint_message};
use lifecycle::names::Span;
use lifecycle::registry::{Actor, Checkpoint, Command};
use std::sync::Arc;
use std::time::Duration;

const TICK: Duration = Duration::from_secs(1);
/// A checkpoint is signed after so many lines, or after so long if there are new ones.
const CHECKPOINT_LINES: u64 = 1000;
const CHECKPOINT_AGE: Span = Span::from_minutes(5);
const TICKS_PER_TIDY: u64 = 5;
const TICKS_PER_CERTIFICATE_CHECK: u64 = 3600;
const TICKS_PER_ISSUER_CHECK: u64 = 60;

/// Runs until the process stops.
pub async fn run(app: Arc<App>, presented: Arc<PresentedCertificate>) {
    // What an earlier run left unsigned is signed first.
    sign_if_behind(&app).await;
    let mut leader = Leader::new(&app);
    let mut signs = app.view().state.active_issuer().map(|issuer| issuer.id.clone());
    let mut memory_issuer = memory_issuer::IssuerReplacement::default();
    let mut tick: u64 = 0;
    loop {
        tokio::select! {
            () = tokio::time::sleep(TICK) => {}
            () = app.stopped() => return,
        }
        tick += 1;
        let now_signs = app.view().state.active_issuer().map(|issuer| issuer.id.clone());
        let rolled = signs != now_signs;
        signs = now_signs;
        // What this replica alone has seen, and its own certificate: every replica.
        app.edge.refusals.flush(&app, false).await;
        app.edge.refused_renewals.flush(&app, false).await;
        app.edge.repeated_failures.flush(&app).await;
        liveness::record_sightings(&app).await;
        denied::record_sightings(&app, false).await;
        // What goes by the time waits until the time is known.
        let due = tick.is_multiple_of(TICKS_PER_CERTIFICATE_CHECK) || rolled;
        if due
            && app.clock.is_believed()
            && let Err(error) = server_cert::ensure(&app, &presented).await
        {
            tracing::error!(%error, "the server certificate was not renewed");
        }
        memory_issuer.tick(&app).await;
        if let Some(leadership) = app.journal.leadership().await {
            leader.tick(&app, &leadership, tick, rolled).await;
        }
    }
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
            checkpoints: Checkpoints {
                seq: app.view().audit.seq,
                at: app.clock.now(),
                denials: app.view().state.denials,
            },
            clock_skew: clock_skew::ClockSkew::default(),
            expiry: expiry::Expiry::default(),
            long_silence: long_silence::LongSilence::default(),
            evidence: evidence::Evidence::new(),
        }
    }

    async fn tick(&mut self, app: &App, leadership: &Leadership, tick: u64, rolled: bool) {
        self.checkpoints.sign_if_due(app, leadership).await;
        self.clock_skew.tick(app, leadership).await;
        self.evidence.tick(app, leadership).await;
        forward::forget(app, leadership).await;
        claims::forget(app, leadership).await;
        // What goes by the time waits until the time is known: nothing expires by a clock that is not believed.
        if !app.clock.is_believed() {
            return;
        }
        liveness::tick(app, leadership).await;
        self.expiry.tick(app, leadership).await;
        self.long_silence.tick(app, leadership).await;
        repair::tick(app, leadership).await;
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

/// Records what this replica has seen itself, leader or not.
async fn record(app: &App, command: Command) -> Option<Arc<View>> {
    match app.commit(Actor::Reconciler, &Provenance::internal(), command).await {
        Ok((_, view)) => Some(view),
        Err(failure) => {
            tracing::warn!(code = failure.code.word, "housekeeping was refused: {}", failure.message);
            None
        }
    }
}

/// The last checkpoint that this process signed.
struct Checkpoints {
    seq: u64,
    at: lifecycle::names::Timestamp,
    /// A revocation is not left without one: a directory that was put back from before it is to be noticed.
    denials: u64,
}

impl Checkpoints {
    async fn sign_if_due(&mut self, app: &App, leadership: &Leadership) {
        let (now, view) = (app.clock.now(), app.view());
        let (seq, denials) = (view.audit.seq, view.state.denials);
        let lines = seq.saturating_sub(self.seq);
        if lines >= CHECKPOINT_LINES
            || denials != self.denials
            || (lines > 0 && now.since(self.at) >= CHECKPOINT_AGE)
        {
            // The checkpoint's own line needs none.
            let signed = sign_checkpoint(app, leadership).await;
            (self.seq, self.at) = (signed.map_or(seq, |view| view.audit.seq), now);
            self.denials = denials;
        }
    }
}

/// Signs the trail if there are lines after the last checkpoint. The checkpoint's own line is one more.
pub async fn sign_if_behind(app: &App) {
    let view = app.view();
    if view.audit.seq > view.state.checkpoint + 1
        && let Some(leadership) = app.journal.leadership().await
    {
        sign_checkpoint(app, &leadership).await;
    }
}

/// Signs the trail as it is now.
async fn sign_checkpoint(app: &App, leadership: &Leadership) -> Option<Arc<View>> {
    let view = app.view();
    let domain = view.state.domain.as_ref()?;
    let message = checkpoint_message(&domain.cluster, view.audit.seq, &view.audit.head);
    match app.ca.keys.audit.sign(&message) {
        Ok(signature) => {
            let checkpoint = Checkpoint { seq: view.audit.seq, head: view.audit.head, signature };
            let view = propose(app, leadership, Command::RecordCheckpoint(checkpoint)).await?;
            // Reported by then, and tried again with the next checkpoint.
            let _ = anchor::keep(app, &view).await;
            Some(view)
        }
        Err(error) => {
            tracing::error!(%error, "a checkpoint could not be signed");
            None
        }
    }
}
