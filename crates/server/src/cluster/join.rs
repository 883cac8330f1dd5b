//! Letting a replica join: token, key-encryption key, request; then its record and its certificate in one command.

use super::{announce, peer_address};
use crate::ca::hsm;
use crate::ca::log_key;
use crate::http::failure::Failure;
use crate::process::app::{App, Provenance};
use crate::process::chance;
use api::code;
use api::rest::cluster::{JoinClusterRequest, JoinedCluster, ReplicaAddress};
use client::ServerUrl;
use lifecycle::names::{ReplicaId, SpiffeId};
use lifecycle::registry::{Actor, Command, IssuerKind, IssuerState, JoinReplica, Rejection, check_join};
use pki::replica_cert::sign_replica;

/// Others may have joined in between.
const TRIES: usize = 8;
const URLS: usize = 8;
const TEXT: usize = 256;

pub async fn join(
    app: &App,
    origin: &Provenance,
    mut request: JoinClusterRequest,
) -> Result<JoinedCluster, Failure> {
    check_shape(&request)?;
    request.peer = peer_address::one_spelling(&request.peer);
    let hash = pki::digest::secret_hash(request.token.reveal().as_bytes());
    super::caught_up(app).await;
    check_join(&app.view().state, &hash, &request.peer).map_err(refused)?;
    let kek = app.ca.keys.kek();
    if request.kek_id != kek.id() {
        return Err(Failure::new(code::KEK_WRONG, "the key-encryption key is not the one of this domain"));
    }
    let csr = pki::csr::read(request.csr_pem.as_bytes())
        .map_err(|error| Failure::new(code::CSR_INVALID, error.to_string()))?;
    let (dir, failed) = (&app.cluster.dir, "the key of the log could not be read");
    let sealed =
        journal::read_small(&dir.keys(log_key::FILE)).map_err(|error| Failure::internal(failed, &error))?;
    for _ in 0..TRIES {
        let (view, at) = (app.view(), app.now());
        let domain = view.state.domain.as_ref().ok_or(Rejection::NotInitialized)?;
        // Asked with the view that gives the id: one that joins in between makes the id stale.
        peer_address::check_free(&view.state, &request.peer, None).map_err(refused)?;
        let replica = ReplicaId(view.state.last_replica.saturating_add(1));
        let issuer = app.ca.keys.server_issuer(&view.state)?;
        let serial = chance::serial(at)?;
        let signed = hsm::signed(app, &issuer, "a replica's certificate could not be signed", || {
            sign_replica(&issuer, &csr.spki, &domain.name, replica, serial, at)
        })?;
        let subject = SpiffeId::replica(&domain.name, replica);
        let certificate = announce::issued(signed, subject, &csr.spki, issuer.id(), at);
        let join = JoinReplica {
            hash,
            replica,
            peer: request.peer.clone(),
            urls: request.urls.clone(),
            certificate: certificate.clone(),
        };
        let envelope = app.envelope(Actor::Stranger, origin, Command::JoinReplica(join))?;
        let committed = app.propose(envelope).await?;
        match committed.answer {
            Ok(_) => {}
            Err(Rejection::PreparedStale) => continue,
            Err(rejection) => return Err(refused(rejection)),
        }
        let state = &committed.view.state;
        let domain = state.domain.as_ref().ok_or(Rejection::NotInitialized)?;
        let members = state.members();
        let chain = announce::chain(state, &certificate);
        tracing::info!(%replica, peer = request.peer, version = request.version, "a replica joined");
        return Ok(JoinedCluster {
            replica_id: replica.to_string(),
            domain: domain.name.to_string(),
            cluster_id: domain.cluster.to_string(),
            epoch: state.epoch,
            cert_pem: pki::pem::chain_pem(chain.iter().map(|der| der.as_ref())),
            ca_pem: pki::pem::chain_pem(state.server_trust()),
            log_key_sealed: hex::encode(sealed),
            kek_id: kek.id().to_owned(),
            replicas: members
                .map(|member| ReplicaAddress { replica_id: member.id.to_string(), peer: member.peer.clone() })
                .collect(),
            needs_hsm: state
                .domain_issuers_in(IssuerState::Active)
                .any(|issuer| issuer.kind == IssuerKind::Pkcs11),
        });
    }
    Err(Failure::new(code::OVERLOADED, "too many replicas join at once").retry_after(1))
}

/// Tokens for replicas are made by another command than those for nodes.
fn refused(rejection: Rejection) -> Failure {
    let failure = Failure::from(rejection);
    if failure.code.word.starts_with("token_") {
        return failure.remedy("create a token for a replica, and use it once: `enlist cluster token`");
    }
    failure
}

fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn check_shape(request: &JoinClusterRequest) -> Result<(), Failure> {
    let bad = |what: &str| Err(Failure::new(code::BAD_REQUEST, what.to_owned()));
    // Hosts and operators are told the URLs, and other replicas the address: they are read as those will read them.
    let is_url = |url: &String| url.len() <= TEXT && is_plain(url) && ServerUrl::parse(url).is_ok();
    let is_address = request.peer.len() <= TEXT
        && is_plain(&request.peer)
        && request
            .peer
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.parse::<u16>().is_ok_and(|port| port > 0))
        && ServerUrl::parse(&format!("https://{}", request.peer)).is_ok();
    if !is_address {
        return bad("peer must be HOST:PORT");
    }
    if request.urls.len() > URLS || !request.urls.iter().all(is_url) {
        return bad("urls must be at most 8 https:// URLs");
    }
    if request.version.len() > TEXT || request.token.reveal().len() > TEXT {
        return bad("a field is too long");
    }
    Ok(())
}
