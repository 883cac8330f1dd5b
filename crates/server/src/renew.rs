//! Renewing, from a node's request to a released certificate: ask the rules, sign, record, release.

use crate::app::{App, Origin};
use crate::chance;
use crate::failure::Failure;
use crate::issuing;
use api::code;
use journal::View;
use lifecycle::names::{Label, NodeId, Serial, SpiffeId};
use lifecycle::registry::{
    Actor, Certificate, Command, Issued, Keeping, Outcome, Rejection, Renew, Renewal, State, renewable,
    would_apply,
};
use pki::csr;
use std::sync::Arc;

/// How often a preparation may be overtaken by others before the caller is asked to try again.
const TRIES: usize = 3;

/// What a door makes of its wire shape. The node and its serial come from the connection.
pub struct Request {
    pub node: NodeId,
    pub with: Serial,
    pub csr: Vec<u8>,
    pub agent_version: Option<Label>,
    /// What the host says of its recovery token.
    pub keeping: Keeping,
}

/// A renewal that is on record.
pub struct Renewed {
    pub serial: Serial,
    pub certificate: Arc<Certificate>,
    pub der: Vec<u8>,
    /// The registry in which it is on record.
    pub view: Arc<View>,
}

/// Renews, and counts the attempt.
pub async fn renew(app: &App, origin: &Origin, request: Request) -> Result<Renewed, Failure> {
    let result = attempt(app, origin, &request).await;
    app.metrics.renewed(result.as_ref().map_or_else(|failure| failure.code.word, |_| "ok"));
    app.presence.seen(&request.node, origin.source, app.now());
    result
}

async fn attempt(app: &App, origin: &Origin, request: &Request) -> Result<Renewed, Failure> {
    let _place = app.place().await?;
    let csr = csr::read(&request.csr).map_err(|error| Failure::new(code::CSR_INVALID, error.to_string()))?;
    for _ in 0..TRIES {
        let view = app.view();
        let mut state = view.state.clone();
        state.at = app.now();
        let mut command = Renew {
            node: request.node.clone(),
            key: csr.key,
            key_kind: csr.kind,
            agent_version: request.agent_version.clone(),
            prepared: None,
            keeping: request.keeping,
        };
        let renewal = renewable(&state, &request.with, &command)?;
        if matches!(renewal, Renewal::Fresh { .. }) {
            command.prepared = Some(prepare(app, &state, &csr, &request.node)?);
        }
        let prepared = command.prepared.clone();
        let actor = Actor::Node { id: request.node.clone(), serial: request.with.clone() };
        let envelope = app.envelope(actor, origin, Command::Renew(Box::new(command)))?;
        // The same again changes nothing, so it is no entry.
        let (answer, changes) = would_apply(&view.state, &envelope, app.now());
        let answer = if changes { app.journal.propose(envelope).await? } else { answer };
        match answer {
            Ok(Outcome::Renewed { serial, .. }) => {
                return released(&app.view(), &serial, prepared, Rejection::KeyInUse);
            }
            Ok(_) => return Err(Failure::internal("a renewal answered nothing", &"")),
            Err(Rejection::PreparedStale) => {}
            Err(rejection) => return Err(rejection.into()),
        }
    }
    Err(Rejection::PreparedStale.into())
}

/// Signs for a node as it is on record, in memory.
pub fn prepare(app: &App, state: &State, csr: &csr::VerifiedCsr, id: &NodeId) -> Result<Issued, Failure> {
    let at = app.now();
    let node = state.nodes.get(id).ok_or_else(|| Rejection::NodeNotFound { node: id.clone() })?;
    let (Some(domain), Some(rules)) = (&state.domain, state.policy.profiles.get(&node.profile)) else {
        return Err(Rejection::ProfileNotFound { profile: node.profile.clone() }.into());
    };
    let subject = SpiffeId::agent(&domain.name, &node.tenant, &node.id);
    let common_name = rules.common_name(&domain.name, &node.tenant, &node.id);
    let terms = issuing::Terms { subject, common_name, lifetime: rules.lifetime, profile: Some(rules) };
    let issuer = app.keys.issuer(state)?;
    issuing::sign(&issuer, csr, terms, chance::serial(at)?, at)
        .map_err(|error| Failure::internal("a leaf could not be signed", &error))
}

/// What is on record leaves the process, and only that. One that was seen is not kept whole any more: it is `lost`.
pub fn released(
    view: &Arc<View>,
    serial: &Serial,
    prepared: Option<Issued>,
    lost: Rejection,
) -> Result<Renewed, Failure> {
    let missing = || Failure::internal("a renewal is not on record", serial);
    let certificate = view.state.certificates.get(serial).cloned().ok_or_else(missing)?;
    let ours = prepared.filter(|prepared| prepared.serial == *serial);
    let der = match (ours, &certificate.der) {
        (Some(prepared), _) => prepared.der,
        (None, Some(der)) => der.to_vec(),
        (None, None) => return Err(lost.into()),
    };
    Ok(Renewed { serial: serial.clone(), certificate, der, view: view.clone() })
}
