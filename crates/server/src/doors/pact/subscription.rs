//! SubscribeConfigUpdates: what changes in a node's configuration, as it changes. Nothing is queued here: what is new after the
//! last message follows from the registry, so one that was lost with its stream is found again by the next. The node says nothing on
//! this stream; that its connection answers is its sign of life.

use super::boot_config::sent;
use super::config_frames::{self, FrameParts, NODE_CHANGE, VCLUSTER_CHANGE};
use super::config_reader::ConfigReader;
use crate::fleet::live::living;
use crate::fleet::presence::{Stream, StreamOpening};
use crate::http::failure::Failure;
use crate::process::app::App;
use api::code;
use api::doors::pact::stream::SubscribeRequest;
use bytes::Bytes;
use journal::View;
use lifecycle::names::Label;
use lifecycle::registry::{ConfigNews, Node};
use std::sync::Arc;
use tokio::sync::mpsc;
use tonic::Request;

/// The document's agents do not say which start of theirs this is, so all are taken for one.
const INSTANCE: &str = "pact";

pub struct Subscription {
    app: Arc<App>,
    pub reader: ConfigReader,
    stream: Arc<Stream>,
    /// The sequence of the last change that the node has.
    received: u64,
}

/// Takes a place among the node's streams.
pub async fn open(app: &Arc<App>, request: Request<SubscribeRequest>) -> Result<Subscription, Failure> {
    let reader = ConfigReader::of(app, &request, &request.get_ref().node_id).await?;
    let asked = request.into_inner();
    let view = app.view();
    let node = reader.node(&view, &asked.vcluster_id)?;
    let newest = view.state.config_sequence;
    if asked.from_sequence > newest {
        return Err(Failure::new(
            code::OUT_OF_RANGE,
            format!("from_sequence is in the future: the newest change is {newest}"),
        ));
    }
    let instance = Label::parse(INSTANCE).map_err(|error| Failure::internal("no label", &error))?;
    let opening = StreamOpening {
        node: &reader.id,
        serial: &reader.serial,
        source: reader.origin.source,
        instance,
        agent_version: None,
        bundle: node.bundle,
        recovery_kept: None,
        remembered: &node.instances,
        keepalive: reader.peer.keepalive.clone(),
    };
    let opened = app.fleet.presence.open(opening, app.now());
    let stream = opened
        .map_err(|_| Failure::new(code::TOO_MANY_STREAMS, "this node has four live streams already"))?;
    let subscription = Subscription { app: app.clone(), reader, stream, received: asked.from_sequence };
    // There is a place for the stream; only now is the certificate in use.
    subscription.reader.contact(app).await?;
    Ok(subscription)
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.app.fleet.presence.close(&self.reader.id, &self.stream);
    }
}

impl Subscription {
    /// Sends until the node leaves, or must.
    pub async fn run(mut self, send: &mpsc::Sender<Bytes>) -> Result<(), Failure> {
        loop {
            sent(send, self.news(&self.app.view())?).await?;
            let wake = self.stream.clone();
            tokio::select! {
                () = wake.wake.notified() => {}
                () = send.closed() => return Ok(()),
                () = self.app.stopped() => {
                    return Err(Failure::new(code::UNAVAILABLE, "the control plane is shutting down"));
                }
            }
        }
    }

    /// What the node has not received. In quarantine it is told nothing, and all of it afterwards.
    fn news(&mut self, view: &View) -> Result<Vec<FrameParts>, Failure> {
        let node = living(&view.state, &self.reader.id)?;
        if node.quarantined || view.state.config_mark(&node) <= self.received {
            return Ok(Vec::new());
        }
        let news = view.state.config_news(&node, self.received);
        self.received = news.last().map_or(self.received, ConfigNews::sequence);
        Ok(news.iter().map(|news| message(&node, news)).collect())
    }
}

fn message(node: &Node, news: &ConfigNews<'_>) -> FrameParts {
    let (field, document) = match news {
        ConfigNews::Base(change) => (VCLUSTER_CHANGE, config_frames::shared(&change.document.text)),
        ConfigNews::Own(change) => (NODE_CHANGE, config_frames::shared(&change.document.text)),
        ConfigNews::Moved(assignment) => {
            let vcluster = assignment.vcluster.as_ref().map(|vcluster| vcluster.as_str()).unwrap_or_default();
            let moved = serde_json::json!({ "node_id": node.id.as_str(), "vcluster_id": vcluster });
            (NODE_CHANGE, Bytes::from(moved.to_string()))
        }
    };
    config_frames::update(news.sequence(), news.at(), field, document)
}
