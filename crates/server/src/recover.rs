//! Recovering, from a host that has lost its identity to a released certificate: ask the rules, sign, record,
//! release.
//!
//! Nothing is signed for a caller whose token is unknown; no certificate leaves the process unless the committed
//! outcome granted it; a refusal uses nothing up.

use crate::app::{App, Origin};
use crate::enroll::could_be_a_token;
use crate::failure::Failure;
use crate::renew::{self, Renewed};
use crate::told::Told;
use api::code;
use journal::View;
use lifecycle::host::Class;
use lifecycle::names::{Label, NodeId, SecretHash, Timestamp};
use lifecycle::registry::{
    Actor, Command, Node, Outcome, Prepared, Recover, Recoverable, RecoveryKind, Rejection, State,
    check_recovery_token, recoverable, would_apply,
};
use pki::csr;
use std::sync::Arc;
use std::time::Duration;

/// How often a preparation may be overtaken by others before the caller is asked to try again.
const TRIES: usize = 3;
const BARRIER: Duration = Duration::from_secs(2);

/// What a door makes of its wire shape.
pub struct Request {
    pub token: String,
    pub csr: Vec<u8>,
    pub node: Option<NodeId>,
    pub agent_version: Option<Label>,
    pub class: Option<Class>,
    pub bundle: Option<Bundle>,
}

/// What a repair bundle says of itself.
pub struct Bundle {
    pub expires_at: Timestamp,
    pub audit_seq: u64,
    pub audit_hash: String,
    pub recovery_profile_id: String,
}

/// A recovery that is on record.
pub struct Recovered {
    pub node: Arc<Node>,
    pub certificate: Renewed,
}

/// Recovers, and counts the attempt.
pub async fn recover(app: &Arc<App>, origin: &Origin, request: Request) -> Result<Recovered, Failure> {
    let result = attempt(app, origin, &request).await;
    app.metrics.recovered(result.as_ref().map_or_else(|failure| failure.code.word, |_| "ok"));
    if let Err(failure) = &result
        && failure.code.status < 500
    {
        let token = pki::digest::secret_hash(request.token.as_bytes());
        let view = app.view();
        let known = view.state.recovery_token_with_hash(&token).map(|(node, _)| node.id.clone());
        let claimed = request.node.as_ref().map(ToString::to_string);
        app.refusals.record_recovery(app, origin, failure.code.word, known, claimed).await;
    }
    result
}

async fn attempt(app: &Arc<App>, origin: &Origin, request: &Request) -> Result<Recovered, Failure> {
    let _place = app.place().await?;
    // The credential before the request: strangers are not worth a signature check.
    let (token, mut view) = credential(app, request).await?;
    let csr = csr::read(&request.csr).map_err(|error| Failure::new(code::CSR_INVALID, error.to_string()))?;
    check_bundle(app, &view.state, &token, request.bundle.as_ref()).await?;
    for _ in 0..TRIES {
        let state = at_now(app, &view);
        let mut command = command(app, &state, request, token, &csr);
        if let Ok(Recoverable::Fresh { node, tenant, profile }) = recoverable(&state, &command) {
            let certificate = renew::prepare(app, &state, &csr, &node)?;
            command.prepared = Some(Prepared { node, tenant, profile, certificate });
        }
        let prepared = command.prepared.clone().map(|prepared| prepared.certificate);
        let envelope = app.envelope(Actor::Stranger, origin, Command::Recover(Box::new(command)))?;
        // The same again changes nothing, and most refusals neither, so they are no entries.
        let (answer, changes) = would_apply(&view.state, &envelope, app.now());
        let told = Told::of(&envelope).filter(|_| changes);
        let answer = if changes { app.journal.propose(envelope).await? } else { answer };
        match answer {
            Ok(Outcome::Recovered { node, serial, .. }) => {
                if let Some(told) = told {
                    told.write();
                }
                let view = app.view();
                let missing = || Failure::internal("a recovery is not on record", &node);
                let record = view.state.nodes.get(&node).cloned().ok_or_else(missing)?;
                let lost = Rejection::TokenUsed;
                let certificate = renew::released(&view, &serial, prepared, lost)?;
                return Ok(Recovered { node: record, certificate });
            }
            Ok(_) => return Err(Failure::internal("a recovery answered nothing", &"")),
            Err(Rejection::PreparedStale) => view = app.view(),
            Err(rejection) => return Err(rejection.into()),
        }
    }
    Err(Rejection::PreparedStale.into())
}

/// A token that is good, as far as can be told without what comes with it, and the registry that says so.
async fn credential(app: &App, request: &Request) -> Result<(SecretHash, Arc<View>), Failure> {
    if !could_be_a_token(&request.token) {
        return Err(Failure::new(code::TOKEN_MALFORMED, "the value is not a token"));
    }
    let (token, claimed) = (pki::digest::secret_hash(request.token.as_bytes()), request.node.as_ref());
    let view = app.view();
    if check_recovery_token(&at_now(app, &view), &token, claimed).is_ok() {
        return Ok((token, view));
    }
    // Perhaps it was minted elsewhere a moment ago. Every refusal takes this way, so that the time it takes does
    // not tell one from another.
    let view = app.journal.barrier(BARRIER).await?;
    check_recovery_token(&at_now(app, &view), &token, claimed)?;
    Ok((token, view))
}

/// The registry as it will be when time has passed until now.
fn at_now(app: &App, view: &View) -> State {
    let mut state = view.state.clone();
    state.at = app.now();
    state
}

fn command(
    app: &App,
    state: &State,
    request: &Request,
    token: SecretHash,
    csr: &csr::VerifiedCsr,
) -> Recover {
    let owner = state.recovery_token_with_hash(&token).map(|(node, _)| &node.id);
    Recover {
        token,
        key: csr.key,
        key_kind: csr.kind,
        node: request.node.clone(),
        class: request.class,
        bundle_ends: request.bundle.as_ref().map(|bundle| bundle.expires_at),
        // After an outage of ours nobody is lost for having said nothing meanwhile.
        heard: owner.and_then(|node| app.presence.last_seen(node).max(Some(app.listening_since))),
        agent_version: request.agent_version.clone(),
        prepared: None,
    }
}

/// The token of a repair bundle comes with the line of the audit trail that says it was issued.
async fn check_bundle(
    app: &Arc<App>,
    state: &State,
    token: &SecretHash,
    bundle: Option<&Bundle>,
) -> Result<(), Failure> {
    let known = state.recovery_token_with_hash(token).filter(|(_, token)| token.kind == RecoveryKind::Repair);
    let Some((_, token)) = known else { return Ok(()) };
    let bundle = bundle.ok_or(Rejection::RepairBundleMismatch)?;
    let line = crate::repair::line(app, token.id, bundle.audit_seq.saturating_sub(1), 1).await?;
    match line {
        Some(line)
            if line.seq == bundle.audit_seq
                && line.hash == bundle.audit_hash
                && line.profile == bundle.recovery_profile_id =>
        {
            Ok(())
        }
        _ => Err(Rejection::RepairBundleMismatch.into()),
    }
}
