//! The one way to change the registry: authorize, decide, fold.

use super::command::Answer;
use super::{Command, Envelope, Event, Recorded, Rejection, State, acts, authorize, fold::fold};
use crate::names::{RequestId, Span, Timestamp, Ulid};
use std::sync::Arc;

/// For how long answers are remembered. Ids carry their time: an older one is refused, so that nothing
/// whose first answer may have been forgotten can be applied again.
const REMEMBERED: Span = Span::from_minutes(2);

/// What applying a command came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    pub answer: Answer,
    /// In order; each is one line of the audit trail.
    pub events: Vec<Event>,
}

/// What a decision comes to: events, which may follow even a refusal (a burned token), and the answer.
#[derive(Debug)]
pub(super) struct Decision {
    pub events: Vec<Event>,
    pub answer: Answer,
}

impl Decision {
    pub fn granted(events: Vec<Event>) -> Self {
        Self { events, answer: Ok(super::Outcome::Done) }
    }
}

impl From<Rejection> for Decision {
    fn from(rejection: Rejection) -> Self {
        Self { events: Vec::new(), answer: Err(rejection) }
    }
}

/// Applies a command at a moment. Time never runs backwards: the later of `at` and the last one counts.
pub fn apply(state: &mut State, envelope: &Envelope, at: Timestamp) -> Applied {
    state.at = state.at.max(at);
    if let Some(answer) = answered(state, envelope.id) {
        return Applied { answer, events: Vec::new() };
    }
    let Decision { events, answer } = decide(state, envelope);
    for event in &events {
        fold(state, event, envelope);
    }
    if events.iter().any(Event::is_audited) {
        state.revision += 1;
    }
    remember(state, envelope.id, answer.clone());
    Applied { answer, events }
}

/// What applying would answer now, and whether it would change anything. Changes nothing.
pub fn would_apply(state: &State, envelope: &Envelope, at: Timestamp) -> (Answer, bool) {
    let mut now = state.clone();
    now.at = now.at.max(at);
    if let Some(answer) = answered(&now, envelope.id) {
        return (answer, false);
    }
    let decision = decide(&now, envelope);
    (decision.answer, !decision.events.is_empty())
}

/// The answer to an id that needs no decision: it was applied before, or may have been.
fn answered(state: &State, id: RequestId) -> Option<Answer> {
    match state.recent.get(&id) {
        Some(recorded) => Some(recorded.answer.clone()),
        None if id.0.at() < state.at.minus(REMEMBERED) => Some(Err(Rejection::RequestTooOld)),
        None => None,
    }
}

fn decide(state: &State, envelope: &Envelope) -> Decision {
    if state.domain.is_none() && !matches!(envelope.command, Command::Found(_)) {
        return Rejection::NotFounded.into();
    }
    if let Err(rejection) = authorize(state, &envelope.actor, &envelope.command) {
        return rejection.into();
    }
    match &envelope.command {
        Command::Found(found) => acts::found::decide(state, found),
        Command::CreateToken(create) => acts::token::create(state, &envelope.actor, create),
        Command::RevokeToken { token } => acts::token::revoke(state, *token),
        Command::Enroll(enroll) => acts::enroll::decide(state, enroll),
        Command::Confirm(confirm) => acts::confirm::decide(state, envelope, confirm),
        Command::CreateTenant(create) => acts::tenant::create(state, &envelope.actor, create),
        Command::AddOperator(add) => acts::operator::add(state, &envelope.actor, add),
        Command::RenewOperator(renew) => acts::renew_operator::decide(state, envelope, renew),
        Command::UseRenewedCertificate { name } => acts::renew_operator::first_use(state, envelope, name),
        Command::RemoveOperator { name } => acts::operator::remove(state, name),
        Command::CreateOperatorKey(create) => acts::operator::create_key(state, &envelope.actor, create),
        Command::RevokeOperatorKey { key } => acts::operator::revoke_key(state, *key),
        Command::SetPolicy(set) => acts::policy::set(state, set),
        Command::RecordServerCertificate(certificate) => acts::server_certificate::decide(state, certificate),
        Command::RecordRefusals(refusals) => acts::audit::refusals(refusals),
        Command::RecordCheckpoint(checkpoint) => acts::audit::checkpoint(checkpoint),
        Command::RecordAuditGap(gap) => acts::audit::gap(gap),
        Command::Tidy => acts::tidy::decide(state),
        Command::Renew(renew) => acts::renew::decide(state, envelope, renew),
        Command::Contact { node } => acts::contact::decide(state, envelope, node),
        Command::Observe(sightings) => acts::liveness::observe(state, sightings),
        Command::MarkInactive(silence) => acts::liveness::mark_inactive(state, silence),
        Command::Drain { node, within } => acts::drain::drain(state, node, *within),
        Command::Undrain { node } => acts::drain::undrain(state, node),
        Command::Quarantine { node, reason } => acts::quarantine::quarantine(state, node, reason),
        Command::Release { node } => acts::quarantine::release(state, node),
        Command::Decommission { node } => acts::revoke::decommission(state, node),
        Command::Revoke { node, reason } => acts::revoke::revoke(state, &envelope.actor, node, reason),
        Command::Reinstate { node } => acts::revoke::reinstate(state, node),
        Command::Rotate { node } => acts::rotate::decide(state, envelope, node),
        Command::RaiseAlert(raise) => acts::alert::raise(state, envelope, raise),
        Command::ClearAlert { alert } => acts::alert::clear(state, *alert),
        Command::AcknowledgeAlert { alert } => acts::alert::acknowledge(state, *alert),
        Command::PrepareRoll(prepare) => acts::issuer::prepare(state, prepare),
        Command::CertifyRoll(issuer) => acts::issuer::certify(state, issuer),
        Command::ActivateIssuer(activate) => acts::issuer::activate(state, activate),
        Command::RetireIssuer { issuer } => acts::issuer::retire(state, issuer),
        Command::RevokeIssuer { issuer, reason } => acts::issuer::revoke(state, issuer, reason),
        Command::Rewrap(rewrap) => acts::issuer::rewrap(state, rewrap),
        Command::Register(register) => acts::register::decide(state, &envelope.actor, register),
        Command::Describe(describe) => acts::describe::decide(state, describe),
        Command::Import(import) => acts::import::decide(state, import),
        Command::MintRecovery { node, keeping } => {
            acts::recovery_token::decide(state, envelope, node, keeping)
        }
        Command::Recover(recover) => acts::recover::decide(state, envelope, recover),
        Command::IssueRepairBundle(issue) => acts::repair::issue(state, issue),
        Command::EndRepair { node } => acts::repair::end(state, node),
    }
}

fn remember(state: &mut State, id: RequestId, answer: Answer) {
    state.recent.insert(id, Arc::new(Recorded { answer }));
    let horizon = RequestId(Ulid::new(state.at.minus(REMEMBERED), [0; 10]));
    while let Some(oldest) = state.recent.get_min().map(|(id, _)| *id).filter(|id| *id < horizon) {
        state.recent.remove(&oldest);
    }
}
