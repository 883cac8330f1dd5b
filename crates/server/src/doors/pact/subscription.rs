//! SubscribeConfigUpdates: what changes in a node's configuration, as it changes. Nothing is queued here: what is new after the
//! last message follows from the registry, so one that was lost with its stream is found again by the next. The node says nothing on
//! this stream; that its connection answers is its sign of life.

use super::boot_config::sent;
use super::config_frames::{self, FrameParts, NODE_CHANGE, VCLUSTER_CHANGE};
use super::config_reader::ConfigReader;
use crate::fleet::live::living;
use crate::fleet::subscription::Subscription;
use crate::http::failure::Failure;
use crate::process::app::App;
use api::code;
use api::doors::pact::stream::SubscribeRequest;
use bytes::Bytes;
use journal::View;
use lifecycle::registry::{ConfigNews, Node};
use std::sync::Arc;
use tokio::sync::mpsc;
use tonic::Request;

/// The document's agents do not say which start of theirs this is, so all are taken for one.
const INSTANCE: &str = "pact";

pub struct ConfigFollower {
    app: Arc<App>,
    pub reader: ConfigReader,
    subscription: Subscription,
    /// The sequence of the last change that the node has.
    received: u64,
    /// It has been told what it missed, and follows what happens from then on.
    followed: bool,
}

pub async fn open(app: &Arc<App>, request: Request<SubscribeRequest>) -> Result<ConfigFollower, Failure> {
    let reader = ConfigReader::of(app, &request, &request.get_ref().node_id).await?;
    let asked = request.into_inner();
    let view = app.view();
    reader.node(&view, &asked.vcluster_id)?;
    let newest = view.state.config_sequence;
    if asked.from_sequence > newest {
        return Err(Failure::new(
            code::OUT_OF_RANGE,
            format!("from_sequence is in the future: the newest change is {newest}"),
        ));
    }
    let who = (&reader.id, &reader.shown);
    let subscription = Subscription::open(app, &reader.peer, &reader.origin, who, INSTANCE).await?;
    Ok(ConfigFollower {
        app: app.clone(),
        reader,
        subscription,
        received: asked.from_sequence,
        followed: false,
    })
}

impl ConfigFollower {
    /// Sends until the node leaves, or must.
    pub async fn run(mut self, send: &mpsc::Sender<Bytes>) -> Result<(), Failure> {
        loop {
            let news = self.news(&self.app.view())?;
            sent(send, news).await?;
            tokio::select! {
                changed = self.subscription.changed() => changed?,
                () = send.closed() => return Ok(()),
            }
        }
    }

    /// What the node has not received. In quarantine it is told nothing, and all of it afterwards.
    fn news(&mut self, view: &View) -> Result<Vec<FrameParts>, Failure> {
        let node = living(&view.state, &self.reader.id)?;
        if node.quarantined {
            return Ok(Vec::new());
        }
        let followed = std::mem::replace(&mut self.followed, true);
        if view.state.config_mark(&node) <= self.received {
            return Ok(Vec::new());
        }
        let mut news = view.state.config_news(&node, self.received);
        let joined = news.iter().rev().find_map(|news| match news {
            ConfigNews::Moved(moved) => Some(moved.sequence),
            ConfigNews::Base(_) | ConfigNews::Own(_) => None,
        });
        // A document of a vCluster before the word that the node is in it would be taken for one of the vCluster before.
        let early = |news: &ConfigNews<'_>| match news {
            ConfigNews::Base(change) => Some(change.sequence) < joined,
            ConfigNews::Own(_) | ConfigNews::Moved(_) => false,
        };
        news.retain(|news| !(followed && early(news)));
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
