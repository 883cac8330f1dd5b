//! Configuration on its way to connected hosts: whom a change wakes, and the messages that many of them get.
//!
//! Nothing is queued for a host that has nothing new to hear: what to send follows from the registry and from what the
//! stream has sent. A message that is the same for many is encoded once, and every stream sends the same bytes.

use crate::edge::shared_frames::{self, SharedFrames};
use crate::fleet::live::BACKLOG;
use crate::http::failure::Failure;
use crate::process::app::App;
use api::agent::{Config, LiveDown, live_down};
use api::code;
use bytes::Bytes;
use imbl::ordmap::DiffItem;
use lifecycle::names::VclusterId;
use lifecycle::registry::{
    BootConfig, Documents, EMPTY_DOCUMENT, MAINTENANCE_DEFAULTS, Node, NodeConfig, State,
};
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, PoisonError};
use tokio::sync::mpsc;

/// Encoded messages that are kept for the next stream that sends the same, and their bytes.
const KEPT: usize = 32;
const KEPT_BYTES: usize = 8 * 1024 * 1024;

/// What tells one message from all others: its form, whom it is for and the change that it tells of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageKey {
    pub form: &'static str,
    pub vcluster: Option<VclusterId>,
    pub sequence: u64,
}

/// Messages that were encoded lately, the newest last.
#[derive(Default)]
pub struct Configs {
    encoded: Mutex<VecDeque<(MessageKey, Bytes)>>,
}

impl Configs {
    /// The bytes of a message, made unless they are there.
    pub fn shared<M: prost::Message>(&self, key: &MessageKey, make: impl FnOnce() -> M) -> Bytes {
        let mut encoded = self.encoded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, bytes)) = encoded.iter().rev().find(|(known, _)| known == key) {
            return bytes.clone();
        }
        // While it is locked: thousands of streams that are woken together wait for the one that encodes.
        let bytes = shared_frames::frame(&make());
        encoded.push_back((key.clone(), bytes.clone()));
        while encoded.len() > KEPT || encoded.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() > KEPT_BYTES
        {
            encoded.pop_front();
        }
        bytes
    }
}

/// The way of shared messages into a stream.
pub struct SharedSender(mpsc::Sender<Bytes>);

impl SharedSender {
    /// And the mark by which the stream's answer finds them.
    pub fn new() -> (Self, SharedFrames) {
        let (sender, frames) = mpsc::channel(BACKLOG);
        (Self(sender), SharedFrames::new(frames))
    }

    /// The stream of a host that does not read what is sent ends.
    pub fn send(&self, message: Bytes) -> Result<(), Failure> {
        let unread = |_| Failure::new(code::TOO_SLOW, "the client does not read what is sent");
        self.0.try_send(message).map_err(unread)
    }
}

/// The newest document of a place, as it is sent.
pub struct SentDocument<'a> {
    pub version: u64,
    pub text: &'a str,
    /// SHA-256 of the text in hex.
    pub checksum: String,
}

impl<'a> SentDocument<'a> {
    /// Before the first document a vCluster has an empty one, and the domain's defaults are those of maintenance mode.
    pub fn base(config: &NodeConfig<'a>) -> Self {
        Self::of(config.vcluster.is_some(), config.base)
    }

    /// The same for a host that is no node yet.
    pub fn boot(config: &BootConfig<'a>) -> Self {
        Self::of(config.vcluster.is_some(), config.base)
    }

    fn of(in_vcluster: bool, base: &'a Documents) -> Self {
        let unset = if in_vcluster { EMPTY_DOCUMENT } else { MAINTENANCE_DEFAULTS };
        Self::newest(base).unwrap_or_else(|| Self {
            version: 0,
            text: unset,
            checksum: pki::digest::checksum(unset.as_bytes()).hex(),
        })
    }

    pub fn newest(documents: &'a Documents) -> Option<Self> {
        let change = documents.current()?;
        let (text, checksum) = (&*change.document.text, change.document.checksum.hex());
        Some(Self { version: change.version, text, checksum })
    }
}

/// The whole configuration of a node as `enlist.agent.v1` sends it. All nodes of a vCluster share it that have no
/// document of their own and were there when it last changed.
pub fn message(app: &App, state: &State, node: &Node) -> Bytes {
    let config = state.config_of(node);
    let sequence = state.config_mark(node);
    let make = || {
        let (base, own) = (SentDocument::base(&config), SentDocument::newest(config.own));
        let whole = Config {
            sequence,
            vcluster: config.vcluster.map(ToString::to_string).unwrap_or_default(),
            base_version: base.version,
            base: base.text.as_bytes().to_vec(),
            base_checksum: base.checksum,
            node_version: own.as_ref().map_or(0, |own| own.version),
            node: own.as_ref().map(|own| own.text.as_bytes().to_vec()).unwrap_or_default(),
            node_checksum: own.map(|own| own.checksum).unwrap_or_default(),
        };
        LiveDown { message: Some(live_down::Message::Config(whole)) }
    };
    if config.own.is_empty() && sequence == config.base.sequence() {
        let key = MessageKey { form: "config", vcluster: config.vcluster.cloned(), sequence };
        return app.fleet.configs.shared(&key, make);
    }
    shared_frames::frame(&make())
}

/// Wakes the streams of nodes whose vCluster, or whose defaults, have a new document. Nodes that were assigned, or have a
/// new document of their own, have changed themselves and are woken by that.
pub fn wake(app: &App, before: &State, now: &State) {
    if before.config_sequence == now.config_sequence {
        return;
    }
    let defaults = before.defaults.sequence() != now.defaults.sequence();
    let changed: BTreeSet<&VclusterId> = before
        .vclusters
        .diff(&now.vclusters)
        .filter_map(|item| match item {
            DiffItem::Update { old: (_, old), new: (id, new) }
                if old.config.sequence() != new.config.sequence() =>
            {
                Some(id)
            }
            DiffItem::Add(id, _) => Some(id),
            DiffItem::Update { .. } | DiffItem::Remove(..) => None,
        })
        .collect();
    if !defaults && changed.is_empty() {
        return;
    }
    let concerns = |node: &Node| match &node.vcluster {
        Some(vcluster) => changed.contains(vcluster),
        None => defaults,
    };
    app.fleet.presence.wake_those(|id| now.nodes.get(id).is_some_and(|node| concerns(node)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_many_send_is_encoded_once_and_little_is_kept() {
        let configs = Configs::default();
        let key = |sequence| MessageKey { form: "config", vcluster: None, sequence };
        let first = configs.shared(&key(1), || "document".to_owned());
        let again = configs.shared(&key(1), unreachable_document);
        assert_eq!(first.as_ptr(), again.as_ptr());
        for sequence in 2..100 {
            configs.shared(&key(sequence), || "x".repeat(KEPT_BYTES / 4));
        }
        let kept = configs.encoded.lock().map(|encoded| encoded.len());
        assert!(kept.is_ok_and(|kept| (1..=4).contains(&kept)));
        assert_ne!(configs.shared(&key(1), || "other".to_owned()), first);
    }

    fn unreachable_document() -> String {
        panic!("it was encoded before")
    }
}
