//! Alerts before an issuer or the root ends: there must be time to fetch the root key from its safe; and when none is active.

use super::propose;
use crate::process::app::App;
use journal::Leadership;
use lifecycle::names::{IssuerUse, Span, Timestamp};
use lifecycle::registry::{AlertKind, Command, IssuerState, RaiseAlert, State};

/// Days before the end, the latest warning first.
const WARNINGS: [u64; 3] = [7, 30, 60];
/// The same of a root: every host has to store another one.
const ROOT_WARNINGS: [u64; 4] = [7, 30, 60, 365];

pub async fn tick(app: &App, leadership: &Leadership) {
    let (view, now) = (app.view(), app.now());
    follow(app, leadership, AlertKind::IssuerExpiring, warning(&view.state, now)).await;
}

/// Says at once that nothing signs, and that something does again.
pub async fn look_for_active(app: &App, leadership: &Leadership) {
    let (view, now) = (app.view(), app.now());
    follow(app, leadership, AlertKind::NoActiveIssuer, missing(&view.state, now)).await;
}

/// Raises the alert about the domain with what there is to say, or clears it where there is nothing.
async fn follow(app: &App, leadership: &Leadership, kind: AlertKind, due: Option<String>) {
    let view = app.view();
    match (due, view.state.open_alert(kind, None)) {
        (Some(detail), _) => {
            let alert = RaiseAlert { kind, node: None, detail };
            propose(app, leadership, Command::RaiseAlert(alert)).await;
        }
        (None, Some(alert)) => {
            propose(app, leadership, Command::ClearAlert { alert: alert.id }).await;
        }
        (None, None) => {}
    }
}

/// Which uses have no issuer that signs. Of ephemeral issuers each replica makes its own, and the one on record signs for operators.
fn missing(state: &State, now: Timestamp) -> Option<String> {
    let uses = state.uses_without_issuer(now);
    let all: Vec<String> = uses.iter().map(|usage| without(state, *usage, now)).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

fn without(state: &State, usage: IssuerUse, now: Timestamp) -> String {
    let step_ca_signs = state.step_ca_issuer().is_some_and(|(issuer, _)| now < issuer.not_after);
    if usage != IssuerUse::Server && state.has_step_ca() && !step_ca_signs {
        return "no step-ca is active for nodes: name another one with `enlist ca step-ca set`".to_owned();
    }
    let (what, remedy) = match usage {
        IssuerUse::Server => ("the control plane's own certificates", "--use server "),
        IssuerUse::Node | IssuerUse::Both if state.has_ephemeral_issuers() => ("operators", ""),
        IssuerUse::Node | IssuerUse::Both => ("nodes and operators", ""),
    };
    format!("no issuer is active for {what}: begin `enlist ca roll prepare {remedy}--csr-out FILE`")
}

/// Says the same until the next warning is due, so that each is raised once.
fn warning(state: &State, now: Timestamp) -> Option<String> {
    let within = |end: Timestamp, warnings: &[u64]| {
        warnings.iter().copied().find(|days| now.plus(Span::from_days(*days)) >= end)
    };
    // An ephemeral issuer is replaced by its replica itself.
    let issuers = state.domain_issuers_in(IssuerState::Active).filter_map(|issuer| {
        let days = within(issuer.not_after, &WARNINGS)?;
        let usage = match issuer.usage {
            IssuerUse::Server => "--use server ",
            IssuerUse::Node | IssuerUse::Both => "",
        };
        Some(format!(
            "{} issuer {} (use {}) ends at {}, in less than {days} days: begin `enlist ca roll prepare {usage}--csr-out FILE`",
            issuer.kind.as_str(),
            issuer.id,
            issuer.usage,
            issuer.not_after
        ))
    });
    let root = state.active_root().and_then(|root| {
        let days = within(root.not_after, &ROOT_WARNINGS)?;
        Some(format!(
            "the root ends at {}, in less than {days} days: begin `enlist ca roll prepare --new-root --csr-out FILE`",
            root.not_after
        ))
    });
    let all: Vec<String> = issuers.chain(root).collect();
    (!all.is_empty()).then(|| all.join("; "))
}
