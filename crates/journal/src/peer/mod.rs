//! Between replicas: connections that prove themselves, and what is asked over them.
//!
//! Whoever opens the journal brings authenticated connections ([`PeerConnector`]); what travels on them is here. `wire` has the
//! frames and messages, `check` what replication messages must hold, `handshake` the proof that both ends hold the key of this log, `link` one outgoing connection, `network`
//! what openraft sees of them, `serve` the other end, `roster` who is known to be there,
//! `starts` how a copy of a directory is told from the directory, `marks` what is remembered of the others for that, `forward` how a follower reaches the
//! leader, `trail` how a new replica gets the audit lines from before its first snapshot.

mod check;
mod forward;
mod handshake;
mod link;
mod marks;
mod network;
mod roster;
mod serve;
mod starts;
mod trail;
mod wire;

pub use forward::LeaderLinks;
pub use link::Link;
pub use marks::MarkFile;
pub use network::PeerNetwork;
pub use roster::{PeerStanding, Roster, RosterParts};
pub use serve::{PeerAnswers, Served};
pub use starts::Starts;
pub use trail::copy_missing;
pub use wire::{PeerRefusal, PeerReply, PeerRequest, ProposalFate, ReplicaReport};

use lifecycle::names::{Fingerprint, IssuerId, ReplicaId, Serial};
use std::future::Future;
use std::pin::Pin;
use tokio::io::{AsyncRead, AsyncWrite};

/// Bytes both ways.
pub trait PeerStream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> PeerStream for T {}

/// A connection whose other end has shown a replica's certificate.
pub struct PeerConnection {
    pub stream: Box<dyn PeerStream>,
    /// Who the certificate says it is.
    pub replica: ReplicaId,
    pub serial: Serial,
    pub fingerprint: Fingerprint,
    /// The issuer on record here that signed its certificate, and the serials of the certificates that were shown above it.
    pub issuer: Option<IssuerId>,
    pub above: Vec<Serial>,
    /// What only the two ends of this connection know: a proof is bound to it, so that it cannot be relayed.
    pub binding: [u8; 32],
}

pub type BoxedFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Makes connections to other replicas.
pub trait PeerConnector: Send + Sync + 'static {
    /// To the replica at this address (`HOST:PORT`); whoever answers must show that replica's certificate.
    fn connect(&self, replica: ReplicaId, address: String) -> BoxedFuture<std::io::Result<PeerConnection>>;
}
