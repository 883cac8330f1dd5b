//! Who reads a configuration: the node whose certificate it is, its own configuration and no other.

use super::enrollment::arrival;
use crate::edge::authenticate::{self, ConnectionPeer};
use crate::edge::node_peer::ShownIdentity;
use crate::fleet::live::living;
use crate::http::failure::Failure;
use crate::process::app::{App, Provenance};
use api::code;
use journal::View;
use lifecycle::names::NodeId;
use lifecycle::registry::Node;
use std::sync::Arc;
use tonic::Request;

#[derive(Clone)]
pub struct ConfigReader {
    pub id: NodeId,
    pub shown: ShownIdentity,
    pub peer: ConnectionPeer,
    pub origin: Provenance,
}

impl ConfigReader {
    /// The node at the other end, if it asks for itself.
    pub async fn of<T>(app: &App, request: &Request<T>, named: &str) -> Result<Self, Failure> {
        let (peer, origin) = arrival(request)?;
        let (id, shown) = authenticate::node(app, &peer).await?;
        if named != id.as_str() {
            return Err(Failure::new(
                code::NOT_YOUR_NODE,
                "the client certificate belongs to another node than node_id names",
            ));
        }
        Ok(Self { id, shown, peer, origin })
    }

    /// The first request with a certificate confirms it, or lets it take over.
    pub async fn contact(&self, app: &App) -> Result<Arc<View>, Failure> {
        authenticate::contact(app, &self.origin, &self.id, &self.shown).await
    }

    /// The node, if the vCluster that it names is the one that it is in. Whether another one exists is not said.
    pub fn node(&self, view: &View, vcluster: &str) -> Result<Arc<Node>, Failure> {
        let node = living(&view.state, &self.id)?;
        let own = node.vcluster.as_ref().is_some_and(|own| own.as_str() == vcluster);
        if own || vcluster.is_empty() {
            return Ok(node);
        }
        Err(Failure::new(code::NOT_YOUR_VCLUSTER, "the node is not in the vCluster that vcluster_id names"))
    }

    /// Who reads nothing loses the connection: what HTTP/2 holds for it cannot be taken back otherwise.
    pub fn leave(&self, failure: &Failure) {
        if failure.code == code::TOO_SLOW
            && let Some(keepalive) = &self.peer.keepalive
        {
            keepalive.give_up();
        }
    }

    pub fn request_id(&self) -> String {
        self.origin.request_id.as_ref().map(ToString::to_string).unwrap_or_default()
    }
}
