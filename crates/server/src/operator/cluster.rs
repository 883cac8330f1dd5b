//! `/v1/cluster`: the replicas, tokens for further ones, joining and removing.

use crate::cluster::{ANSWER, QUORUM_LOST, announce, join as joining, replica_id, status};
use crate::edge::authenticate;
use crate::http::extract::{Caller, Json, Segment, duration};
use crate::http::failure::Failure;
use crate::process::app::{App, Provenance};
use crate::process::chance;
use api::code;
use api::rest::cluster::{
    Cluster, CreateReplicaTokenRequest, JoinClusterRequest, JoinedCluster, MintedReplicaToken,
    REPLICA_TOKEN_PREFIX, RemoveReplicaRequest,
};
use api::rest::secret::Secret;
use axum::Extension;
use axum::extract::State;
use http::StatusCode;
use lifecycle::names::{ReplicaId, TokenId};
use lifecycle::registry::{Act, Command, Confirmation, Rejection};
use std::sync::Arc;
use std::time::Duration;

/// How long a removal waits until replication does without the replica, and how often it looks.
const LEFT_OUT: Duration = Duration::from_secs(10);
const LEFT_OUT_POLL: Duration = Duration::from_millis(50);

pub async fn show(State(app): State<Arc<App>>, caller: Caller) -> Result<axum::Json<Cluster>, Failure> {
    authenticate::reader(&app, &caller.actor, Act::ReadCluster)?;
    Ok(axum::Json(status::cluster(&app)))
}

pub async fn create_token(
    State(app): State<Arc<App>>,
    caller: Caller,
    Json(request): Json<CreateReplicaTokenRequest>,
) -> Result<(StatusCode, axum::Json<MintedReplicaToken>), Failure> {
    authenticate::reader(&app, &caller.actor, Act::ManageCluster)?;
    let ttl = duration("expires", request.expires.as_deref())?;
    let ttl = ttl.unwrap_or(app.view().state.policy.token_default_ttl);
    app.serve_peers().map_err(|error| {
        Failure::new(code::UNAVAILABLE, format!("the port between replicas cannot be served: {error}"))
            .remedy("set peer_listen in enlist.toml to a free address, then start the control plane again")
    })?;
    announce::ensure(&app).await?;
    let value = chance::secret(REPLICA_TOKEN_PREFIX)?;
    let token = TokenId(chance::ulid(app.now())?);
    let hash = pki::digest::secret_hash(value.as_bytes());
    let command = Command::CreateReplicaToken { token, hash, ttl };
    let (_, view) = app.commit(caller.actor, &caller.origin, command).await?;
    let record = view.state.replica_tokens.get(&token).ok_or(Rejection::TokenInvalid)?;
    let ca_pin = view.state.active_root().map(|root| root.fingerprint.pin()).unwrap_or_default();
    let peer_url = app.own_urls().into_iter().next().unwrap_or_default();
    let minted = MintedReplicaToken {
        token_id: token.to_string(),
        expires_at: record.expires_at.to_string(),
        join_command: Secret::new(join_command(&peer_url, &value, &ca_pin)),
        token: Secret::new(value.as_str()),
        ca_pin,
        peer_url,
    };
    Ok((StatusCode::CREATED, axum::Json(minted)))
}

/// The token goes through standard input, so that it does not show among the machine's processes.
fn join_command(peer_url: &str, token: &str, ca_pin: &str) -> String {
    format!(
        "echo {token} | enlist server join --dir DIR --peer {peer_url} --ca-pin {ca_pin} --kek file:PATH --name HOST --token -"
    )
}

pub async fn join(
    State(app): State<Arc<App>>,
    Extension(origin): Extension<Provenance>,
    Json(request): Json<JoinClusterRequest>,
) -> Result<axum::Json<JoinedCluster>, Failure> {
    joining::join(&app, &origin, request).await.map(axum::Json)
}

pub async fn remove(
    State(app): State<Arc<App>>,
    caller: Caller,
    Segment(id): Segment,
    Json(request): Json<RemoveReplicaRequest>,
) -> Result<axum::Json<Cluster>, Failure> {
    authenticate::reader(&app, &caller.actor, Act::ManageCluster)?;
    let replica = replica_id(&id)?;
    if app.journal.is_alone() && replica == app.journal.replica() && is_the_only_one(&app, replica) {
        let message = format!("replica {replica} is the only one: it cannot be removed");
        let remedy = "to end the domain, stop the control plane and delete its directory; to replace the replica, let another one join first \
                      (`enlist cluster token`)";
        return Err(Failure::new(code::WOULD_LOSE_MAJORITY, message).remedy(remedy));
    }
    if !request.force {
        keeps_majority(&app, replica).await?;
    }
    let command = Command::RemoveReplica {
        replica,
        confirm: Confirmation::Asked(request.confirm),
        forced: request.force,
    };
    app.commit(caller.actor, &caller.origin, command).await?;
    until_left_out(&app, replica).await;
    Ok(axum::Json(status::cluster(&app)))
}

/// A domain that never was a cluster has no record of its replica.
fn is_the_only_one(app: &App, replica: ReplicaId) -> bool {
    app.view().state.members().all(|member| member.id == replica)
}

/// Until replication does without it: before that it counts for the majority, and must not be stopped. The answer lists it as long
/// as it counts.
async fn until_left_out(app: &App, replica: ReplicaId) {
    let left_out = async {
        while app.journal.is_replicated(replica) && !learns_from_others(app, replica) {
            tokio::time::sleep(LEFT_OUT_POLL).await;
        }
    };
    // Without a majority it may take for ever; the leader goes on with it.
    let _ = tokio::time::timeout(LEFT_OUT, left_out).await;
}

/// The removed replica is sent nothing any more, its own removal from the membership included: that the others refuse it is how it
/// knows.
fn learns_from_others(app: &App, replica: ReplicaId) -> bool {
    replica == app.journal.replica() && app.journal.is_refused(journal::PeerRefusal::Removed)
}

/// Whether a majority of the voters that are left answers now: what was heard of them a moment ago says nothing of one that has just
/// ended. Whoever was removed before and still votes is not left. Two removals that are judged at the same moment are kept from losing
/// the majority together where they are carried out (`membership.rs`), which asks again.
async fn keeps_majority(app: &App, removed: ReplicaId) -> Result<(), Failure> {
    let (voters, _) = app.journal.membership();
    if !voters.contains(&removed.0) {
        return Ok(());
    }
    let (own, view) = (app.journal.replica(), app.view());
    let stays = |voter: &ReplicaId| *voter != removed && view.state.member(*voter).is_ok();
    let left: Vec<ReplicaId> = voters.into_iter().map(ReplicaId).filter(stays).collect();
    let answered = app.journal.ask_now(left.iter().copied().filter(|id| *id != own), ANSWER).await;
    let silent: Vec<ReplicaId> =
        left.iter().copied().filter(|id| *id != own && !answered.contains_key(id)).collect();
    if left.len() - silent.len() > left.len() / 2 {
        return Ok(());
    }
    let refused =
        Failure { message: without_majority(removed, &left, &silent), ..Rejection::WouldLoseMajority.into() };
    // A removal is a change, and needs the majority that there is now, by force too.
    if app.journal.quorum_age() > QUORUM_LOST {
        return Err(refused.remedy(
            "bring back the other replicas first (`enlist cluster status` shows which are unreachable): without a majority nothing can be changed, not even by --force",
        ));
    }
    Err(refused)
}

/// Who did not answer, so that the reader knows which one to start.
fn without_majority(removed: ReplicaId, left: &[ReplicaId], silent: &[ReplicaId]) -> String {
    let names: Vec<String> = silent.iter().map(ToString::to_string).collect();
    let (left, answered, names) = (left.len(), left.len() - silent.len(), names.join(", "));
    format!(
        "without replica {removed} there would be no majority: of the {left} voters that are left, {answered} answered just now; \
         no answer from: {names}"
    )
}
