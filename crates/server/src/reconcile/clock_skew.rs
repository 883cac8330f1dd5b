//! The alert about the clock of a control plane of one replica: raised when it is not believed any more, cleared when it is again.
//! Of several replicas: `replica_clocks.rs`.

use super::{propose, replica_clocks};
use crate::process::app::App;
use journal::Leadership;
use lifecycle::clock::{ClockReading, TOLERANCE};
use lifecycle::names::Span;
use lifecycle::registry::{AlertKind, Command, RaiseAlert};

/// What was said last of a clock that is not believed.
#[derive(Default)]
pub struct ClockSkew {
    /// How far it was ahead; none while it is believed.
    said: Option<i64>,
}

impl ClockSkew {
    pub async fn tick(&mut self, app: &App, leadership: &Leadership) {
        if !app.journal.is_alone() {
            return replica_clocks::tick(app, leadership).await;
        }
        let reading = app.clock.read();
        if !reading.is_believed() {
            return self.lost(app, leadership, &reading).await;
        }
        if self.said.take().is_some() {
            tracing::info!(wall = %reading.wall, "the clock is believed again");
        }
        // Also one that an earlier run left behind: a start takes the clock to be right.
        if let Some(alert) = app.view().state.open_alert(AlertKind::ClockSkew, None) {
            propose(app, leadership, Command::ClearAlert { alert: alert.id }).await;
        }
    }

    /// Says the same until the clock jumps again, so that each jump is raised once.
    async fn lost(&mut self, app: &App, leadership: &Leadership, reading: &ClockReading) {
        let same = |said: i64| said.abs_diff(reading.offset_ms) <= TOLERANCE.millis();
        if self.said.is_some_and(same) {
            return;
        }
        // To the minute: beyond the tolerance there is at least one.
        let far = Span::from_minutes(reading.offset_ms.unsigned_abs().saturating_add(30_000) / 60_000);
        let side = if reading.offset_ms < 0 { "behind" } else { "ahead of" };
        let detail = format!(
            "the control plane's clock says {} and is {far} {side} the time that has passed; nothing is issued until it \
             is right again or an operator accepts it (`enlist server clock accept`)",
            reading.wall
        );
        tracing::error!(wall = %reading.wall, time = %reading.time, offset_ms = reading.offset_ms, "the clock is not believed");
        let alert = RaiseAlert { kind: AlertKind::ClockSkew, node: None, detail };
        if propose(app, leadership, Command::RaiseAlert(alert)).await.is_some() {
            self.said = Some(reading.offset_ms);
        }
    }
}
