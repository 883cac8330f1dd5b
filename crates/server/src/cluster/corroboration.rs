//! A machine that was suspended has a right clock and has lost time: the other replicas know. With enough of them behind its clock this
//! replica goes on without asking anybody; alone it waits for an operator (`enlist server clock accept`).

use super::ANSWER;
use crate::process::app::{App, Provenance};
use journal::RoundTrip;
use lifecycle::clock::{self, ClockReading, ClockWitness};
use lifecycle::names::{ReplicaId, Span};
use lifecycle::registry::{Actor, Command, CorroborateClock};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// How long after one try the next one is made.
const AGAIN: Duration = Duration::from_secs(5);
/// By how many milliseconds the wall clock may move beside the time that passes while the others are asked. One that was set meanwhile
/// was compared with nothing.
const STEADY_MS: u64 = 1000;

#[derive(Default)]
pub struct Corroboration {
    tried: Option<Instant>,
}

impl Corroboration {
    pub async fn tick(&mut self, app: &App) {
        let before = app.clock.read();
        if before.is_believed() || app.journal.is_alone() {
            self.tried = None;
            return;
        }
        if before.offset_ms < 0 || self.tried.is_some_and(|tried| tried.elapsed() < AGAIN) {
            return;
        }
        self.tried = Some(Instant::now());
        let own = app.journal.replica();
        let voters: BTreeSet<ReplicaId> = app.journal.membership().0.into_iter().map(ReplicaId).collect();
        let view = app.view();
        let asked = voters.iter().copied().filter(|id| *id != own && view.state.member(*id).is_ok());
        let answered = app.journal.ask_now(asked, ANSWER).await;
        let witnesses: Vec<ClockWitness> =
            answered.iter().filter_map(|(id, trip)| witness(*id, trip)).collect();
        let reading = app.clock.read();
        if reading.offset_ms.abs_diff(before.offset_ms) > STEADY_MS {
            return;
        }
        if let Some(agreeing) = clock::borne_out(&reading, own, &voters, &witnesses) {
            accept(app, &reading, agreeing).await;
        }
    }
}

/// None of a version that does not tell its time by CLOCK_BOOTTIME.
fn witness(replica: ReplicaId, trip: &RoundTrip) -> Option<ClockWitness> {
    Some(ClockWitness {
        replica,
        is_believed: trip.report.clock_believed,
        offset_ms: trip.report.steady?.ahead_of(trip.halfway),
        took: Span::from_millis(u64::try_from(trip.took.as_millis()).unwrap_or(u64::MAX)),
    })
}

/// On record before it counts, as an operator's word is. Nothing is asked of the registry here first: by the time that stood still on this
/// machine it would be refused.
async fn accept(app: &App, reading: &ClockReading, agreeing: Vec<ReplicaId>) {
    let (replica, from, to) = (app.journal.replica(), app.now().min(reading.by_steady()), reading.wall);
    let found = CorroborateClock { replica, from, to, agreeing };
    let names: Vec<String> = found.agreeing.iter().map(ToString::to_string).collect();
    let command = Command::CorroborateClock(found);
    let proposed = async {
        let envelope = app.envelope(Actor::Reconciler, &Provenance::internal(), command)?;
        let committed = app.propose(envelope).await?;
        committed.answer?;
        Ok::<_, crate::http::failure::Failure>(committed.view)
    };
    match proposed.await {
        Ok(view) => {
            app.clock.accept(reading, view.state.at);
            let (offset_ms, agreeing) = (reading.offset_ms, names.join(" "));
            tracing::warn!(offset_ms, agreeing, wall = %reading.wall, "the clock is believed again: the other replicas, whose clocks did not jump, show the same time");
        }
        Err(failure) => {
            let code = failure.code.word;
            tracing::warn!(code, "the clock could not be accepted: {}", failure.message);
        }
    }
}
