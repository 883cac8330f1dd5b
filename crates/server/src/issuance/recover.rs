//! Recovering: a host that has lost its identity gets a certificate by its recovery token. A refusal uses nothing up.

use super::issue::{self, Issue, LeafGrant, Preparation, Released, Unissued, issue, read_csr};
use super::repair;
use crate::http::failure::Failure;
use crate::process::app::{App, Provenance};
use lifecycle::host::Class;
use lifecycle::names::{Label, NodeId, SecretHash};
use lifecycle::registry::{
    self, Actor, BundleClaim, Command, Prepared, Recover, Recoverable, RecoveryKind, Rejection, State,
    check_recovery_token, needs_only_addresses, recoverable,
};
use pki::csr;
use std::sync::Arc;

/// What a door makes of its wire shape.
pub struct RecoveryRequest {
    pub token: String,
    pub csr: Vec<u8>,
    pub node: Option<NodeId>,
    pub agent_version: Option<Label>,
    /// The recovery profile that the host names; agents of before name none.
    pub profile: Option<Label>,
    pub class: Option<Class>,
    pub bundle: Option<BundleClaim>,
}

/// Recovers, and counts the attempt.
pub async fn recover(
    app: &Arc<App>,
    origin: &Provenance,
    request: RecoveryRequest,
) -> Result<Released, Failure> {
    let result = attempt(app, origin, &request).await.map_err(|unissued| unissued.failure);
    app.metrics.recovered(result.as_ref().map_or_else(|failure| failure.code.word, |_| "ok"));
    if let Err(failure) = &result
        && failure.code.status < 500
    {
        let token = pki::digest::secret_hash(request.token.as_bytes());
        let view = app.view();
        let known = view.state.recovery_token_with_hash(&token).map(|(node, _)| node.id.clone());
        let claimed = request.node.as_ref().map(ToString::to_string);
        app.edge.refusals.record_recovery(app, origin, failure.code.word, known, claimed).await;
    }
    result
}

async fn attempt(
    app: &Arc<App>,
    origin: &Provenance,
    request: &RecoveryRequest,
) -> Result<Released, Unissued> {
    app.knows_the_time()?;
    let place = app.issuance.place().await?;
    let (claimed, profile) = (request.node.as_ref(), request.profile.as_ref());
    let check =
        |state: &State, token: &SecretHash| check_recovery_token(state, token, claimed, profile).map(drop);
    let (token, view) = issue::credential(app, &request.token, check).await?;
    let csr = read_csr(&request.csr)?;
    check_bundle(app, &view.state, &token, request.bundle.as_ref()).await?;
    let command = Recover {
        token,
        key: csr.key,
        key_kind: csr.kind,
        node: request.node.clone(),
        class: request.class,
        bundle_ends: request.bundle.as_ref().map(|bundle| bundle.expires_at),
        heard: None,
        agent_version: request.agent_version.clone(),
        profile: request.profile.clone(),
        strict: true,
        svid_counts: true,
        prepared: None,
    };
    issue(app, origin, Recovering { command, csr }, view, place).await
}

struct Recovering {
    command: Recover,
    csr: csr::VerifiedCsr,
}

impl Issue for Recovering {
    fn actor(&self) -> Actor {
        Actor::Stranger
    }

    fn csr(&self) -> &csr::VerifiedCsr {
        &self.csr
    }

    fn prepare(&self, app: &App, state: &State) -> Result<Preparation, Failure> {
        let owner = state.recovery_token_with_hash(&self.command.token).map(|(node, _)| &node.id);
        // Silence is counted from the start of this process: an outage of ours makes nobody eligible.
        let since = app.fleet.listening_since();
        let heard = owner.and_then(|node| app.fleet.presence.last_seen(node).max(Some(since)));
        let command = Recover { heard, ..self.command.clone() };
        match recoverable(state, &command) {
            Ok(Recoverable::Fresh { node, .. }) if needs_only_addresses(state, &command) => {
                Err(Rejection::RecoveryNotNeeded { node }.into())
            }
            Ok(Recoverable::Fresh { node, tenant, profile }) => {
                let granted = (node.clone(), tenant.clone(), profile.clone());
                let complete = Box::new(move |certificate| {
                    let (node, tenant, profile) = granted;
                    let prepared = Some(Prepared { node, tenant, profile, certificate });
                    Command::Recover(Box::new(Recover { prepared, ..command }))
                });
                Ok(Preparation::Leaf(LeafGrant { tenant, profile, node, complete }))
            }
            // The same again, or a refusal, which may go on record.
            Ok(Recoverable::Again { .. }) | Err(_) => {
                Ok(Preparation::Decided(Box::new(Command::Recover(Box::new(command)))))
            }
        }
    }

    fn used(&self, _node: &NodeId) -> Rejection {
        Rejection::TokenUsed
    }
}

/// The token of a repair bundle comes with the line of the audit trail that says that it was issued.
async fn check_bundle(
    app: &Arc<App>,
    state: &State,
    token: &SecretHash,
    claim: Option<&BundleClaim>,
) -> Result<(), Failure> {
    let Some((_, token)) = state.recovery_token_with_hash(token) else { return Ok(()) };
    let recorded = match claim.filter(|_| token.kind == RecoveryKind::Repair) {
        Some(claimed) => repair::recorded(app, token.id, claimed.seq.saturating_sub(1), 1).await?,
        None => None,
    };
    Ok(registry::check_bundle(state, token, claim, recorded.as_ref())?)
}
