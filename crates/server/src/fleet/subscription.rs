//! A stream on which only the control plane speaks, such as pact's: its host is there as long as its connection answers
//! PINGs, and it is woken when something about its node changes.

use crate::edge::authenticate::{self, ConnectionPeer};
use crate::edge::node_peer::ShownIdentity;
use crate::fleet::live::living;
use crate::fleet::presence::{Stream, StreamOpening};
use crate::http::failure::Failure;
use crate::process::app::{App, Provenance};
use api::code;
use lifecycle::names::{Label, NodeId};
use std::sync::Arc;

/// One open subscription; dropping it closes it.
pub struct Subscription {
    app: Arc<App>,
    node: NodeId,
    stream: Arc<Stream>,
}

impl Subscription {
    /// Takes a place among the node's streams, and only then is the certificate in use: an inactive node is active again.
    /// `instance` stands for the start of an agent that does not say which it is.
    pub async fn open(
        app: &Arc<App>,
        peer: &ConnectionPeer,
        origin: &Provenance,
        (id, shown): (&NodeId, &ShownIdentity),
        instance: &str,
    ) -> Result<Self, Failure> {
        let view = app.view();
        let node = living(&view.state, id)?;
        let instance = Label::parse(instance).map_err(|error| Failure::internal("no label", &error))?;
        let opening = StreamOpening {
            node: id,
            shown,
            source: origin.source,
            instance,
            agent_version: None,
            bundle: None,
            recovery_kept: None,
            remembered: &node.instances,
            keepalive: peer.keepalive.clone(),
            listens: true,
            tap: None,
        };
        let stream = app.fleet.presence.open(opening, app.now()).map_err(|_| {
            Failure::new(code::TOO_MANY_STREAMS, "this node has four live streams already").retry_after(2)
        })?;
        let subscription = Self { app: app.clone(), node: id.clone(), stream };
        authenticate::contact(app, origin, id, shown).await?;
        Ok(subscription)
    }

    /// Returns when something about the node may have changed; fails when the control plane stops.
    pub async fn changed(&self) -> Result<(), Failure> {
        tokio::select! {
            () = self.stream.wake.notified() => Ok(()),
            () = self.app.stopped() => {
                Err(Failure::new(code::UNAVAILABLE, "the control plane is shutting down"))
            }
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.app.fleet.presence.close(&self.node, &self.stream);
    }
}
