//! Enrolling: a token, or the hardware of a registered machine, becomes a node with a certificate.

use super::issue::{self, Issue, LeafGrant, Preparation, Released, Unissued, issue, read_csr};
use super::probe;
use crate::fleet::everywhere;
use crate::fleet::presence::at_replica::ReportWanted;
use crate::http::failure::Failure;
use crate::process::app::{App, Provenance};
use api::code::{self, Code};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use journal::View;
use lifecycle::names::{
    IdempotencyHash, KeyHash, Label, NodeId, ProfileName, SecretHash, Source, WireguardKey,
};
use lifecycle::registry::{
    Actor, Admission, ClaimConflict, Command, Credential, Door, Enroll, Hardware, HardwareIdentity, KeyKind,
    NodeChoice, Policy, Prepared, RefusalEffect, Rejection, State, Underlay, UnderlayProbe, Wireguard, admit,
    check_hardware, check_token,
};
use pki::csr;
use std::sync::Arc;

/// What a door makes of its wire shape.
pub struct Enrollment {
    pub door: Door,
    pub proof: Proof,
    pub csr: Vec<u8>,
    pub idempotency: Option<IdempotencyHash>,
    pub naming: Naming,
    /// A WireGuard public key as it was sent: it is parsed after the token is found good.
    pub wireguard: Option<String>,
    pub underlay: Option<Underlay>,
    pub hardware: Option<Hardware>,
    pub hostname: Option<Label>,
    pub agent_version: Option<Label>,
    /// Whether the host keeps its identity in memory alone.
    pub memory_storage: bool,
}

/// By what a caller says it may enroll.
pub enum Proof {
    Token {
        token: String,
        /// What it says of its hardware besides, for a policy that demands both.
        claimed: Option<HardwareIdentity>,
    },
    Hardware(HardwareIdentity),
}

impl Proof {
    /// A token and nothing else.
    pub fn token(token: String) -> Self {
        Proof::Token { token, claimed: None }
    }

    /// The hardware that is looked up: that of a machine with a token only where policy asks for both.
    fn looked_up(&self, policy: &Policy) -> Option<&HardwareIdentity> {
        match self {
            Proof::Token { claimed, .. } => claimed.as_ref().filter(|_| policy.needs_hardware_beside_token()),
            Proof::Hardware(claimed) => Some(claimed),
        }
    }

    /// The machine that asks, if it has nothing but its hardware.
    fn machine(&self) -> Option<&HardwareIdentity> {
        match self {
            Proof::Token { .. } => None,
            Proof::Hardware(claimed) => Some(claimed),
        }
    }
}

/// How a door names nodes.
#[derive(Clone, Copy)]
pub struct Naming {
    /// The id that a CSR asks for. Only of a CSR whose token is good and names no node.
    pub requested: fn(&csr::VerifiedCsr) -> Result<Option<NodeId>, Failure>,
    /// An id for a node of this profile that nobody has named.
    pub drawn: fn(&App, &ProfileName) -> Result<NodeId, Failure>,
}

/// Enrolls, and counts the attempt if it is refused.
pub async fn enroll(app: &Arc<App>, origin: &Provenance, request: Enrollment) -> Result<Released, Failure> {
    let unissued = match attempt(app, origin, &request).await {
        Ok(released) => {
            app.metrics.enrolled(request.door);
            if let Some(claimed) = request.proof.machine() {
                app.edge.repeated_failures.succeeded(claimed);
            }
            return Ok(released);
        }
        Err(unissued) => unissued,
    };
    let Unissued { failure, on_record } = unissued;
    count_guess(app, origin, &request.proof, failure.code);
    if failure.code.status < 500 {
        app.metrics.refused(failure.code.word);
        let machine = request.proof.machine();
        // What is on record of a machine is an alert, and that is not raised every time.
        if !on_record || machine.is_some() {
            app.edge.refusals.record(app, origin, failure.code.word, sample(app, &request)).await;
        }
        // One that is told to wait has not failed.
        if let Some(claimed) = machine.filter(|_| failure.code != code::RATE_LIMITED) {
            app.edge.repeated_failures.count(app, claimed, failure.code.word, origin.source);
        }
    }
    Err(failure)
}

/// Whether what is claimed is looked up. A source that has guessed too much learns nothing.
fn check_guesses(app: &App, origin: &Provenance, proof: &Proof) -> Result<(), Failure> {
    let policy = &app.view().state.policy;
    match proof.looked_up(policy) {
        Some(claimed) => app.edge.hardware_guesses.check(policy, claimed, origin.source, app.clock.now()),
        None => Ok(()),
    }
}

/// Counts a claim that was refused. One that came with a token counts if it is the hardware that was refused.
fn count_guess(app: &App, origin: &Provenance, proof: &Proof, code: &'static Code) {
    let of_hardware = [code::NODE_NOT_ENROLLED, code::ALREADY_ACTIVE, code::HARDWARE_IDENTITY_CONFLICT];
    if proof.machine().is_none() && !of_hardware.contains(&code) {
        return;
    }
    let policy = &app.view().state.policy;
    if let Some(claimed) = proof.looked_up(policy) {
        let refusal = (origin.source, code);
        app.edge.hardware_guesses.refused(policy, claimed, refusal, app.clock.now());
    }
}

/// Who it was, as far as it can be told: the token's id if it is a real one, else what the caller claims.
fn sample(app: &App, request: &Enrollment) -> Option<String> {
    let token = match &request.proof {
        Proof::Hardware(claimed) => return claimed.macs.first().map(|mac| format!("mac:{mac}")),
        Proof::Token { token, .. } => pki::digest::secret_hash(token.as_bytes()),
    };
    let known = app.view().state.token_with_hash(&token).map(|token| format!("token:{}", token.id));
    known.or_else(|| request.hostname.as_ref().map(ToString::to_string))
}

async fn attempt(app: &Arc<App>, origin: &Provenance, request: &Enrollment) -> Result<Released, Unissued> {
    app.knows_the_time()?;
    check_guesses(app, origin, &request.proof)?;
    let mut place = app.issuance.place().await?;
    // While it waited, others from the same source may have been refused.
    check_guesses(app, origin, &request.proof)?;
    let again = request.idempotency.as_ref();
    let (credential, claimed, view) = match &request.proof {
        Proof::Token { token, claimed } => {
            let (token, view) = credential(app, token, again).await?;
            (Credential::Token(token), claimed.clone(), view)
        }
        Proof::Hardware(claimed) => {
            let view = match machine(app, origin, claimed, again).await? {
                MachineCheck::Admitted(view) => view,
                MachineCheck::Refused { over, rejection } => {
                    if !app.edge.refusals.takes_line(app.clock.now()) {
                        return Err(Failure::from(rejection).into());
                    }
                    return Err(refused(app, origin, request, claimed, &over).await);
                }
            };
            (Credential::Hardware(claimed.clone()), None, view)
        }
    };
    let csr = read_csr(&request.csr)?;
    let wireguard = request.wireguard.as_deref().map(wireguard).transpose()?;
    if let Some(underlay) = &request.underlay {
        view.state.check_endpoint(underlay, &origin.source).map_err(Failure::from)?;
    }
    let token = credential.token().and_then(|token| view.state.token_with_hash(token));
    let asks = token.is_some_and(|token| token.node.is_none());
    let requested_node = if asks { (request.naming.requested)(&csr)? } else { None };
    let command =
        Enroll { claimed, requested_node, wireguard, ..command(request, credential, csr.key, csr.kind) };
    if let Some(underlay) = &request.underlay
        && let Ok(Admission::Fresh { tenant, node, .. }) =
            admit(&issue::at_now(app, &view), &command, &origin.source)
    {
        let own = if let NodeChoice::Pinned(node) = &node { Some(node) } else { None };
        view.state.check_not_anothers(&tenant, own, underlay, &origin.source).map_err(Failure::from)?;
    }
    let policy = &view.state.policy;
    if policy.underlay_probe == UnderlayProbe::Require
        && matches!(admit(&issue::at_now(app, &view), &command, &origin.source), Ok(Admission::Fresh { .. }))
    {
        // The probe of a silent host takes a second: it holds no place meanwhile.
        drop(place);
        probe::demand(app, origin, policy, request.underlay.as_ref()).await?;
        place = app.issuance.place().await?;
    }
    let enrolling = Enrolling { command, csr, naming: request.naming, source: origin.source };
    let released = issue(app, origin, enrolling, view.clone(), place).await?;
    if !released.replayed {
        probe::warn(app, origin, &view.state.policy, &released.node.id, request.underlay);
    }
    Ok(released)
}

fn command(request: &Enrollment, credential: Credential, key: KeyHash, key_kind: KeyKind) -> Enroll {
    Enroll {
        credential,
        claimed: None,
        key,
        key_kind,
        idempotency: request.idempotency,
        door: request.door,
        requested_node: None,
        wireguard: None,
        underlay: request.underlay,
        hardware: request.hardware.clone(),
        hostname: request.hostname.clone(),
        agent_version: request.agent_version.clone(),
        prepared: None,
        replacement_alerts: true,
        conflict_alerts: true,
        holder_seen_at: None,
        memory_storage: request.memory_storage,
        strict: true,
    }
}

/// An enrollment token that is good, as far as can be told without what comes with it.
pub async fn credential(
    app: &App,
    token: &str,
    again: Option<&IdempotencyHash>,
) -> Result<(SecretHash, Arc<View>), Failure> {
    issue::credential(app, token, |state, token| check_token(state, token, again).map(drop)).await
}

/// What the registry says of a machine before its CSR is read.
enum MachineCheck {
    Admitted(Arc<View>),
    /// An operator is to hear of it, if strangers may still cause lines of the audit trail.
    Refused {
        over: Box<ClaimConflict>,
        rejection: Rejection,
    },
}

/// Whether a machine may enroll by its hardware, or its refusal goes on record. Asked before the CSR is read, as for
/// tokens.
async fn machine(
    app: &App,
    origin: &Provenance,
    claimed: &HardwareIdentity,
    again: Option<&IdempotencyHash>,
) -> Result<MachineCheck, Failure> {
    let check = |view: &Arc<View>| {
        let state = issue::at_now(app, view);
        match check_hardware(&state, claimed, &origin.source, again) {
            Ok(_) => Ok(MachineCheck::Admitted(view.clone())),
            Err(refusal) if refusal.is_recorded(&state) => match refusal.follows {
                RefusalEffect::Raises(over) => {
                    Ok(MachineCheck::Refused { over, rejection: refusal.rejection })
                }
                RefusalEffect::Nothing | RefusalEffect::Burns(_) => Err(refusal.rejection),
            },
            Err(refusal) => Err(refusal.rejection),
        }
    };
    if let Ok(machine) = check(&app.view()) {
        return Ok(machine);
    }
    // Perhaps it was registered on another replica a moment ago.
    Ok(check(&app.journal.barrier().await?)?)
}

/// A machine whose refusal goes on record, whatever its CSR is: somebody who only tries an identity out is to be heard of
/// too, and costs no check of a signature. The key is that of nobody: the refusal does not depend on it.
async fn refused(
    app: &App,
    origin: &Provenance,
    request: &Enrollment,
    claimed: &HardwareIdentity,
    over: &ClaimConflict,
) -> Unissued {
    let (key, credential) = (pki::digest::key_hash(&request.csr), Credential::Hardware(claimed.clone()));
    let holder_seen_at = everywhere::node(app, &over.holder).await.and_then(|holder| holder.source);
    let command = Enroll { holder_seen_at, ..command(request, credential, key, KeyKind::P256) };
    match app.commit(Actor::Stranger, origin, Command::Enroll(Box::new(command))).await {
        // Nothing was prepared, so nothing can have been granted.
        Ok(_) => Failure::from(Rejection::PreparedStale).into(),
        Err(failure) => failure.into(),
    }
}

/// A WireGuard public key as hosts write it.
pub fn wireguard(text: &str) -> Result<Wireguard, Failure> {
    let invalid = |why: String| Failure::new(code::WIREGUARD_KEY_INVALID, why);
    let bytes = STANDARD.decode(text).ok().and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
    let bytes = bytes.ok_or_else(|| invalid("the WireGuard key is not the base64 of 32 bytes".to_owned()))?;
    let key = WireguardKey::new(bytes).map_err(|error| invalid(error.to_string()))?;
    Ok(Wireguard { key, fingerprint: pki::digest::fingerprint(key.as_bytes()) })
}

struct Enrolling {
    command: Enroll,
    csr: csr::VerifiedCsr,
    naming: Naming,
    source: Source,
}

impl Issue for Enrolling {
    fn actor(&self) -> Actor {
        Actor::Stranger
    }

    fn token(&self) -> Option<SecretHash> {
        self.command.credential.token().copied()
    }

    fn csr(&self) -> &csr::VerifiedCsr {
        &self.csr
    }

    fn prepare(&self, app: &App, state: &State) -> Result<Preparation, Failure> {
        let mut command = self.command.clone();
        match admit(state, &command, &self.source) {
            Ok(Admission::Fresh { tenant, profile, node }) => {
                let node = match node {
                    NodeChoice::Pinned(id) | NodeChoice::Requested(id) => id,
                    NodeChoice::Free => (self.naming.drawn)(app, &profile)?,
                };
                let granted = (node.clone(), tenant.clone(), profile.clone());
                let complete = Box::new(move |certificate| {
                    let (node, tenant, profile) = granted;
                    command.prepared = Some(Prepared { node, tenant, profile, certificate });
                    Command::Enroll(Box::new(command))
                });
                return Ok(Preparation::Leaf(LeafGrant { tenant, profile, node, complete }));
            }
            Ok(Admission::Again { .. }) => {}
            // The refusal itself goes on record: it ends the token's life, or an operator is to hear of it.
            Err(refusal) if refusal.is_recorded(state) => {
                if let RefusalEffect::Raises(over) = refusal.follows {
                    // Somebody with one token can be in conflict with any number of nodes.
                    if !app.edge.refusals.takes_line(app.clock.now()) {
                        return Err(refusal.rejection.into());
                    }
                    let holder = app.fleet.presence.at_replica(&over.holder, ReportWanted::None);
                    command.holder_seen_at = holder.and_then(|holder| holder.source);
                }
            }
            Err(refusal) => return Err(refusal.rejection.into()),
        }
        Ok(Preparation::Decided(Box::new(Command::Enroll(Box::new(command)))))
    }

    fn used(&self, node: &NodeId) -> Rejection {
        match &self.command.credential {
            Credential::Token(_) | Credential::Recovery(_) => Rejection::TokenUsed,
            Credential::Hardware(_) => Rejection::AlreadyActive { node: node.clone() },
        }
    }
}
