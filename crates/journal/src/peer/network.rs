//! What openraft sees of other replicas.

use super::check::Known;
use super::link::{Link, LinkError};
use super::roster::Roster;
use super::wire::{PeerReply, PeerRequest};
use crate::raft::{TypeConfig, Vote};
use lifecycle::names::ReplicaId;
use openraft::error::{Fatal, RPCError, RaftError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{BasicNode, LogId, OptionalSend, Snapshot};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// How long one that cannot be reached is left alone.
const PAUSE: Duration = Duration::from_millis(200);

pub struct PeerNetwork {
    pub roster: Arc<Roster>,
}

pub struct PeerClient {
    /// Made when it is needed. For each question whether a quorum still follows it, openraft makes a client that sends one empty
    /// append and is dropped: these share a link, or each would cost a TLS handshake.
    own: Option<Link>,
    has_appended: bool,
    roster: Arc<Roster>,
    replica: ReplicaId,
}

impl RaftNetworkFactory<TypeConfig> for PeerNetwork {
    type Network = PeerClient;

    async fn new_client(&mut self, target: u64, _node: &BasicNode) -> PeerClient {
        let replica = ReplicaId(target);
        PeerClient { own: None, has_appended: false, roster: self.roster.clone(), replica }
    }
}

fn unreachable(error: &LinkError) -> Unreachable {
    Unreachable::new(error)
}

impl PeerClient {
    fn link(&mut self) -> &Link {
        self.own.get_or_insert_with(|| Link::new(self.replica, self.roster.clone()))
    }

    /// What an answer is checked by. Since it was asked this replica may have stood again, and the other one may have voted for it.
    fn known(&self, asked: Vote) -> Known {
        let vote = self.roster.vote().unwrap_or(asked);
        Known { own: self.roster.identity().replica.0, vote, committed: None }
    }

    fn untrue(&self, why: &'static str) -> LinkError {
        tracing::warn!(replica = %self.replica, why, "an answer of another replica was not taken");
        LinkError { replica: self.replica, why: why.to_owned(), sent: true }
    }

    fn unexpected(&self, reply: &PeerReply) -> LinkError {
        let why = match reply {
            PeerReply::Failed { why } => why.clone(),
            _ => "it answered something else".to_owned(),
        };
        LinkError { replica: self.replica, why, sent: true }
    }
}

impl RaftNetwork<TypeConfig> for PeerClient {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, RPCError<u64, BasicNode, RaftError<u64>>> {
        // What is committed and acknowledged is never taken back.
        let last: Option<LogId<u64>> = rpc.entries.last().map(|entry| entry.log_id).or(rpc.prev_log_id);
        let last = last.min(rpc.leader_commit);
        let (asked, sent) =
            (rpc.vote, (rpc.prev_log_id, rpc.entries.last().map(|entry| entry.log_id).or(rpc.prev_log_id)));
        let shares = rpc.entries.is_empty() && !std::mem::replace(&mut self.has_appended, true);
        let link = if shares { self.roster.quorum_link(self.replica) } else { self.link().clone() };
        match link.ask(PeerRequest::Append(rpc)).await {
            Ok(PeerReply::Append(reply)) => {
                let checked = self.known(asked).check_appended(&asked, sent, &reply);
                checked.map_err(|why| unreachable(&self.untrue(why)))?;
                if let (AppendEntriesResponse::Success, Some(last)) = (&reply, last) {
                    self.roster.reached(self.replica, last.index);
                }
                Ok(reply)
            }
            Ok(other) => Err(unreachable(&self.unexpected(&other)).into()),
            Err(error) => Err(unreachable(&error).into()),
        }
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<u64>,
        _option: RPCOption,
    ) -> Result<VoteResponse<u64>, RPCError<u64, BasicNode, RaftError<u64>>> {
        let asked = rpc.vote;
        match self.roster.vote_link(self.replica).ask(PeerRequest::Vote(rpc)).await {
            Ok(PeerReply::Vote(reply)) => {
                let checked = self.known(asked).check_voted(&asked, &reply);
                checked.map_err(|why| unreachable(&self.untrue(why)))?;
                Ok(reply)
            }
            Ok(other) => Err(unreachable(&self.unexpected(&other)).into()),
            Err(error) => Err(unreachable(&error).into()),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot<TypeConfig>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<u64>, StreamingError<TypeConfig, Fatal<u64>>> {
        let path = snapshot.snapshot.path;
        let length = match tokio::fs::metadata(&path).await {
            Ok(found) => found.len(),
            Err(error) => return Err(Unreachable::new(&error).into()),
        };
        tracing::info!(replica = %self.replica, bytes = length, "sending a snapshot");
        let request = PeerRequest::Snapshot { vote, meta: snapshot.meta, length };
        let link = self.link().clone();
        let replied = tokio::select! {
            replied = link.ask_with_file(request, path) => replied,
            closed = cancel => return Err(closed.into()),
        };
        match replied {
            Ok(PeerReply::Snapshot { vote: answered }) => {
                let checked = self.known(vote).answer_vote(&vote, &answered);
                checked.map_err(|why| unreachable(&self.untrue(why)))?;
                Ok(SnapshotResponse::new(answered))
            }
            Ok(other) => Err(unreachable(&self.unexpected(&other)).into()),
            Err(error) => Err(unreachable(&error).into()),
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(PAUSE))
    }
}
