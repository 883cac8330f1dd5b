//! The native door: gRPC `enlist.agent.v1`, spoken by `enlist-agent`.

use super::{NAMING, host, idempotency, plain};
use crate::doors;
use crate::edge::authenticate::{self, ConnectionPeer};
use crate::edge::node_peer::ShownIdentity;
use crate::edge::refused_renewals::CertificateHolder;
use crate::edge::stream_messages::StreamMessages;
use crate::fleet::boot_config;
use crate::fleet::live;
use crate::fleet::recovery_token;
use crate::http::failure::{Failure, FailureCode};
use crate::http::pem::{bundle_to_follow, chain, node_issuers, node_issuers_version, root_crls};
use crate::issuance::Released;
use crate::issuance::enroll::{self, Enrollment, Proof};
use crate::issuance::recover::{self, RecoveryRequest};
use crate::issuance::renew::{self, RenewalRequest};
use crate::process::app::{App, Provenance};
use api::agent::{
    Agent, AgentServer, BootConfigRequest, CheckRequest, Config, ConfirmRequest, ConfirmResponse,
    ConfirmStatus as WireStatus, EnrollRequest, EnrollResponse, HardwareIdentity as WireIdentity, LiveDown,
    LiveUp, NotNeeded, RecoverRequest, RecoverResponse, RecoveryGrant, RenewRequest, RenewResponse, Standing,
};
use api::{code, header};
use axum::body::Body;
use http::Response;
use lifecycle::host::Class;
use lifecycle::names::{Label, NodeId, Timestamp};
use lifecycle::registry::{
    BundleClaim, Command, Confirm, ConfirmStatus, Door, Hardware, HardwareIdentity, HardwareText, State,
};
use pki::pem;
use std::sync::Arc;
use tonic::{Request, Status};

pub const SERVICE: &str = "enlist.agent.v1.Agent";
/// The one call whose request and answer last.
pub const LIVE: &str = "/enlist.agent.v1.Agent/Live";

/// Of certificates and lists in a header; in base64 that is three quarters of the room that an agent has for headers.
const CURE_BYTES: usize = 9 * 1024;

pub fn service(app: &Arc<App>) -> AgentServer<Native> {
    let limit = usize::try_from(crate::edge::body::BODY_LIMIT).unwrap_or(usize::MAX);
    AgentServer::new(Native { app: app.clone() }).max_decoding_message_size(limit)
}

pub struct Native {
    app: Arc<App>,
}

#[tonic::async_trait]
impl Agent for Native {
    type LiveStream = StreamMessages<LiveDown>;

    async fn enroll(
        &self,
        request: Request<EnrollRequest>,
    ) -> Result<tonic::Response<EnrollResponse>, Status> {
        let origin = origin(&request)?;
        let request = match enrollment(request) {
            Ok(request) => request,
            Err(failure) => {
                self.app.edge.refusals.record(&self.app, &origin, failure.code.word, None).await;
                return Err(status(&failure));
            }
        };
        let enrolled =
            enroll::enroll(&self.app, &origin, request).await.map_err(|failure| status(&failure))?;
        Ok(tonic::Response::new(answer(&self.app, &enrolled)))
    }

    async fn confirm(
        &self,
        request: Request<ConfirmRequest>,
    ) -> Result<tonic::Response<ConfirmResponse>, Status> {
        let origin = origin(&request)?;
        self.confirmed(&origin, request).await.map(tonic::Response::new).map_err(|failure| status(&failure))
    }

    async fn renew(&self, request: Request<RenewRequest>) -> Result<tonic::Response<RenewResponse>, Status> {
        let origin = origin(&request)?;
        let peer = request.extensions().get::<ConnectionPeer>();
        let holder = peer.and_then(|peer| CertificateHolder::of(&self.app, peer));
        match self.renewed(&origin, request).await {
            Ok(renewed) => Ok(tonic::Response::new(renewed)),
            Err(failure) => {
                self.app.edge.refused_renewals.record(&self.app, &origin, holder, &failure).await;
                Err(status(&failure))
            }
        }
    }

    async fn recover(
        &self,
        request: Request<RecoverRequest>,
    ) -> Result<tonic::Response<RecoverResponse>, Status> {
        let origin = origin(&request)?;
        let request = match recovery_request(request.into_inner()) {
            Ok(request) => request,
            Err(failure) => {
                self.app.metrics.recovered(failure.code.word);
                self.app
                    .edge
                    .refusals
                    .record_recovery(&self.app, &origin, failure.code.word, None, None)
                    .await;
                return Err(status(&failure));
            }
        };
        match recover::recover(&self.app, &origin, request).await {
            Ok(recovered) => Ok(tonic::Response::new(recovery_answer(&self.app, &recovered))),
            // A node whose only fault is what it trusts, or where it looks for us, is cured by this.
            Err(failure) if failure.code == code::RECOVERY_NOT_NEEDED => {
                Err(cure(&self.app, &self.app.view().state).attached(status(&failure)))
            }
            Err(failure) => Err(status(&failure)),
        }
    }

    async fn check(&self, request: Request<CheckRequest>) -> Result<tonic::Response<Standing>, Status> {
        let checked = self.checked(&request).await;
        checked.map(tonic::Response::new).map_err(|failure| status(&failure))
    }

    async fn boot_config(
        &self,
        request: Request<BootConfigRequest>,
    ) -> Result<tonic::Response<Config>, Status> {
        let read =
            boot_config::read(&self.app, request.extensions().get(), &request.get_ref().vcluster).await;
        read.map(tonic::Response::new).map_err(|failure| status(&failure))
    }

    async fn live(
        &self,
        request: Request<tonic::Streaming<LiveUp>>,
    ) -> Result<tonic::Response<Self::LiveStream>, Status> {
        let origin = origin(&request)?;
        let (id, shown) = self.node(&request).await.map_err(|failure| status(&failure))?;
        let keepalive = request.extensions().get::<ConnectionPeer>().and_then(|peer| peer.keepalive.clone());
        let phase = request.extensions().get().cloned();
        let peer = live::LivePeer { id, shown, origin, keepalive, phase };
        let answers = live::serve(self.app.clone(), peer, request.into_inner(), status_with);
        let mut response = tonic::Response::new(answers.own);
        response.extensions_mut().insert(answers.shared);
        Ok(response)
    }
}

impl Native {
    async fn confirmed(
        &self,
        origin: &Provenance,
        request: Request<ConfirmRequest>,
    ) -> Result<ConfirmResponse, Failure> {
        let (id, shown) = self.node(&request).await?;
        let request = request.into_inner();
        let status = match request.status() {
            WireStatus::Failed => ConfirmStatus::Failed { reason: plain(&request.reason) },
            WireStatus::Ok => ConfirmStatus::Ok,
            WireStatus::Unspecified => {
                return Err(Failure::new(code::BAD_REQUEST, "status must be OK or FAILED"));
            }
        };
        // A host that could not keep its identity could not keep a token either.
        let wanted = request.recovery_wanted && status == ConfirmStatus::Ok && shown.svid().is_none();
        let recovery = recovery_token::RecoveryExchange::new(&self.app, &request.recovery_kept, wanted)?;
        let command = Command::Confirm(Confirm { node: id.clone(), status, keeping: recovery.keeping() });
        let (_, view) = self.app.commit(shown.actor(&id), origin, command).await?;
        self.app.fleet.presence.seen(&id, origin.source, self.app.now());
        let state = view.state.nodes.get(&id).map(|node| node.state.to_string()).unwrap_or_default();
        Ok(ConfirmResponse {
            node_id: id.to_string(),
            state,
            endpoint_profile: self.app.config.endpoint_profile.clone(),
            recovery: recovery.grant(&self.app, &view.state, &id),
        })
    }

    /// Authenticates, and commits nothing: neither contact nor a sign of life follows from it.
    async fn checked(&self, request: &Request<CheckRequest>) -> Result<Standing, Failure> {
        let (id, _) = self.node(request).await?;
        let node = live::living(&self.app.view().state, &id)?;
        Ok(live::standing(&node))
    }

    /// The node at the other end, and the serial it shows.
    async fn node<T>(&self, request: &Request<T>) -> Result<(NodeId, ShownIdentity), Failure> {
        let peer = request.extensions().get::<ConnectionPeer>();
        let peer = peer.ok_or_else(|| Failure::internal("a request without its connection", &""))?;
        authenticate::node(&self.app, peer).await
    }

    async fn renewed(
        &self,
        origin: &Provenance,
        request: Request<RenewRequest>,
    ) -> Result<RenewResponse, Failure> {
        let (node, with) = self.node(&request).await?;
        let body = request.into_inner();
        let agent_version = label("agent_version", &body.agent_version)?;
        // Recovery tokens are given over a certificate of the domain only.
        let wanted = body.recovery_wanted && with.svid().is_none();
        let recovery = recovery_token::RecoveryExchange::new(&self.app, &body.recovery_kept, wanted)?;
        let (csr, keeping) = (body.csr.into_bytes(), recovery.keeping());
        let request = RenewalRequest { node: node.clone(), with, csr, agent_version, keeping };
        let renewed = renew::renew(&self.app, origin, request).await?;
        let grant = recovery.grant(&self.app, &renewed.view.state, &node);
        Ok(renewal_answer(&self.app, &renewed, grant))
    }
}

fn enrollment(request: Request<EnrollRequest>) -> Result<Enrollment, Failure> {
    let idempotency = idempotency(request.metadata().get(header::IDEMPOTENCY_KEY).map(|key| key.as_bytes()))?;
    let body = request.into_inner();
    Ok(Enrollment {
        door: Door::Native,
        wireguard: Some(body.wireguard_public_key).filter(|key| !key.is_empty()),
        underlay: body.underlay.as_ref().map(host::native_underlay).transpose()?,
        hardware: body.hardware.as_ref().map(hardware).transpose()?,
        proof: proof(body.token, body.hardware_identity.as_ref())?,
        csr: body.csr.into_bytes(),
        idempotency,
        naming: NAMING,
        hostname: label("hostname", &body.hostname)?,
        agent_version: label("agent_version", &body.agent_version)?,
        memory_storage: body.memory_storage,
    })
}

/// The hardware is the credential of those who have no token.
fn proof(token: String, said: Option<&WireIdentity>) -> Result<Proof, Failure> {
    let claimed = said.map(|said| {
        let text = HardwareText {
            macs: said.macs.iter().map(String::as_str).collect(),
            bmc_serial: &said.bmc_serial,
            system_uuid: &said.system_uuid,
            tpm_ek_hash: &said.tpm_ek_hash,
        };
        HardwareIdentity::claimed(&text).map_err(Failure::from)
    });
    Ok(match claimed.transpose()? {
        Some(claimed) if token.is_empty() => Proof::Hardware(claimed),
        claimed => Proof::Token { token, claimed },
    })
}

fn recovery_request(body: RecoverRequest) -> Result<RecoveryRequest, Failure> {
    let wrong = |what: String| Failure::new(code::BAD_REQUEST, what);
    let node = match body.node_id.as_str() {
        "" => None,
        text => Some(NodeId::parse(text).map_err(|error| wrong(format!("node_id: {error}")))?),
    };
    let class = match body.class.as_str() {
        "" => None,
        word => Some(
            Class::parse(word)
                .ok_or_else(|| wrong("class: not one of the eight failure classes".to_owned()))?,
        ),
    };
    let bundle = body.bundle.map(|said| {
        let expires_at = Timestamp::parse(&said.expires_at)
            .map_err(|error| wrong(format!("bundle.expires_at: {error}")))?;
        let some = |text: String| Some(text).filter(|text| !text.is_empty());
        Ok::<_, Failure>(BundleClaim {
            seq: said.audit_seq,
            hash: said.audit_hash,
            profile: said.recovery_profile_id,
            expires_at,
            domain: some(said.domain),
            issued_by: some(said.issued_by),
            issued_at: some(said.issued_at),
            url: some(said.recovery_url),
            ca: some(said.recovery_ca_sha256),
        })
    });
    Ok(RecoveryRequest {
        token: body.token,
        csr: body.csr.into_bytes(),
        node,
        agent_version: label("agent_version", &body.agent_version)?,
        profile: label("recovery_profile_id", &body.recovery_profile_id)?,
        class,
        bundle: bundle.transpose()?,
    })
}

fn hardware(said: &api::agent::Hardware) -> Result<Hardware, Failure> {
    let api::agent::Hardware { cpu_cores, memory_bytes, disk_bytes, arch } = said;
    Ok(Hardware {
        cpu_cores: *cpu_cores,
        memory_bytes: *memory_bytes,
        disk_bytes: *disk_bytes,
        arch: label("hardware.arch", arch)?,
    })
}

fn label(name: &str, text: &str) -> Result<Option<Label>, Failure> {
    if text.is_empty() {
        return Ok(None);
    }
    Label::parse(text).map(Some).map_err(|error| Failure::new(code::BAD_REQUEST, format!("{name}: {error}")))
}

/// What every answer with a certificate says; the answer to an enrollment has all of it.
fn answer(app: &App, released: &Released) -> EnrollResponse {
    let Released { node, subject, serial, certificate, der, view, .. } = released;
    let state = &view.state;
    EnrollResponse {
        node_id: node.id.to_string(),
        tenant: node.tenant.to_string(),
        spiffe_id: subject.to_string(),
        certificate: pem::certificate_pem(der),
        chain: chain(state, der, &certificate.issuer),
        bundle: bundle_to_follow(state, app.now()),
        bundle_version: state.bundle_version,
        root_crls: root_crls(state),
        node_issuers: node_issuers(state),
        node_issuers_version: node_issuers_version(state),
        cert_serial: serial.to_string(),
        not_after: certificate.not_after.to_string(),
        renew_at: certificate.renew_at.to_string(),
        domain: state.domain.as_ref().map(|domain| domain.name.to_string()).unwrap_or_default(),
        profile: node.profile.to_string(),
        servers: app.servers(),
        vcluster: node.vcluster.as_ref().map(ToString::to_string).unwrap_or_default(),
    }
}

fn renewal_answer(app: &App, released: &Released, recovery: Option<RecoveryGrant>) -> RenewResponse {
    let all = answer(app, released);
    RenewResponse {
        certificate: all.certificate,
        chain: all.chain,
        bundle: all.bundle,
        bundle_version: all.bundle_version,
        root_crls: all.root_crls,
        node_issuers: all.node_issuers,
        node_issuers_version: all.node_issuers_version,
        cert_serial: all.cert_serial,
        not_after: all.not_after,
        renew_at: all.renew_at,
        profile: all.profile,
        servers: all.servers,
        recovery,
    }
}

fn recovery_answer(app: &App, released: &Released) -> RecoverResponse {
    let all = answer(app, released);
    RecoverResponse {
        node_id: all.node_id,
        tenant: all.tenant,
        spiffe_id: all.spiffe_id,
        certificate: all.certificate,
        chain: all.chain,
        bundle: all.bundle,
        bundle_version: all.bundle_version,
        root_crls: all.root_crls,
        node_issuers: all.node_issuers,
        node_issuers_version: all.node_issuers_version,
        cert_serial: all.cert_serial,
        not_after: all.not_after,
        renew_at: all.renew_at,
        domain: all.domain,
        profile: all.profile,
        servers: all.servers,
    }
}

/// What cures a node without a new certificate. It goes in a header, so what is too long for one is left to the live stream.
fn cure(app: &App, state: &State) -> NotNeeded {
    let mut cure = NotNeeded {
        bundle: bundle_to_follow(state, app.now()),
        bundle_version: state.bundle_version,
        servers: app.servers(),
        ..NotNeeded::default()
    };
    let mut room = CURE_BYTES.saturating_sub(cure.bundle.len());
    let mut fits = |text: &String| room.checked_sub(text.len()).map(|left| room = left).is_some();
    cure.root_crls = Some(root_crls(state)).filter(&mut fits).unwrap_or_default();
    if let Some(issuers) = Some(node_issuers(state)).filter(&mut fits) {
        (cure.node_issuers, cure.node_issuers_version) = (issuers, node_issuers_version(state));
    }
    cure
}

fn origin<T>(request: &Request<T>) -> Result<Provenance, Status> {
    request
        .extensions()
        .get::<Provenance>()
        .cloned()
        .ok_or_else(|| Status::internal("a request without its origin"))
}

/// The request id is filled in by the edge, which knows it.
pub fn status(failure: &Failure) -> Status {
    status_with(failure, "")
}

/// For what ends a stream: the edge, which fills in the id elsewhere, sees only its beginning.
fn status_with(failure: &Failure, request_id: &str) -> Status {
    let mut status = Status::from(failure.detail(request_id));
    if let Some(seconds) = failure.retry_after {
        status.metadata_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    status
}

/// A refusal as a whole gRPC answer, for the edge.
pub fn refusal(failure: &Failure) -> Response<Body> {
    let mut response = status(failure).into_http::<Body>();
    response.extensions_mut().insert(FailureCode(failure.code));
    response
}

/// Marks an answer that carries one of our codes, so that the edge can limit and count it. A failure without
/// one comes from the framing below the door: what was sent is not a message of ours.
pub fn marked(path: &str, mut response: Response<Body>) -> Response<Body> {
    let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
    if let Some(code) = header(header::CODE).and_then(code::Code::of) {
        response.extensions_mut().insert(FailureCode(code));
        return response;
    }
    match header("grpc-status").and_then(|number| number.parse().ok()).map(tonic::Code::from_i32) {
        None | Some(tonic::Code::Ok) => response,
        Some(tonic::Code::OutOfRange) => doors::refusal(
            path,
            &Failure::new(code::TOO_LARGE, "the message is larger than the method takes"),
        ),
        Some(tonic::Code::Unimplemented) => {
            doors::refusal(path, &Failure::new(code::METHOD_NOT_ALLOWED, "this service has no such method"))
        }
        Some(_) => doors::refusal(
            path,
            &Failure::new(code::BAD_REQUEST, "this is not a message that the method takes"),
        ),
    }
}
