//! Enrolling, from a door's request to a released certificate: ask the rules, sign, record, release.
//!
//! Nothing is signed for a caller whose credential is unknown; no certificate leaves the process unless the
//! committed outcome granted it.

use crate::app::{App, Origin};
use crate::chance;
use crate::failure::Failure;
use crate::told::Told;
use crate::{issuing, probe};
use api::code;
use api::doors::taskrun::COMMON_NAME_PREFIX;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use journal::View;
use lifecycle::names::{IdempotencyHash, Label, NodeId, ProfileName, SecretHash, SpiffeId, WireguardKey};
use lifecycle::registry::{
    Actor, Admission, Certificate, Command, Door, Enroll, Hardware, Node, NodeChoice, Outcome, Prepared,
    Refusal, Rejection, State, Underlay, Wireguard, admit, check_token,
};
use pki::csr;
use std::sync::Arc;
use std::time::Duration;

/// How often a preparation may be overtaken by others before the caller is asked to try again.
const TRIES: usize = 3;
const BARRIER: Duration = Duration::from_secs(2);

/// What a door makes of its wire shape.
pub struct Request {
    pub door: Door,
    pub token: String,
    pub csr: Vec<u8>,
    pub idempotency: Option<IdempotencyHash>,
    pub requested_node: Option<NodeId>,
    /// A WireGuard public key as it was sent: it is looked at after the token.
    pub wireguard: Option<String>,
    pub underlay: Option<Underlay>,
    pub hardware: Option<Hardware>,
    pub hostname: Option<Label>,
    pub agent_version: Option<Label>,
}

/// An enrollment that is on record.
pub struct Enrolled {
    pub node: Arc<Node>,
    pub certificate: Arc<Certificate>,
    pub subject: SpiffeId,
    pub serial: lifecycle::names::Serial,
    pub der: Vec<u8>,
    /// The registry in which it is on record.
    pub view: Arc<View>,
}

/// Enrolls, and counts the attempt if it is refused.
pub async fn enroll(app: &Arc<App>, origin: &Origin, request: Request) -> Result<Enrolled, Failure> {
    let mut burned = false;
    let result = attempt(app, origin, &request, &mut burned).await;
    match &result {
        Ok(_) => app.metrics.enrolled(request.door),
        Err(failure) if failure.code.status < 500 => {
            app.metrics.refused(failure.code.word);
            // One that burned a token has a line of its own.
            if !burned {
                app.refusals.record(app, origin, failure.code.word, sample(app, &request)).await;
            }
        }
        Err(_) => {}
    }
    result
}

/// Who it was, as far as it can be told: the token's id if it is a real one, else what the caller claims.
fn sample(app: &App, request: &Request) -> Option<String> {
    let token = pki::digest::secret_hash(request.token.as_bytes());
    let known = app.view().state.token_with_hash(&token).map(|token| format!("token:{}", token.id));
    let claimed = request.requested_node.as_ref().map(ToString::to_string);
    known.or(claimed).or_else(|| request.hostname.as_ref().map(ToString::to_string))
}

async fn attempt(
    app: &Arc<App>,
    origin: &Origin,
    request: &Request,
    burned: &mut bool,
) -> Result<Enrolled, Failure> {
    let mut place = Some(app.place().await?);
    // The credential before the request: strangers are not worth a signature check.
    let (token, mut view) = credential(app, &request.token, request.idempotency.as_ref()).await?;
    let csr = csr::read(&request.csr).map_err(|error| Failure::new(code::CSR_INVALID, error.to_string()))?;
    let wireguard = request.wireguard.as_deref().map(wireguard).transpose()?;
    let mut probed = false;
    let pinned = view.state.token_with_hash(&token).is_some_and(|token| token.node.is_some());
    let wanted = if pinned { None } else { wanted(request, &csr)? };
    for _ in 0..TRIES {
        let mut command = command(request, token, &csr, wireguard, wanted.clone());
        match admit(&at_now(app, &view), &command) {
            Ok(Admission::Again { node, serial }) => return released(&view, &node, &serial, None),
            Ok(Admission::Fresh { tenant, profile, node }) => {
                if !std::mem::replace(&mut probed, true) {
                    // Whoever waits for a silent host stands in nobody's way.
                    drop(place.take());
                    probe::demand(app, origin, &view.state.policy, request.underlay.as_ref()).await?;
                    place = Some(app.place().await?);
                }
                command.prepared =
                    Some(prepare(app, &view.state, &csr, request.door, tenant, profile, node)?);
            }
            Err(Refusal { rejection, burns: None }) => return Err(rejection.into()),
            // The refusal itself goes on record: it ends the token's life.
            Err(Refusal { burns: Some(_), .. }) => *burned = true,
        }
        let prepared = command.prepared.clone();
        let envelope = app.envelope(Actor::Stranger, origin, Command::Enroll(Box::new(command)))?;
        let told = Told::of(&envelope);
        match app.journal.propose(envelope).await? {
            Ok(Outcome::Enrolled { node, serial, replayed }) => {
                if !replayed {
                    if let Some(told) = told {
                        told.write();
                    }
                    probe::warn(app, origin, &view.state.policy, &node, request.underlay);
                }
                drop(place);
                return released(&app.view(), &node, &serial, prepared);
            }
            Ok(_) => return Err(Failure::internal("an enrollment answered nothing", &"")),
            Err(Rejection::PreparedStale) => view = app.view(),
            Err(rejection) => return Err(rejection.into()),
        }
    }
    Err(Rejection::PreparedStale.into())
}

/// A token that is good, as far as can be told without what comes with it, and the registry that says so.
pub async fn credential(
    app: &App,
    token: &str,
    again: Option<&IdempotencyHash>,
) -> Result<(SecretHash, Arc<View>), Failure> {
    if !could_be_a_token(token) {
        return Err(Failure::new(code::TOKEN_MALFORMED, "the value is not a token"));
    }
    let token = pki::digest::secret_hash(token.as_bytes());
    let view = app.view();
    if check_token(&at_now(app, &view), &token, again).is_ok() {
        return Ok((token, view));
    }
    // Perhaps it was minted elsewhere a moment ago. Every refusal takes this way, so that the time it takes does
    // not tell one from another.
    let view = app.journal.barrier(BARRIER).await?;
    check_token(&at_now(app, &view), &token, again)?;
    Ok((token, view))
}

/// The registry as it will be when time has passed until now.
fn at_now(app: &App, view: &View) -> State {
    let mut state = view.state.clone();
    state.at = app.now();
    state
}

/// Empty, over-long or with characters that no token has: not worth a look-up.
pub fn could_be_a_token(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=' | b'-' | b'_');
    (1..=256).contains(&text.len()) && text.bytes().all(plain)
}

fn wireguard(text: &str) -> Result<Wireguard, Failure> {
    let invalid = |why: String| Failure::new(code::WIREGUARD_KEY_INVALID, why);
    let bytes = STANDARD.decode(text).ok().and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
    let bytes = bytes.ok_or_else(|| invalid("the WireGuard key is not the base64 of 32 bytes".to_owned()))?;
    let key = WireguardKey::new(bytes).map_err(|error| invalid(error.to_string()))?;
    Ok(Wireguard { key, fingerprint: pki::digest::fingerprint(key.as_bytes()) })
}

/// The id that the caller wants. A worker of the TaskRun document writes it into its request.
fn wanted(request: &Request, csr: &csr::VerifiedCsr) -> Result<Option<NodeId>, Failure> {
    match csr.common_name.as_deref() {
        Some(name) if request.door == Door::Taskrun && !name.is_empty() => {
            let id = name.strip_prefix(COMMON_NAME_PREFIX).unwrap_or(name);
            NodeId::parse(id).map(Some).map_err(|error| {
                Failure::new(code::CSR_INVALID, format!("the common name holds no worker id: {error}"))
            })
        }
        _ => Ok(request.requested_node.clone()),
    }
}

fn command(
    request: &Request,
    token: SecretHash,
    csr: &csr::VerifiedCsr,
    wireguard: Option<Wireguard>,
    requested_node: Option<NodeId>,
) -> Enroll {
    Enroll {
        token,
        key: csr.key,
        key_kind: csr.kind,
        idempotency: request.idempotency,
        door: request.door,
        requested_node,
        wireguard,
        underlay: request.underlay,
        hardware: request.hardware.clone(),
        hostname: request.hostname.clone(),
        agent_version: request.agent_version.clone(),
        prepared: None,
    }
}

/// Draws what must be drawn and signs, in memory.
fn prepare(
    app: &App,
    state: &State,
    csr: &csr::VerifiedCsr,
    door: Door,
    tenant: lifecycle::names::TenantId,
    profile: ProfileName,
    choice: NodeChoice,
) -> Result<Prepared, Failure> {
    let at = app.now();
    let node = match choice {
        NodeChoice::Pinned(id) | NodeChoice::Requested(id) => id,
        NodeChoice::Free => drawn_id(app, door, Some(&profile))?,
    };
    let (Some(domain), Some(rules)) = (&state.domain, state.policy.profiles.get(&profile)) else {
        return Err(Rejection::ProfileNotFound { profile }.into());
    };
    let subject = SpiffeId::agent(&domain.name, &tenant, &node);
    let common_name = rules.common_name(&domain.name, &tenant, &node);
    let terms = issuing::Terms { subject, common_name, lifetime: rules.lifetime, profile: Some(rules) };
    let issuer = app.keys.issuer(state)?;
    let certificate = issuing::sign(&issuer, csr, terms, chance::serial(at)?, at)
        .map_err(|error| Failure::internal("a leaf could not be signed", &error))?;
    Ok(Prepared { node, tenant, profile, certificate })
}

/// An id for a node that nobody has named, as the document of its door or of its profile writes it.
pub fn drawn_id(app: &App, door: Door, profile: Option<&ProfileName>) -> Result<NodeId, Failure> {
    let probectl = door == Door::Probectl || Door::Probectl.profile().as_ref() == profile;
    let id = if probectl { chance::uuid()? } else { chance::ulid(app.now())?.to_string() };
    NodeId::parse(&id).map_err(|error| Failure::internal("a drawn id is no node id", &error))
}

/// What is on record leaves the process, and only that.
fn released(
    view: &Arc<View>,
    node: &NodeId,
    serial: &lifecycle::names::Serial,
    prepared: Option<Prepared>,
) -> Result<Enrolled, Failure> {
    let missing = || Failure::internal("an enrollment is not on record", node);
    let node = view.state.nodes.get(node).cloned().ok_or_else(missing)?;
    let certificate = view.state.certificates.get(serial).cloned().ok_or_else(missing)?;
    let ours = prepared.filter(|prepared| prepared.certificate.serial == *serial);
    let der = match (ours, &certificate.der) {
        (Some(prepared), _) => prepared.certificate.der,
        (None, Some(der)) => der.to_vec(),
        (None, None) => return Err(Rejection::TokenUsed.into()),
    };
    let domain = view.state.domain.as_ref().ok_or_else(missing)?;
    let subject = SpiffeId::agent(&domain.name, &node.tenant, &node.id);
    Ok(Enrolled { node, certificate, subject, serial: serial.clone(), der, view: view.clone() })
}
