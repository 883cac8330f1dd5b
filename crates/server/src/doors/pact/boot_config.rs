//! `pact.stream.BootConfigService`. StreamBootConfig: a node's configuration as it is now, in pieces. The next piece is made when
//! there is room for it, and who reads none for a minute is let go.

use super::config_frames::{self, FrameParts};
use super::config_reader::ConfigReader;
use super::{status, subscription};
use crate::edge::authenticate::{self, ConnectionPeer};
use crate::edge::shared_frames::SharedFrames;
use crate::edge::stream_messages::StreamEnd;
use crate::fleet;
use crate::http::failure::Failure;
use crate::process::app::App;
use api::code;
use api::doors::pact::stream::{
    BootConfigRequest, BootConfigService, ConfigChunk, ConfigUpdate, SubscribeRequest,
};
use bytes::Bytes;
use lifecycle::names::SpiffePath;
use lifecycle::registry::{
    Documents, EMPTY_DOCUMENT, MAINTENANCE_DEFAULTS, Node, NodeConfig, Rejection, State,
};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tonic::{Request, Response, Status};

/// How long the reader may leave a piece untaken.
const PIECE_LIMIT: Duration = Duration::from_secs(60);
/// Parts of messages that may wait for the connection.
pub const BACKLOG: usize = 2;

pub struct Configurations {
    pub app: Arc<App>,
}

#[tonic::async_trait]
impl BootConfigService for Configurations {
    type StreamBootConfigStream = StreamEnd<ConfigChunk>;
    type SubscribeConfigUpdatesStream = StreamEnd<ConfigUpdate>;

    async fn stream_boot_config(
        &self,
        request: Request<BootConfigRequest>,
    ) -> Result<Response<Self::StreamBootConfigStream>, Status> {
        if let Some(answer) = self.bootstrapped(&request).await {
            return answer.map_err(|failure| status::status(&failure));
        }
        let (reader, frames) = self.asked(request).await.map_err(|failure| status::status(&failure))?;
        let (send, shared) = mpsc::channel(BACKLOG);
        let (end, ended) = StreamEnd::channel();
        tokio::spawn(async move {
            if let Err(failure) = sent(&send, frames).await {
                reader.leave(&failure);
                // Nobody may be reading any more.
                let _ = end.send(status::ended(&failure, &reader.request_id()));
            }
        });
        Ok(streamed(ended, shared))
    }

    async fn subscribe_config_updates(
        &self,
        request: Request<SubscribeRequest>,
    ) -> Result<Response<Self::SubscribeConfigUpdatesStream>, Status> {
        let opened = subscription::open(&self.app, request).await;
        let follower = opened.map_err(|failure| status::status(&failure))?;
        let (send, shared) = mpsc::channel(BACKLOG);
        let (end, ended) = StreamEnd::channel();
        tokio::spawn(async move {
            let reader = follower.reader.clone();
            if let Err(failure) = follower.run(&send).await {
                reader.leave(&failure);
                // Nobody may be reading any more.
                let _ = end.send(status::ended(&failure, &reader.request_id()));
            }
        });
        Ok(streamed(ended, shared))
    }
}

/// An answer whose messages are the shared ones; tonic's own stream only ends it.
fn streamed<T>(ended: StreamEnd<T>, shared: mpsc::Receiver<Bytes>) -> Response<StreamEnd<T>> {
    let mut response = Response::new(ended);
    response.extensions_mut().insert(SharedFrames::new(shared));
    response
}

/// Sends messages as the reader takes them.
pub async fn sent(
    send: &mpsc::Sender<Bytes>,
    messages: impl IntoIterator<Item = FrameParts>,
) -> Result<(), Failure> {
    for part in messages.into_iter().flatten().filter(|part| !part.is_empty()) {
        match tokio::time::timeout(PIECE_LIMIT, send.send(part)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Ok(()),
            Err(_) => return Err(Failure::new(code::TOO_SLOW, "the client does not read what is sent")),
        }
    }
    Ok(())
}

impl Configurations {
    /// A host that has no identity of its own yet: the base configuration that it names, and nothing that is said to a node alone.
    /// None for nodes.
    async fn bootstrapped(
        &self,
        request: &Request<BootConfigRequest>,
    ) -> Option<Result<Response<StreamEnd<ConfigChunk>>, Failure>> {
        let peer = request.extensions().get::<ConnectionPeer>()?;
        let spiffe = peer.certificate.as_ref()?.spiffe.as_ref()?;
        matches!(spiffe.path, SpiffePath::Bootstrap { .. }).then_some(())?;
        Some(self.boot_frames(peer, request.get_ref()).await.map(|frames| {
            let (send, shared) = mpsc::channel(BACKLOG);
            let (end, ended) = StreamEnd::channel();
            tokio::spawn(async move {
                if let Err(failure) = sent(&send, frames).await {
                    // Nobody may be reading any more.
                    let _ = end.send(status::ended(&failure, ""));
                }
            });
            streamed(ended, shared)
        }))
    }

    async fn boot_frames(
        &self,
        peer: &ConnectionPeer,
        asked: &BootConfigRequest,
    ) -> Result<Vec<FrameParts>, Failure> {
        authenticate::bootstrap(&self.app, peer).await?;
        let view = self.app.view();
        let config = fleet::boot_config::allowed(&view.state, &asked.vcluster_id)?;
        let version = config.base.version();
        let unset = if config.vcluster.is_some() { EMPTY_DOCUMENT } else { MAINTENANCE_DEFAULTS };
        let overlay = (asked.last_known_version != Some(version)).then(|| {
            let (document, checksum) = document(config.base, unset);
            let vcluster = config.vcluster.map(ToString::to_string).unwrap_or_default();
            config_frames::overlay(version, vcluster, document, checksum)
        });
        let complete = config_frames::complete(version, 0, self.app.now());
        Ok(overlay.into_iter().flatten().chain(std::iter::once(complete)).collect())
    }

    async fn asked(
        &self,
        request: Request<BootConfigRequest>,
    ) -> Result<(ConfigReader, impl Iterator<Item = FrameParts> + use<>), Failure> {
        let reader = ConfigReader::of(&self.app, &request, &request.get_ref().node_id).await?;
        let asked = request.into_inner();
        reader.node(&self.app.view(), &asked.vcluster_id)?;
        let view = reader.contact(&self.app).await?;
        let node = reader.node(&view, &asked.vcluster_id)?;
        if node.quarantined {
            return Err(Rejection::NodeQuarantined { node: node.id.clone() }.into());
        }
        let frames = self.frames(&view.state, &node, asked.last_known_version);
        Ok((reader, frames))
    }

    /// All of it, or that there is nothing new.
    fn frames(
        &self,
        state: &State,
        node: &Node,
        known: Option<u64>,
    ) -> impl Iterator<Item = FrameParts> + use<> {
        let NodeConfig { vcluster, base, own } = state.config_of(node);
        let news = known != Some(base.version());
        let overlay = news.then(|| {
            let unset = if vcluster.is_some() { EMPTY_DOCUMENT } else { MAINTENANCE_DEFAULTS };
            let (document, checksum) = document(base, unset);
            let vcluster = vcluster.map(ToString::to_string).unwrap_or_default();
            config_frames::overlay(base.version(), vcluster, document, checksum)
        });
        let delta = (news && !own.is_empty()).then(|| {
            let (document, checksum) = document(own, EMPTY_DOCUMENT);
            config_frames::delta(node.id.to_string(), own.version(), document, checksum)
        });
        let complete = config_frames::complete(base.version(), own.version(), self.app.now());
        overlay.into_iter().flatten().chain(delta).chain(std::iter::once(complete))
    }
}

/// The text of the newest document and its checksum, or of what stands for it before the first.
fn document(documents: &Documents, unset: &'static str) -> (Bytes, String) {
    match documents.current() {
        Some(change) => (config_frames::shared(&change.document.text), change.document.checksum.hex()),
        None => (Bytes::from_static(unset.as_bytes()), pki::digest::checksum(unset.as_bytes()).hex()),
    }
}
