//! The one way to change the registry: authorize, decide, fold.

use super::command::Answer;
use super::{
    Command, Envelope, Event, Recorded, Rejection, State, alert, audit, authorize, bootstrap, certificate,
    domain, hardware, issuance, issuer, node, operator, overlay, policy, recovery, replica, roll, root,
    session, tenant, tidy, token, vcluster,
};
use crate::names::{RequestId, Span, Timestamp, Ulid};
use std::sync::Arc;

/// For how long answers are remembered. Ids carry their time: an older one is refused, so that nothing
/// whose first answer may have been forgotten can be applied again.
const REMEMBERED: Span = Span::from_minutes(2);

/// What applying a command came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    pub answer: Answer,
    /// In order; each that is audited is one line of the trail.
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
        event.fold(state, envelope);
        if let Some(node) = event.peer() {
            overlay::settle(state, node);
        }
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
    if state.domain.is_none() && !matches!(envelope.command, Command::InitializeDomain(_)) {
        return Rejection::NotInitialized.into();
    }
    if let Err(rejection) = authorize(state, &envelope.actor, &envelope.command) {
        return rejection.into();
    }
    match &envelope.command {
        Command::InitializeDomain(found) => domain::initialize::decide(state, found),
        Command::CreateToken(create) => token::create::create(state, &envelope.actor, create),
        Command::RevokeToken { token } => token::revoke::revoke(state, *token),
        Command::Enroll(enroll) => node::enroll::decide(state, envelope, enroll),
        Command::Confirm(confirm) => node::confirm::decide(state, envelope, confirm),
        Command::CreateTenant(create) => tenant::create::create(state, &envelope.actor, create),
        Command::AddOperator(add) => operator::add::add(state, &envelope.actor, add),
        Command::RenewOperator(renew) => operator::renew::decide(state, envelope, renew),
        Command::UseRenewedCertificate { name } => operator::renew::first_use(state, envelope, name),
        Command::RemoveOperator { name, keys_made } => operator::remove::remove(state, name, *keys_made),
        Command::CreateOperatorKey(create) => operator::key::create_key(state, &envelope.actor, create),
        Command::RevokeOperatorKey { key } => operator::key::revoke_key(state, *key),
        Command::SetPolicy(set) => policy::set::set(state, set),
        Command::RecordServerCertificate(certificate) => certificate::server::decide(state, certificate),
        Command::RecordRefusals(refusals) => audit::refusals::record(state, envelope, refusals),
        Command::RecordCheckpoint(checkpoint) => audit::checkpoint::record(checkpoint),
        Command::RecordAuditGap(gap) => audit::gap::record(gap),
        Command::RecordForwarded(forwarded) => audit::forwarded::record(state, forwarded),
        Command::SkipForwarding(skip) => audit::forwarding_gap::skip(state, skip),
        Command::AcceptRollback(accept) => audit::rollback::accept(state, accept),
        Command::Tidy => tidy::decide(state),
        Command::Expire => tidy::expire(state),
        Command::Renew(renew) => certificate::renew::decide(state, envelope, renew),
        Command::Contact { node } => node::contact::decide(state, envelope, node),
        Command::Observe(sightings) => node::observe::observe(state, sightings),
        Command::MarkInactive(silence) => node::mark_inactive::mark_inactive(state, silence),
        Command::Drain { node, within } => node::drain::drain(state, node, *within),
        Command::Undrain { node } => node::drain::undrain(state, node),
        Command::Quarantine { node, reason } => node::quarantine::quarantine(state, node, reason),
        Command::Release { node } => node::quarantine::release(state, node),
        Command::Decommission { node, force } => node::decommission::decommission(state, node, *force),
        Command::Revoke { node, reason } => node::revoke::revoke(state, &envelope.actor, node, reason),
        Command::Reinstate { node, as_registered } => {
            node::reinstate::reinstate(state, envelope, node, *as_registered)
        }
        Command::Rotate { node } => node::rotate::decide(state, envelope, node),
        Command::ClaimOverlay(claim) => overlay::claim::decide(state, envelope, claim),
        Command::OrderRekey { node, replace } => overlay::rekey::order(state, envelope, node, *replace),
        Command::RaiseAlert(raise) => alert::raise::raise(state, envelope, raise),
        Command::ClearAlert { alert } => alert::clear::clear(state, *alert),
        Command::AcknowledgeAlert { alert, dated } => alert::acknowledge::acknowledge(state, *alert, *dated),
        Command::PrepareRoll(prepare) => issuer::prepare::prepare(state, prepare),
        Command::CertifyRoll(issuer) => issuer::certify::certify(state, issuer),
        Command::ActivateIssuer(activate) => issuer::activate::activate(state, activate),
        Command::RetireIssuer { issuer, also } => issuer::retire::retire(state, issuer, also),
        Command::RevokeIssuer { issuer, reason, confirm, asks_for_holders } => {
            issuer::revoke::revoke(state, &envelope.actor, issuer, reason, confirm, *asks_for_holders)
        }
        Command::ChangeStepCa(new) => issuer::change_step_ca::change(state, new),
        Command::Rewrap(rewrap) => issuer::rewrap::rewrap(state, rewrap),
        Command::BeginRoll(begin) => roll::begin::begin(state, begin),
        Command::AnswerRoll(answer) => roll::answer::answer(state, answer),
        Command::AbandonRoll => roll::abandon::abandon(state),
        Command::RetireRoot { root, force, confirm, counts_operators } => {
            root::retire::retire(state, &envelope.actor, root, *force, confirm, *counts_operators)
        }
        Command::ImportRootList(import) => root::import_list::import(state, import),
        Command::PublishIssuer(publish) => issuer::publish::publish(state, publish),
        Command::CreateReplicaToken { token, hash, ttl } => {
            replica::create_token::create(state, &envelope.actor, *token, hash, *ttl)
        }
        Command::JoinReplica(join) => replica::join::decide(state, join),
        Command::AnnounceReplica(announce) => replica::announce::decide(state, announce),
        Command::RemoveReplica { replica, confirm, forced } => {
            replica::remove::remove(state, *replica, confirm, *forced)
        }
        Command::Register(register) => node::register::decide(state, &envelope.actor, register),
        Command::Describe(describe) => node::describe::decide(state, describe),
        Command::Import(import) => node::import::decide(state, import),
        Command::MintRecovery { node, keeping } => recovery::mint::decide(state, envelope, node, keeping),
        Command::Recover(recover) => recovery::recover::decide(state, envelope, recover),
        Command::IssueRepairBundle(issue) => recovery::repair::issue(state, issue),
        Command::EndRepair { node } => recovery::repair::end(state, node),
        Command::RecordDeniedCertificate(seen) => certificate::denied::decide(state, envelope, seen),
        Command::RevokeRecoveryTokens { node } => recovery::revoke::decide(state, node),
        Command::RegisterHardware(register) => hardware::register::decide(state, envelope, register),
        Command::CreateVcluster(create) => vcluster::create::create(state, &envelope.actor, create),
        Command::RemoveVcluster { vcluster } => vcluster::remove::remove(state, vcluster),
        Command::SetConfig(set) => vcluster::configure::set(state, set),
        Command::Assign { node, vcluster } => vcluster::assign::assign(state, node, vcluster),
        Command::Unassign { node } => vcluster::assign::unassign(state, node),
        Command::Move { node, vcluster } => vcluster::assign::relocate(state, node, vcluster),
        Command::ReportSessions(report) => session::report::decide(state, report),
        Command::BeginIssuance(begin) => issuance::begin::begin(state, begin),
        Command::EndIssuance(end) => issuance::end::end(state, envelope, end),
        Command::RecordDeliveredRevocations { serials } => issuance::deliver::record(state, serials),
        Command::AcceptClock(accept) => domain::accept_clock::decide(state, accept),
        Command::CorroborateClock(found) => domain::corroborate_clock::decide(state, found),
        Command::RepairClock(repair) => domain::repair_clock::decide(state, repair),
        Command::IssueBootstrap(issue) => bootstrap::issue::decide(state, &envelope.actor, issue),
        Command::RevokeBootstrap { name } => bootstrap::revoke::decide(state, name),
    }
}

fn remember(state: &mut State, id: RequestId, answer: Answer) {
    state.recent.insert(id, Arc::new(Recorded { answer }));
    let horizon = RequestId(Ulid::new(state.at.minus(REMEMBERED), [0; 10]));
    while let Some(oldest) = state.recent.get_min().map(|(id, _)| *id).filter(|id| *id < horizon) {
        state.recent.remove(&oldest);
    }
}
