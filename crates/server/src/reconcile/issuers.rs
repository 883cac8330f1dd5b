//! Alerts before an issuer ends: there must be time to fetch the root key from its safe.

use super::propose;
use crate::process::app::App;
use journal::Leadership;
use lifecycle::names::{Span, Timestamp};
use lifecycle::registry::{AlertKind, Command, RaiseAlert, State};

/// Days before the end, the latest warning first.
const WARNINGS: [u64; 3] = [7, 30, 60];

pub async fn tick(app: &App, leadership: &Leadership) {
    let (view, now) = (app.view(), app.now());
    let due = warning(&view.state, now);
    let open = view.state.open_alert(AlertKind::IssuerExpiring, None);
    match (due, open) {
        (Some(detail), _) => {
            let alert = RaiseAlert { kind: AlertKind::IssuerExpiring, node: None, detail };
            propose(app, leadership, Command::RaiseAlert(alert)).await;
        }
        (None, Some(alert)) => {
            propose(app, leadership, Command::ClearAlert { alert: alert.id }).await;
        }
        (None, None) => {}
    }
}

/// Says the same until the next warning is due, so that each is raised once.
fn warning(state: &State, now: Timestamp) -> Option<String> {
    // An ephemeral issuer is replaced by its replica itself.
    let active = state.active_issuer()?;
    let days = WARNINGS.into_iter().find(|days| now.plus(Span::from_days(*days)) >= active.not_after)?;
    Some(format!(
        "issuer {} ends at {}, in less than {days} days: begin `enlist ca roll prepare`",
        active.id, active.not_after
    ))
}
