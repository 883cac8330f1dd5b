//! The way to other replicas.
//!
//! A cluster has one replica so far, and openraft never asks a cluster of one for a connection. Joining
//! replicas, and with it the transport between them, comes later; until then every other replica is
//! unreachable, and this says so.

use crate::raft::{TypeConfig, Vote};
use openraft::error::{Fatal, RPCError, RaftError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{BasicNode, OptionalSend, Snapshot};
use std::future::Future;

pub struct Replicas;

pub struct Replica {
    id: u64,
}

#[derive(Debug, thiserror::Error)]
#[error("replica {id} cannot be reached: this version runs one replica")]
struct NoTransport {
    id: u64,
}

impl Replica {
    fn unreachable(&self) -> Unreachable {
        Unreachable::new(&NoTransport { id: self.id })
    }
}

impl RaftNetworkFactory<TypeConfig> for Replicas {
    type Network = Replica;

    async fn new_client(&mut self, target: u64, _node: &BasicNode) -> Replica {
        Replica { id: target }
    }
}

impl RaftNetwork<TypeConfig> for Replica {
    async fn append_entries(
        &mut self,
        _rpc: AppendEntriesRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, RPCError<u64, BasicNode, RaftError<u64>>> {
        Err(self.unreachable().into())
    }

    async fn vote(
        &mut self,
        _rpc: VoteRequest<u64>,
        _option: RPCOption,
    ) -> Result<VoteResponse<u64>, RPCError<u64, BasicNode, RaftError<u64>>> {
        Err(self.unreachable().into())
    }

    async fn full_snapshot(
        &mut self,
        _vote: Vote,
        _snapshot: Snapshot<TypeConfig>,
        _cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<u64>, StreamingError<TypeConfig, Fatal<u64>>> {
        Err(self.unreachable().into())
    }
}
