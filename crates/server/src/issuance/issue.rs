//! The one way to a certificate: ask the rules, sign in memory, commit, release.
//!
//! Enrollment, renewal and recovery differ in which rules they ask and whom they answer; what is here is the same for
//! all. No certificate leaves the process unless the committed outcome granted it.

use super::external;
use crate::ca::keys::{self, Terms};
use crate::ca::step_ca::{Applicant, ISSUANCE_LIMIT};
use crate::ca::{ephemeral, hsm};
use crate::http::failure::Failure;
use crate::process::app::{App, Provenance};
use crate::process::chance;
use api::code;
use journal::{Committed, View};
use lifecycle::names::{NodeId, ProfileName, SecretHash, Serial, SpiffeId, TenantId};
use lifecycle::registry::{
    Actor, Certificate, Command, Envelope, Issued, Node, Outcome, Owner, Rejection, State, would_apply,
};
use pki::csr;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

/// How often a preparation may be overtaken by others before the caller is asked to try again.
const TRIES: usize = 3;

/// What enrollment, renewal and recovery each say for themselves.
pub trait Issue {
    fn actor(&self) -> Actor;

    /// What shows that the caller may have the certificate, if it is not the node itself or its hardware.
    fn token(&self) -> Option<SecretHash> {
        None
    }

    /// The request for a certificate.
    fn csr(&self) -> &csr::VerifiedCsr;

    /// Asks the rules.
    fn prepare(&self, app: &App, state: &State) -> Result<Preparation, Failure>;

    /// Why a certificate that was granted before cannot be given again: after its first use only its serial is kept.
    fn used(&self, node: &NodeId) -> Rejection;
}

/// What the rules say of a request.
pub enum Preparation {
    /// They grant a new certificate.
    Leaf(LeafGrant),
    /// The same again, or a refusal that goes on record.
    Decided(Box<Command>),
}

/// For whom a certificate is to be signed, and the command that records it.
pub struct LeafGrant {
    pub tenant: TenantId,
    pub profile: ProfileName,
    pub node: NodeId,
    pub complete: Box<dyn FnOnce(Issued) -> Command + Send>,
}

/// A certificate that is on record, on its way out.
pub struct Released {
    pub node: Arc<Node>,
    pub subject: SpiffeId,
    pub serial: Serial,
    pub certificate: Arc<Certificate>,
    pub der: Vec<u8>,
    /// Granted before, and given again after a lost answer.
    pub replayed: bool,
    /// The registry in which it is on record.
    pub view: Arc<View>,
}

/// A request that got no certificate.
pub struct Unissued {
    pub failure: Failure,
    /// The refusal has an audit line of its own, because it changed something: a token was burned.
    pub on_record: bool,
}

impl From<Failure> for Unissued {
    fn from(failure: Failure) -> Self {
        Self { failure, on_record: false }
    }
}

/// Begins with the view in which the caller's credential was found good. The place among the requests in progress is given back at the
/// end.
pub async fn issue(
    app: &Arc<App>,
    origin: &Provenance,
    request: impl Issue + Send + Sync + 'static,
    view: Arc<View>,
    place: OwnedSemaphorePermit,
) -> Result<Released, Unissued> {
    if !view.state.has_step_ca() {
        return issued(app, origin, &request, view).await;
    }
    // A caller that goes away ends nothing: the intent gets its result, and turn and place are held until then.
    let (app, origin) = (app.clone(), origin.clone());
    let task = tokio::spawn(async move {
        let _place = place;
        issued(&app, &origin, &request, view).await
    });
    task.await.map_err(|error| Failure::internal("an issuance was broken off", &error))?
}

async fn issued(
    app: &App,
    origin: &Provenance,
    request: &impl Issue,
    mut view: Arc<View>,
) -> Result<Released, Unissued> {
    let deadline = Instant::now() + ISSUANCE_LIMIT;
    for _ in 0..TRIES {
        let (command, signed) = prepared(app, origin, request, &view, deadline).await?;
        let envelope = app.envelope(request.actor(), origin, command)?;
        // What changes nothing is no entry: the same again, and most refusals. The rules have just granted what was
        // signed, so that is not asked again.
        let asked = signed.is_none().then(|| would_apply(&view.state, &envelope, app.now()));
        let on_record = asked.as_ref().is_some_and(|(answer, changes)| *changes && answer.is_err());
        let committed = match asked {
            Some((answer, false)) => Committed { answer, view },
            Some((_, true)) | None => recorded(app, origin, envelope, signed.as_ref()).await?,
        };
        match committed.answer {
            Ok(Outcome::Enrolled { serial, replayed, .. })
            | Ok(Outcome::Renewed { serial, replayed })
            | Ok(Outcome::Recovered { serial, replayed, .. }) => {
                return Ok(released(committed.view, serial, replayed, signed, request)?);
            }
            Ok(
                Outcome::Done
                | Outcome::Registered { .. }
                | Outcome::ReplicaJoined { .. }
                | Outcome::OperatorRemoved { .. },
            ) => {
                return Err(Failure::internal("a certificate was asked for and none answered", &"").into());
            }
            Err(Rejection::PreparedStale) => view = committed.view,
            Err(rejection) => return Err(Unissued { failure: rejection.into(), on_record }),
        }
    }
    Err(Failure::from(Rejection::PreparedStale).into())
}

/// The command, and the certificate in it if there is a new one.
async fn prepared(
    app: &App,
    origin: &Provenance,
    request: &impl Issue,
    view: &View,
    deadline: Instant,
) -> Result<(Command, Option<Issued>), Failure> {
    let state = at_now(app, view);
    let LeafGrant { tenant, profile, node, complete } = match request.prepare(app, &state)? {
        Preparation::Leaf(grant) => grant,
        Preparation::Decided(command) => return Ok((*command, None)),
    };
    let terms = terms(&state, &tenant, &profile, &node)?;
    let issued = if state.has_step_ca() {
        let applicant = request.token().map_or(Applicant::Node(node), Applicant::Token);
        external::sign(app, origin, applicant, request.csr(), terms, deadline).await?
    } else {
        let _turn = hsm::turn(app).await?;
        sign(app, request.csr(), terms)?
    };
    Ok((complete(issued.clone()), Some(issued)))
}

/// Commits. What an issuer outside signed is revoked there unless it is certain that it went on record.
async fn recorded(
    app: &App,
    origin: &Provenance,
    envelope: Envelope,
    signed: Option<&Issued>,
) -> Result<Committed, Failure> {
    let committed = app.propose(envelope).await;
    let answer = committed.as_ref().ok().and_then(|committed| committed.answer.as_ref().ok());
    let on_record = answer.and_then(granted_serial);
    if let Some(signed) = signed.filter(|signed| on_record != Some(&signed.serial)) {
        external::not_recorded(app, origin, signed).await;
    }
    committed
}

/// The certificate that was granted; of the same again it is the earlier one.
fn granted_serial(outcome: &Outcome) -> Option<&Serial> {
    match outcome {
        Outcome::Enrolled { serial, .. }
        | Outcome::Renewed { serial, .. }
        | Outcome::Recovered { serial, .. } => Some(serial),
        Outcome::Done
        | Outcome::Registered { .. }
        | Outcome::ReplicaJoined { .. }
        | Outcome::OperatorRemoved { .. } => None,
    }
}

/// What is on record leaves the process, and only that.
fn released(
    view: Arc<View>,
    serial: Serial,
    replayed: bool,
    signed: Option<Issued>,
    request: &impl Issue,
) -> Result<Released, Failure> {
    let missing = || Failure::internal("a certificate that was granted is not on record", &serial);
    let certificate = view.state.certificates.get(&serial).cloned().ok_or_else(missing)?;
    let Owner::Node(id) = &certificate.owner else { return Err(missing()) };
    let node = view.state.nodes.get(id).cloned().ok_or_else(missing)?;
    let domain = view.state.domain.as_ref().ok_or_else(missing)?;
    let subject = SpiffeId::agent(&domain.name, &node.tenant, &node.id);
    let ours = signed.filter(|signed| signed.serial == serial);
    let der = match (ours, &certificate.der) {
        (Some(signed), _) => signed.der,
        (None, Some(der)) => der.to_vec(),
        (None, None) => return Err(request.used(&node.id).into()),
    };
    Ok(Released { node, subject, serial, certificate, der, replayed, view })
}

/// What a node's leaf should say.
fn terms<'a>(
    state: &'a State,
    tenant: &TenantId,
    profile: &ProfileName,
    node: &NodeId,
) -> Result<Terms<'a>, Failure> {
    let (Some(domain), Some(rules)) = (&state.domain, state.policy.profiles.get(profile)) else {
        return Err(Rejection::ProfileNotFound { profile: profile.clone() }.into());
    };
    let subject = SpiffeId::agent(&domain.name, tenant, node);
    let common_name = rules.common_name(&domain.name, tenant, node);
    Ok(Terms { subject, common_name, lifetime: rules.lifetime, profile: Some(rules) })
}

/// Signs a node's leaf, in memory.
fn sign(app: &App, csr: &csr::VerifiedCsr, terms: Terms<'_>) -> Result<Issued, Failure> {
    let at = app.now();
    let issuer = ephemeral::node_signer(app)?;
    let serial = chance::serial(at)?;
    hsm::signed(app, &issuer, "a leaf could not be signed", || keys::sign(&issuer, csr, terms, serial, at))
}

pub fn read_csr(bytes: &[u8]) -> Result<csr::VerifiedCsr, Failure> {
    csr::read(bytes).map_err(|error| Failure::new(code::CSR_INVALID, error.to_string()))
}

/// A token that `check` finds good, and the view that says so. Asked before the CSR is read: a look-up costs less than
/// the check of a signature.
pub async fn credential(
    app: &App,
    token: &str,
    check: impl Fn(&State, &SecretHash) -> Result<(), Rejection>,
) -> Result<(SecretHash, Arc<View>), Failure> {
    if !could_be_a_token(token) {
        return Err(Failure::new(code::TOKEN_MALFORMED, "the value is not a token"));
    }
    let token = pki::digest::secret_hash(token.as_bytes());
    let view = app.view();
    if check(&at_now(app, &view), &token).is_ok() {
        return Ok((token, view));
    }
    // Perhaps it was minted on another replica a moment ago. Every refusal waits for the barrier, so that the time
    // it takes does not tell one from another.
    let view = app.journal.barrier().await?;
    check(&at_now(app, &view), &token)?;
    Ok((token, view))
}

/// Empty, over-long or with characters that no token has: refused without a look-up.
fn could_be_a_token(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=' | b'-' | b'_');
    (1..=256).contains(&text.len()) && text.bytes().all(plain)
}

/// The registry as it will be when time has passed until now.
pub fn at_now(app: &App, view: &View) -> State {
    let mut state = view.state.clone();
    state.at = app.now();
    state
}
