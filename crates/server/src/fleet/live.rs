//! The live stream: a node's standing connection. Up come hello, heartbeats and evidence; down go what must
//! be trusted, what the control plane thinks of the node, and orders.
//!
//! Orders are not queued here: they follow from the registry, so one that is lost with its stream is found
//! again by the next.

use crate::edge::authenticate;
use crate::edge::keepalive::Keepalive;
use crate::edge::node_peer::ShownIdentity;
use crate::edge::phase::RequestPhase;
use crate::edge::shared_frames::SharedFrames;
use crate::edge::stream_messages::{BoxedMessage, StreamMessages};
use crate::fleet::configs::{self, MessageKey, SharedSender};
use crate::fleet::evidence::{self, short};
use crate::fleet::expected_trust;
use crate::fleet::overlays::claim::OverlaySession;
use crate::fleet::overlays::tap::OverlayTap;
use crate::fleet::presence::{Stream, StreamOpening};
use crate::fleet::recovery_token;
use crate::fleet::sessions::SessionRecorder;
use crate::http::failure::Failure;
use crate::http::pem;
use crate::process::app::{App, Provenance};
use crate::process::views::Views;
use api::agent::{
    Ack, Bundle, Heartbeat, Hello, LiveDown, LiveUp, Order, OrderDone, OverlayAnswer, RecoveryGrant,
    RecoveryKept, RekeyOverlay, RenewNow, Standing, Welcome, live_down, live_up, order,
};
use api::code;
use bytes::Bytes;
use imbl::ordmap::DiffItem;
use journal::View;
use lifecycle::names::{Label, NodeId, RequestId, Serial, Span, TokenId};
use lifecycle::registry::{
    Command, Keeping, Node, NodeState, OverlayScope, Owner, RecoveryToken, State, Verdict, recovery_is_due,
};
use pki::digest::TrustDigest;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tonic::Status;

pub const HELLO_LIMIT: Duration = Duration::from_secs(10);
/// Answers that may wait for a host that does not read.
pub const BACKLOG: usize = 32;
/// How many messages a host may send at once, and how many more every second.
const BURST: u32 = 64;
const RATE: u32 = 8;

/// What goes down: messages of this stream alone, and those that it shares with others.
pub struct Answers {
    pub own: StreamMessages<LiveDown>,
    pub shared: SharedFrames,
}

/// A node that has opened its stream.
pub struct LivePeer {
    pub id: NodeId,
    pub shown: ShownIdentity,
    pub origin: Provenance,
    /// Of its connection.
    pub keepalive: Option<Arc<Keepalive>>,
    /// Of its request, which protects the connection once Hello was said.
    pub phase: Option<Arc<RequestPhase>>,
}

/// Serves the stream until it ends; the answers come out of what this returns.
pub fn serve(
    app: Arc<App>,
    peer: LivePeer,
    up: tonic::Streaming<LiveUp>,
    refused: fn(&Failure, &str) -> Status,
) -> Answers {
    let (down, own) = StreamMessages::channel(BACKLOG);
    let tap = OverlayTap::new(app.fleet.overlays.feeds.traffic.clone());
    let (shared, frames) = SharedSender::new();
    let frames = frames.with_tap(tap.clone());
    let request_id = peer.origin.request_id.as_ref().map(ToString::to_string).unwrap_or_default();
    tokio::spawn(async move {
        let session = StreamSession {
            app,
            peer,
            down: down.clone(),
            shared,
            sent: LastSent::default(),
            config_wanted: false,
            recovery_wanted: false,
            recovery_kept: None,
            instance: None,
            stored_trust: None,
            own_serial: None,
            sessions: None,
            tap,
            overlay: None,
        };
        let end = session.run(up).await;
        if let Err(failure) = end {
            // Nobody may be reading any more.
            let _ = down.try_send(Box::new(Err(refused(&failure, &request_id))));
        }
    });
    Answers { own, shared: frames }
}

/// What a host lives by: spans of the policy, and where the control plane is reached. It hears of a change on its open stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LiveTerms {
    interval: Span,
    grace: Span,
    clock_tolerance: Span,
    drain: Span,
    /// A digest of the replicas' URLs: the URLs themselves would be kept once per stream.
    replicas: u64,
}

impl LiveTerms {
    fn of(state: &State) -> Self {
        let policy = &state.policy;
        let mut replicas = DefaultHasher::new();
        state.members().for_each(|member| (member.id, &member.urls).hash(&mut replicas));
        Self {
            interval: policy.heartbeat_interval(),
            grace: policy.liveness_grace,
            clock_tolerance: policy.clock_tolerance,
            drain: policy.renew_drain,
            replicas: replicas.finish(),
        }
    }
}

/// What was sent to the host last.
#[derive(Default)]
struct LastSent {
    terms: Option<LiveTerms>,
    standing: Option<Standing>,
    bundle: u64,
    node_issuers: u64,
    /// Which state of both was sent since the host last had stored what is expected.
    unstored: Option<u64>,
    order: Option<RequestId>,
    rekey: Option<RequestId>,
    /// The version of the trust bundle that was sent with the recovery profile.
    recovery_profile: Option<u64>,
    /// The recovery token that it was given on this stream.
    recovery_token: Option<TokenId>,
    /// That its node was enrolled without recovery.
    ineligible: bool,
    /// The sequence of its configuration.
    config: Option<u64>,
}

struct StreamSession {
    app: Arc<App>,
    peer: LivePeer,
    down: mpsc::Sender<BoxedMessage<LiveDown>>,
    shared: SharedSender,
    sent: LastSent,
    config_wanted: bool,
    /// Whether the host keeps recovery tokens, and which one it has.
    recovery_wanted: bool,
    recovery_kept: Option<TokenId>,
    /// Which start of the agent speaks.
    instance: Option<Label>,
    /// The digest of what the host has stored, of one that says it.
    stored_trust: Option<TrustDigest>,
    /// The certificate that the host says is its own.
    own_serial: Option<Serial>,
    /// Of a host that has said which sessions are open on it.
    sessions: Option<Box<SessionRecorder>>,
    /// By which the connection finds what the host is to be told of its peers.
    tap: Arc<OverlayTap>,
    /// Of a host that has claimed a place in the overlay.
    overlay: Option<Box<OverlaySession>>,
}

impl StreamSession {
    async fn run(mut self, mut up: tonic::Streaming<LiveUp>) -> Result<(), Failure> {
        let hello = match tokio::time::timeout(HELLO_LIMIT, up.message()).await {
            Ok(Ok(Some(LiveUp { message: Some(live_up::Message::Hello(hello)) }))) => hello,
            Ok(Ok(Some(_))) => {
                return Err(Failure::new(code::HELLO_EXPECTED, "the first message must be Hello"));
            }
            Ok(Ok(None) | Err(_)) => return Ok(()),
            Err(_) => return Err(Failure::new(code::TIMEOUT, "no Hello within 10 s")),
        };
        // Boxed, like every commit here: a stream that lasts would keep the room for it.
        let stream = Box::pin(self.open(hello)).await?;
        self.peer.phase.take().inspect(|phase| phase.received());
        let result = self.serve(&mut up, &stream).await;
        self.app.fleet.presence.close(&self.peer.id, &stream);
        self.say_goodbye();
        result
    }

    /// A node that is gone hears how: one that was decommissioned removes what it has of it.
    fn say_goodbye(&self) {
        let state = &self.app.view().state;
        if let Some(node) = state.nodes.get(&self.peer.id).filter(|node| node.state.is_gone()) {
            // Nobody may be reading any more.
            _ = self.send(live_down::Message::Standing(standing(node)));
        }
    }

    async fn open(&mut self, hello: Hello) -> Result<Arc<Stream>, Failure> {
        // A host that comes by an SVID may not know yet which node that is.
        let unsaid = hello.node_id.is_empty() && self.peer.shown.svid().is_some();
        if hello.node_id != self.peer.id.as_str() && !unsaid {
            return Err(Failure::new(
                code::NOT_YOUR_NODE,
                "the client certificate belongs to another node than Hello names",
            ));
        }
        let bad =
            |what: &str| Failure::new(code::BAD_REQUEST, format!("{what}: 1 to 128 visible characters"));
        let instance = Label::parse(&hello.instance_id).map_err(|_| bad("instance_id"))?;
        self.instance = Some(instance.clone());
        let version = match hello.agent_version.as_str() {
            "" => None,
            text => Some(Label::parse(text).map_err(|_| bad("agent_version"))?),
        };
        let view = self.app.view();
        let node = self.node(&view.state)?;
        self.recovery_wanted = hello.recovery_wanted;
        self.recovery_kept = self.kept(&view.state, &node, &hello.recovery_kept);
        self.stored_trust = expected_trust::said(&hello.stored_trust);
        let opening = StreamOpening {
            node: &self.peer.id,
            shown: &self.peer.shown,
            source: self.peer.origin.source,
            instance,
            agent_version: version,
            bundle: Some(self.stored_bundle(&view.state, hello.bundle_version)),
            recovery_kept: self.recovery_kept,
            remembered: &node.instances,
            keepalive: self.peer.keepalive.clone(),
            listens: false,
            tap: Some(self.tap.clone()),
        };
        let opened = self.app.fleet.presence.open(opening, self.app.now());
        let stream = opened
            .map_err(|_| Failure::new(code::TOO_MANY_STREAMS, "this node has four live streams already"))?;
        let newest = pem::node_issuers_version(&self.app.view().state);
        self.sent.bundle = hello.bundle_version;
        self.sent.node_issuers = hello.node_issuers_version.unwrap_or(newest);
        self.config_wanted = hello.config_wanted;
        // Before the first change there is a configuration too, of sequence 0, and a host may not have it.
        self.sent.config = Some(hello.config_sequence).filter(|sequence| *sequence > 0);
        match self.welcome(&stream).await {
            Ok(()) => Ok(stream),
            Err(failure) => {
                self.app.fleet.presence.close(&self.peer.id, &stream);
                Err(failure)
            }
        }
    }

    /// There is a place for the stream; only now is the certificate in use.
    async fn welcome(&mut self, stream: &Stream) -> Result<(), Failure> {
        let LivePeer { id, shown, origin, .. } = &self.peer;
        let view = authenticate::contact(&self.app, origin, id, shown).await?;
        // What it is welcomed with is the first that it hears.
        self.app.fleet.presence.follows(id, view.state.policy.liveness_grace);
        self.send_terms(&view.state)?;
        // Without one it says so, and a host forgets the one it had.
        let profile = self.app.config.endpoint_profile.clone().unwrap_or_default();
        self.send(live_down::Message::EndpointProfile(profile))?;
        self.send_changes(&view, stream)?;
        self.provide(&view, stream).await
    }

    async fn serve(&mut self, up: &mut tonic::Streaming<LiveUp>, stream: &Stream) -> Result<(), Failure> {
        let mut allowance = Allowance::new();
        loop {
            let unrecorded = self.sessions.as_ref().and_then(|sessions| sessions.wake());
            let unanswered = self.overlay.as_ref().and_then(|overlay| overlay.wake());
            tokio::select! {
                message = up.message() => match message {
                    Ok(Some(message)) => {
                        allowance.spend()?;
                        self.receive(message)?;
                    }
                    Ok(None) | Err(_) => return Ok(()),
                },
                () = stream.wake.notified() => self.send_changes(&self.app.view(), stream)?,
                () = until(unrecorded) => {}
                () = until(unanswered) => {}
                () = self.tap.stalled.notified() => {
                    // HTTP/2 does not ask for the end of a stream that has no room for it: the connection ends.
                    if let Some(keepalive) = &self.peer.keepalive {
                        keepalive.give_up();
                    }
                    return Err(unread());
                }
                () = self.down.closed() => return Ok(()),
                () = self.app.stopped() => {
                    return Err(Failure::new(code::UNAVAILABLE, "the control plane is shutting down"));
                }
            }
            self.record_sessions(stream).await?;
            self.answer_claim().await?;
            // After every message too: a token may be half over by now.
            self.provide(&self.app.view(), stream).await?;
        }
    }

    fn receive(&mut self, message: LiveUp) -> Result<(), Failure> {
        let now = self.app.now();
        match message.message {
            Some(live_up::Message::Heartbeat(Heartbeat { interval_ms })) => {
                self.app.fleet.presence.seen(&self.peer.id, self.peer.origin.source, now);
                // It has heard how often it must speak now, so it is judged by that.
                if let Some(terms) = self.sent.terms.filter(|terms| terms.interval.millis() == interval_ms) {
                    self.app.fleet.presence.follows(&self.peer.id, terms.grace);
                }
            }
            Some(live_up::Message::Evidence(evidence)) => {
                let view = self.app.view();
                self.stored_trust = expected_trust::said(&evidence.stored_trust).or(self.stored_trust);
                let report = evidence::report(evidence, view.state.bundle_version, now);
                self.own_serial.clone_from(&report.cert_serial);
                let node = self.node(&view.state)?;
                let stored = self.stored_bundle(&view.state, report.bundle_version);
                self.app.fleet.presence.reported(&node, report, view.state.policy.clock_tolerance);
                self.app.fleet.presence.stored(&node.id, stored);
                self.send_standing(&view.state, &node)?;
                self.send_trust(&view.state)?;
            }
            Some(live_up::Message::OrderDone(OrderDone { order_id, ok, detail })) => {
                let (order_id, detail) = (short(&order_id), short(&detail));
                tracing::debug!(node = %self.peer.id, order_id, ok, detail, "an order was answered");
                self.app.fleet.presence.seen(&self.peer.id, self.peer.origin.source, now);
            }
            Some(live_up::Message::RecoveryKept(RecoveryKept { token_id })) => {
                let view = self.app.view();
                if token_id.is_empty() {
                    // Lost or spoilt there: it needs another.
                    (self.recovery_kept, self.sent.recovery_token) = (None, None);
                } else if let Some(token) = self.kept(&view.state, &*self.node(&view.state)?, &token_id) {
                    self.recovery_kept = Some(token);
                    self.app.fleet.presence.kept(&self.peer.id, token);
                }
                self.app.fleet.presence.seen(&self.peer.id, self.peer.origin.source, now);
            }
            Some(live_up::Message::Sessions(said)) => {
                let Some(instance) = self.instance.clone() else { return Ok(()) };
                self.sessions.get_or_insert_with(|| Box::new(SessionRecorder::new(instance))).hear(said)?;
                self.app.fleet.presence.seen(&self.peer.id, self.peer.origin.source, now);
            }
            Some(live_up::Message::Overlay(claim)) => {
                let tap = &self.tap;
                self.overlay.get_or_insert_with(|| Box::new(OverlaySession::new(tap.clone()))).hear(claim);
                self.app.fleet.presence.seen(&self.peer.id, self.peer.origin.source, now);
            }
            Some(live_up::Message::Hello(_)) => {
                return Err(Failure::new(code::BAD_REQUEST, "Hello was sent before"));
            }
            None => return Err(Failure::new(code::BAD_REQUEST, "an empty message")),
        }
        self.send(live_down::Message::Ack(Ack { server_time_ms: self.time() }))
    }

    async fn record_sessions(&mut self, stream: &Stream) -> Result<(), Failure> {
        let Some(sessions) = &mut self.sessions else { return Ok(()) };
        match Box::pin(sessions.record(&self.app, &self.peer, stream)).await? {
            Some(recorded) => self.send(live_down::Message::SessionsRecorded(recorded)),
            None => Ok(()),
        }
    }

    async fn answer_claim(&mut self) -> Result<(), Failure> {
        let Some(overlay) = &mut self.overlay else { return Ok(()) };
        if overlay.wake().is_none() {
            return Ok(());
        }
        let answer = Box::pin(overlay.answer(&self.app, &self.peer)).await?;
        self.send_place(answer)
    }

    /// Where the host is in the overlay, and only then its peers.
    fn send_place(&mut self, answer: Option<OverlayAnswer>) -> Result<(), Failure> {
        if let Some(answer) = answer {
            self.send(live_down::Message::OverlayAnswer(answer))?;
        }
        if let Some(overlay) = &mut self.overlay {
            overlay.follow(&self.app);
        }
        Ok(())
    }

    /// What the host lives by, and what is thought of it. A host of before reads it once and passes over the others.
    fn send_terms(&mut self, state: &State) -> Result<(), Failure> {
        let node = self.node(state)?;
        let (terms, standing) = (LiveTerms::of(state), self.standing(state, &node));
        (self.sent.terms, self.sent.standing) = (Some(terms), Some(standing.clone()));
        self.send(live_down::Message::Welcome(Welcome {
            server_time_ms: self.time(),
            heartbeat_ms: terms.interval.millis(),
            standing: Some(standing),
            servers: self.app.servers(),
            clock_tolerance_ms: terms.clock_tolerance.millis(),
            grace_ms: terms.grace.millis(),
            drain_ms: terms.drain.millis(),
            sessions: Some(node.sessions.count()),
            overlay_challenge: self.app.fleet.overlays.key.public().to_vec(),
            overlay: node.has_overlay(),
            node_id: self.peer.id.to_string(),
        }))
    }

    fn send_standing(&mut self, state: &State, node: &Node) -> Result<(), Failure> {
        let now = self.standing(state, node);
        if self.sent.standing.as_ref() == Some(&now) {
            return Ok(());
        }
        self.sent.standing = Some(now.clone());
        self.send(live_down::Message::Standing(now))
    }

    /// To a host that comes by an SVID, whether it could come by its own certificate. One that is not on record may be on its way
    /// to this replica.
    fn standing(&self, state: &State, node: &Node) -> Standing {
        let own = self.peer.shown.svid().and(self.own_serial.as_ref());
        let own = own.and_then(|serial| Some((serial, state.certificates.get(serial)?)));
        let refused = own.map_or("", |(serial, held)| match state.verdict(serial, self.app.now()) {
            _ if held.owner != Owner::Node(node.id.clone()) => "denied",
            Verdict::Denied(_) => "denied",
            Verdict::Superseded { .. } | Verdict::Grace { .. } => "superseded",
            Verdict::Expired => "expired",
            Verdict::Good | Verdict::Unknown => "",
        });
        Standing { certificate_refused: refused.to_owned(), ..standing(node) }
    }

    /// Sends what must be trusted where it has changed, and once where the host has stored something else: what it keeps in spite
    /// of that, it would keep again.
    fn send_trust(&mut self, state: &State) -> Result<(), Failure> {
        let versions = (state.bundle_version, pem::node_issuers_version(state));
        let is_changed = (self.sent.bundle, self.sent.node_issuers) != versions;
        let is_stored = self.has_stored(state);
        if is_stored == Some(true) {
            self.sent.unstored = None;
            self.app.fleet.presence.stored(&self.peer.id, state.bundle_version);
        }
        if is_changed || (is_stored == Some(false) && self.sent.unstored != Some(versions.1)) {
            (self.sent.bundle, self.sent.node_issuers) = versions;
            self.sent.unstored = Some(versions.1);
            self.shared.send(bundle(&self.app, state))?;
        }
        Ok(())
    }

    /// Whether the host has stored what is sent to it now; nothing of one that says no digest.
    fn has_stored(&self, state: &State) -> Option<bool> {
        let said = self.stored_trust.as_ref()?;
        Some(self.app.fleet.expected_trust.is_stored(state, said))
    }

    /// The newest trust bundle that the host has stored: by the contents or, of a host that does not say these, by the version that
    /// it says.
    fn stored_bundle(&self, state: &State, said: u64) -> u64 {
        match self.has_stored(state) {
            Some(true) => state.bundle_version,
            Some(false) => 0,
            None => said.min(state.bundle_version),
        }
    }

    /// Sends what has changed since the last message about it.
    fn send_changes(&mut self, view: &View, stream: &Stream) -> Result<(), Failure> {
        if self.sent.terms != Some(LiveTerms::of(&view.state)) {
            self.send_terms(&view.state)?;
        }
        let node = self.node(&view.state)?;
        self.send_standing(&view.state, &node)?;
        self.send_trust(&view.state)?;
        let mark = view.state.config_mark(&node);
        if self.config_wanted && !node.quarantined && self.sent.config != Some(mark) {
            self.sent.config = Some(mark);
            self.shared.send(configs::message(&self.app, &view.state, &node))?;
        }
        let again = self.overlay.as_mut().and_then(|overlay| overlay.refresh(&view.state, &node));
        self.send_place(again)?;
        let pending = node.rekey.as_ref().map(|rekey| rekey.order);
        if pending != self.sent.rekey && self.app.fleet.presence.is_newest(&self.peer.id, stream) {
            self.sent.rekey = pending;
            if let Some(id) = pending {
                let rekey = order::Order::RekeyOverlay(RekeyOverlay {});
                let order = Order { order_id: id.to_string(), order: Some(rekey) };
                self.send(live_down::Message::Order(order))?;
            }
        }
        let pending = node.rotation.as_ref().map(|rotation| rotation.order);
        if pending != self.sent.order && self.app.fleet.presence.is_newest(&self.peer.id, stream) {
            self.sent.order = pending;
            if let Some(id) = pending {
                let renew = order::Order::RenewNow(RenewNow {});
                let order = Order { order_id: id.to_string(), order: Some(renew) };
                self.send(live_down::Message::Order(order))?;
            }
        }
        Ok(())
    }

    /// Gives the host what it may need to recover one day: a token when it is due, and where to turn to. On one
    /// stream the next token follows only once the last is kept: a host whose disk is full is not given one after
    /// the other.
    async fn provide(&mut self, view: &View, stream: &Stream) -> Result<(), Failure> {
        let node = self.node(&view.state)?;
        let may = node.state == NodeState::Active && !node.quarantined && self.is_in_use(&view.state);
        if !self.recovery_wanted || !may || !self.app.fleet.presence.is_newest(&self.peer.id, stream) {
            return Ok(());
        }
        if !node.keeps_recovery_tokens() {
            return match std::mem::replace(&mut self.sent.ineligible, true) {
                true => Ok(()),
                false => self.send(live_down::Message::Recovery(recovery_token::ineligible())),
            };
        }
        // One that has ended since, such as by an operator's order, is not waited for.
        let valid = |id: &TokenId| node.recovery.token(*id).is_some_and(RecoveryToken::is_valid);
        self.sent.recovery_token = self.sent.recovery_token.filter(valid);
        let answered = self.sent.recovery_token.is_none_or(|given| Some(given) == self.recovery_kept);
        if answered
            && recovery_is_due(&node, self.recovery_kept, Some(&self.app.config.recovery.id), self.app.now())
        {
            match Box::pin(self.mint()).await {
                Ok(Some(grant)) => {
                    self.sent.recovery_token = recovery_token::kept(&grant.token_id);
                    self.sent.recovery_profile = Some(view.state.bundle_version);
                    return self.send(live_down::Message::Recovery(grant));
                }
                Ok(None) => {}
                // The next message tries again.
                Err(failure) => {
                    tracing::debug!(node = %node.id, code = failure.code.word, "no recovery token")
                }
            }
        }
        if self.sent.recovery_profile != Some(view.state.bundle_version) {
            self.sent.recovery_profile = Some(view.state.bundle_version);
            let profile = Some(recovery_token::profile_to_follow(&self.app, &view.state));
            self.send(live_down::Message::Recovery(RecoveryGrant { profile, ..RecoveryGrant::default() }))?;
        }
        Ok(())
    }

    /// Whether the certificate of this stream is the one in use: accepted, and without a successor.
    fn is_in_use(&self, state: &State) -> bool {
        let serial = self.peer.shown.on_record();
        serial.is_some_and(|serial| state.verdict(serial, self.app.now()) == Verdict::Good)
    }

    /// The token that the host says it has kept, if it is one of its own that is good, and if the certificate with
    /// which it speaks is the one in use.
    fn kept(&self, state: &State, node: &Node, words: &str) -> Option<TokenId> {
        let token = recovery_token::kept(words).filter(|_| self.is_in_use(state))?;
        node.recovery.token(token).filter(|token| token.is_valid()).map(|token| token.id)
    }

    /// A token that is on record as the host's.
    async fn mint(&self) -> Result<Option<RecoveryGrant>, Failure> {
        let drawn = recovery_token::draw(&self.app)?;
        let profile = Some(self.app.config.recovery.id.clone());
        let keeping = Keeping { kept: self.recovery_kept, mint: Some(drawn.mint), profile };
        let actor = self.peer.shown.actor(&self.peer.id);
        let command = Command::MintRecovery { node: self.peer.id.clone(), keeping };
        let (_, view) = self.app.commit(actor, &self.peer.origin, command).await?;
        Ok(recovery_token::granted(&self.app, &view.state, &self.peer.id, &drawn))
    }

    fn node(&self, state: &State) -> Result<Arc<Node>, Failure> {
        living(state, &self.peer.id)
    }

    fn time(&self) -> i64 {
        i64::try_from(self.app.now().millis()).unwrap_or(i64::MAX)
    }

    /// The stream of a host that does not read what is sent ends.
    fn send(&self, message: live_down::Message) -> Result<(), Failure> {
        self.down.try_send(Box::new(Ok(LiveDown { message: Some(message) }))).map_err(|_| unread())
    }
}

fn unread() -> Failure {
    Failure::new(code::TOO_SLOW, "the client does not read what is sent")
}

/// The node as it is now; none that is gone.
pub fn living(state: &State, id: &NodeId) -> Result<Arc<Node>, Failure> {
    match state.nodes.get(id) {
        Some(node) if !node.state.is_gone() => Ok(node.clone()),
        _ => Err(lifecycle::registry::Rejection::NodeRevoked { node: id.clone() }.into()),
    }
}

pub fn standing(node: &Node) -> Standing {
    Standing {
        state: node.state.to_string(),
        draining: node.draining,
        drain_by: node.drain_by.map(|at| at.to_string()).unwrap_or_default(),
        quarantined: node.quarantined,
        certificate_refused: String::new(),
    }
}

/// What all hosts must trust, and what verifies nodes: the same bytes for every one of them.
fn bundle(app: &App, state: &State) -> Bytes {
    let sequence = pem::node_issuers_version(state);
    let key = MessageKey { form: "bundle", vcluster: None, sequence };
    app.fleet.configs.shared(&key, || {
        let bundle = Bundle {
            version: state.bundle_version,
            pem: pem::bundle_to_follow(state, app.now()),
            root_crls: pem::root_crls(state),
            node_issuers: pem::node_issuers(state),
            node_issuers_version: sequence,
        };
        LiveDown { message: Some(live_down::Message::Bundle(bundle)) }
    })
}

/// Waits for ever where there is nothing to wait for.
pub async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// How many messages a host may still send.
pub struct Allowance {
    left: u32,
    since: Instant,
}

impl Allowance {
    pub fn new() -> Self {
        Self { left: BURST, since: Instant::now() }
    }

    pub fn spend(&mut self) -> Result<(), Failure> {
        let seconds = u32::try_from(self.since.elapsed().as_secs()).unwrap_or(u32::MAX);
        if seconds > 0 {
            self.left = self.left.saturating_add(seconds.saturating_mul(RATE)).min(BURST);
            self.since = Instant::now();
        }
        self.left =
            self.left.checked_sub(1).ok_or_else(|| Failure::new(code::RATE_LIMITED, "too many messages"))?;
        Ok(())
    }
}

/// What of the policy decides who a host's peers are, and how it reaches them.
fn overlay_terms(state: &State) -> (OverlayScope, Option<Span>) {
    (state.policy.overlay_scope, state.policy.overlay_keepalive)
}

/// Wakes the streams of nodes that have changed, and all of them where what all live by has, until the process stops.
pub async fn follow(app: Arc<App>) {
    let mut views = Views::new(&app);
    while let Some((before, now)) = views.next().await {
        let trusted = |state: &State| pem::node_issuers_version(state);
        if trusted(&before.state) != trusted(&now.state)
            || LiveTerms::of(&before.state) != LiveTerms::of(&now.state)
            || overlay_terms(&before.state) != overlay_terms(&now.state)
        {
            app.fleet.presence.wake_all();
            continue;
        }
        configs::wake(&app, &before.state, &now.state);
        for item in before.state.nodes.diff(&now.state.nodes) {
            if let DiffItem::Update { new: (id, _), .. } = item {
                app.fleet.presence.wake(id);
            }
        }
    }
}
