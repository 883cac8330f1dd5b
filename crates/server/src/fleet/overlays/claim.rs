//! A host's claim to its place in the overlay, on its live stream: read, proven, put on record if it says something new, and
//! answered. A claim costs an X25519 product and perhaps a commit that all its peers are told of, so there is a limit to both.

use super::tap::OverlayTap;
use crate::doors::host;
use crate::fleet::everywhere;
use crate::fleet::live::{LivePeer, living};
use crate::http::failure::Failure;
use crate::issuance::enroll;
use crate::process::app::App;
use api::agent::{OverlayAnswer, OverlayClaim};
use api::code;
use lifecycle::registry::{ClaimOverlay, Command, Node, OverlayGroup, State, Underlay, Wireguard, overlay};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How many claims a host may make at once, and after which time each of them comes back.
const BURST: u32 = 4;
const EACH: Duration = Duration::from_secs(5);

/// How many claims are left.
#[derive(Debug, Clone, Copy)]
pub struct ClaimAllowance {
    left: u32,
    since: Instant,
}

impl ClaimAllowance {
    pub fn new(now: Instant) -> Self {
        Self { left: BURST, since: now }
    }

    fn refill(&mut self, now: Instant) {
        while self.left < BURST && self.since + EACH <= now {
            self.left += 1;
            self.since += EACH;
        }
        if self.left == BURST {
            self.since = now;
        }
    }

    /// Whether one was left; else when there is one again.
    pub fn spend(&mut self, now: Instant) -> Result<(), Instant> {
        self.refill(now);
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(self.since + EACH),
        }
    }

    /// Whether there is nothing to remember of it.
    pub fn is_full(&mut self, now: Instant) -> bool {
        self.refill(now);
        self.left == BURST
    }
}

/// The overlay on one stream.
pub struct OverlaySession {
    tap: Arc<OverlayTap>,
    allowance: ClaimAllowance,
    /// The newest claim that is not answered, and when to look at it.
    waiting: Option<(OverlayClaim, Instant)>,
    /// The answer to the last claim that is on record, and among whom the host was placed by it.
    placed: Option<(OverlayAnswer, Option<OverlayGroup>)>,
}

/// What becomes of a claim.
enum ClaimOutcome {
    Placed(Box<OverlayAnswer>),
    Refused(Failure),
    /// Too many in a short time: it is looked at then, unless a newer one comes.
    Later(Instant),
}

impl OverlaySession {
    pub fn new(tap: Arc<OverlayTap>) -> Self {
        Self { tap, allowance: ClaimAllowance::new(Instant::now()), waiting: None, placed: None }
    }

    /// A newer claim takes the place of one that is not answered.
    pub fn hear(&mut self, claim: OverlayClaim) {
        self.waiting = Some((claim, Instant::now()));
    }

    pub fn wake(&self) -> Option<Instant> {
        self.waiting.as_ref().map(|(_, at)| *at)
    }

    /// Looks at the claim that waits, if it is time.
    pub async fn answer(&mut self, app: &App, peer: &LivePeer) -> Result<Option<OverlayAnswer>, Failure> {
        let due = self.waiting.take_if(|(_, at)| *at <= Instant::now());
        let Some((claim, _)) = due else { return Ok(None) };
        let key = claim.wireguard_public_key.chars().take(64).collect();
        match self.claimed(app, peer, &claim).await? {
            ClaimOutcome::Placed(answer) => Ok(Some(*answer)),
            ClaimOutcome::Refused(failure) => Ok(Some(OverlayAnswer {
                wireguard_public_key: key,
                code: failure.code.word.to_owned(),
                detail: failure.message,
                ..OverlayAnswer::default()
            })),
            ClaimOutcome::Later(at) => {
                self.waiting.get_or_insert((claim, at));
                Ok(None)
            }
        }
    }

    async fn claimed(
        &mut self,
        app: &App,
        peer: &LivePeer,
        claim: &OverlayClaim,
    ) -> Result<ClaimOutcome, Failure> {
        let view = app.view();
        let node = living(&view.state, &peer.id)?;
        let wireguard = match enroll::wireguard(&claim.wireguard_public_key) {
            Ok(wireguard) => wireguard,
            Err(failure) => return Ok(ClaimOutcome::Refused(failure)),
        };
        let is_held = node.wireguard.is_some_and(|held| held.key == wireguard.key);
        if let Err(at) = self.allowance.spend(Instant::now()) {
            return Ok(limited(is_held, at));
        }
        if !app.fleet.overlays.key.is_proven(peer.id.as_str(), wireguard.key.as_bytes(), &claim.proof) {
            let message = "the proof is not of this key, this node and the challenge in the last Welcome";
            return Ok(ClaimOutcome::Refused(Failure::new(code::WIREGUARD_KEY_UNPROVEN, message)));
        }
        let underlay = match claim.underlay.as_ref().map(host::native_underlay).transpose() {
            Ok(underlay) => underlay,
            Err(failure) => return Ok(ClaimOutcome::Refused(failure)),
        };
        let is_new = !is_held || underlay.is_some_and(|said| node.underlay != Some(said));
        if is_new {
            if let Err(at) = app.fleet.presence.spend_claim(&peer.id, Instant::now()) {
                return Ok(limited(is_held, at));
            }
            if let Err(failure) = record(app, peer, wireguard, underlay).await {
                return Ok(ClaimOutcome::Refused(failure));
            }
        }
        let answer = self.place(app, peer, claim.revision).await?;
        Ok(ClaimOutcome::Placed(Box::new(answer)))
    }

    /// The claim is on record: the host is told where it is, and then of its peers.
    async fn place(&mut self, app: &App, peer: &LivePeer, said: u64) -> Result<OverlayAnswer, Failure> {
        let mut view = app.view();
        // From a replica that is ahead of this one, or from before the registry was restored.
        if said > view.state.overlay_revision(&living(&view.state, &peer.id)?.tenant)
            && !app.journal.is_alone()
        {
            view = app.journal.barrier().await.unwrap_or(view);
        }
        let node = living(&view.state, &peer.id)?;
        let answer = answered(&view.state, &node);
        let group = view.state.overlay_group(&node);
        self.placed = Some((answer.clone(), group.clone()));
        self.follow(app, group.as_ref(), known(&view.state, &node, said));
        Ok(answer)
    }

    fn follow(&self, app: &App, group: Option<&OverlayGroup>, known: Option<u64>) {
        match group {
            Some(group) => self.tap.follow(&app.fleet.overlays.feeds.feed(app, group), known),
            None => self.tap.empty(),
        }
    }

    /// Something about the node, or the policy, may have changed: another group is another whole set, and what the answer
    /// said is said again.
    pub fn refresh(&mut self, app: &App, state: &State, node: &Node) -> Option<OverlayAnswer> {
        let (before, group) = self.placed.as_ref()?;
        let (answer, now) = (answered(state, node), state.overlay_group(node));
        let (said_again, regrouped) = (answer != *before, now != *group);
        self.placed = Some((answer.clone(), now.clone()));
        if regrouped {
            self.follow(app, now.as_ref(), None);
        }
        said_again.then_some(answer)
    }
}

/// What would only say again where the host is can wait; a key cannot be waited for.
fn limited(is_held: bool, at: Instant) -> ClaimOutcome {
    if is_held {
        return ClaimOutcome::Later(at);
    }
    ClaimOutcome::Refused(Failure::new(code::RATE_LIMITED, "too many claims to a place in the overlay"))
}

/// From which revision the host may go on: one that it knew among its present peers.
fn known(state: &State, node: &Node, said: u64) -> Option<u64> {
    let overlay = state.overlays.get(&node.tenant)?;
    let regrouped = overlay.peers.get(&node.id)?.regrouped;
    (said > 0 && said <= overlay.revision && said >= regrouped).then_some(said)
}

async fn record(
    app: &App,
    peer: &LivePeer,
    wireguard: Wireguard,
    underlay: Option<Underlay>,
) -> Result<(), Failure> {
    let holder =
        app.view().state.wireguard_keys.get(&wireguard.key).filter(|holder| **holder != peer.id).cloned();
    let holder_seen_at = match &holder {
        Some(holder) => everywhere::node(app, holder).await.and_then(|known| known.source),
        None => None,
    };
    let claim = ClaimOverlay { node: peer.id.clone(), wireguard, underlay, holder_seen_at };
    app.commit(peer.shown.actor(&peer.id), &peer.origin, Command::ClaimOverlay(Box::new(claim)))
        .await
        .map(drop)
}

/// Where the host is in the overlay.
fn answered(state: &State, node: &Node) -> OverlayAnswer {
    let keepalive = state.policy.overlay_keepalive.map_or(0, |every| every.secs());
    OverlayAnswer {
        wireguard_public_key: node.wireguard.map(|held| host::key_text(&held.key)).unwrap_or_default(),
        code: String::new(),
        detail: String::new(),
        address: node.address.map(|address| address.to_string()).unwrap_or_default(),
        prefix_length: overlay::PREFIX_LENGTH.into(),
        mtu: overlay::MTU.into(),
        keepalive_s: u32::try_from(keepalive).unwrap_or(u32::MAX),
    }
}
