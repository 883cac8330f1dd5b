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
/// As many changes of its endpoint may a node make at once, and after this time another one.
const EACH_MOVE: Duration = Duration::from_secs(60);
/// After which time a claim is looked at again that failed for a reason that passes.
const AGAIN: Duration = Duration::from_secs(5);

/// How many claims are left.
#[derive(Debug, Clone, Copy)]
pub struct ClaimAllowance {
    left: u32,
    since: Instant,
    each: Duration,
}

impl ClaimAllowance {
    pub fn new(now: Instant) -> Self {
        Self { left: BURST, since: now, each: EACH }
    }

    /// For changes of a node's endpoint.
    pub fn of_moves(now: Instant) -> Self {
        Self { each: EACH_MOVE, ..Self::new(now) }
    }

    fn refill(&mut self, now: Instant) {
        while self.left < BURST && self.since + self.each <= now {
            self.left += 1;
            self.since += self.each;
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
            None => Err(self.since + self.each),
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
    /// Whose changes it is to be told, and from which revision on, once the answer is on its way: a host drops what it is told
    /// of peers before it has a place.
    unfollowed: Option<(Option<OverlayGroup>, Option<u64>)>,
    /// A claim of another endpoint by a host in quarantine: it is looked at when that ends.
    unwritten: Option<OverlayClaim>,
}

/// What becomes of a claim.
enum ClaimOutcome {
    Placed(Box<OverlayAnswer>),
    Refused(Failure),
    /// Too many in a short time, or nothing can be decided now: it is looked at then, unless a newer one comes. A refusal would
    /// make a host give up a key that may be on record.
    Later(Instant),
}

impl OverlaySession {
    pub fn new(tap: Arc<OverlayTap>) -> Self {
        let allowance = ClaimAllowance::new(Instant::now());
        Self { tap, allowance, waiting: None, placed: None, unfollowed: None, unwritten: None }
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
        let (view, presence, now) = (app.view(), &app.fleet.presence, Instant::now());
        let node = living(&view.state, &peer.id)?;
        let wireguard = match enroll::wireguard(&claim.wireguard_public_key) {
            Ok(wireguard) => wireguard,
            Err(failure) => return Ok(ClaimOutcome::Refused(failure)),
        };
        let is_held = node.wireguard.is_some_and(|held| held.key == wireguard.key);
        if let Err(at) = self.allowance.spend(Instant::now()) {
            return Ok(ClaimOutcome::Later(at));
        }
        if !app.fleet.overlays.key.is_proven(peer.id.as_str(), wireguard.key.as_bytes(), &claim.proof) {
            let message = "the proof is not of this key, this node and the challenge in the last Welcome";
            return Ok(ClaimOutcome::Refused(Failure::new(code::WIREGUARD_KEY_UNPROVEN, message)));
        }
        let former = node.wireguard.filter(|_| !is_held);
        let former_unproven = former.is_some_and(|held| {
            let (own, new) = (held.key.as_bytes(), wireguard.key.as_bytes());
            !app.fleet.overlays.key.is_proven_by(peer.id.as_str(), own, new, &claim.former_proof)
        });
        let underlay = match claim.underlay.as_ref().map(host::native_underlay).transpose() {
            Ok(underlay) => underlay,
            Err(failure) => return Ok(ClaimOutcome::Refused(failure)),
        };
        let is_new = !is_held || underlay.is_some_and(|said| node.underlay != Some(said));
        self.unwritten = None;
        if is_held && is_new && node.quarantined {
            self.unwritten = Some(claim.clone());
        } else if is_new {
            let written = match (presence.spend_claim(&peer.id, now), is_held) {
                (Err(at), _) => Err(at),
                (Ok(()), true) => presence.spend_move(&peer.id, now),
                (Ok(()), false) => Ok(()),
            };
            let written = match written {
                Err(at) => Err(at),
                Ok(()) => match record(app, peer, (wireguard, former_unproven), underlay).await {
                    Err(failure) if failure.code.retryable => {
                        tracing::debug!(node = %peer.id, code = failure.code.word, "a claim is tried again");
                        Err(Instant::now() + AGAIN)
                    }
                    Err(failure) => return Ok(ClaimOutcome::Refused(failure)),
                    Ok(()) => Ok(()),
                },
            };
            match written {
                // Another endpoint can wait: the host has its place all the same.
                Err(at) if is_held => self.waiting = Some((claim.clone(), at)),
                Err(at) => return Ok(ClaimOutcome::Later(at)),
                Ok(()) => {}
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
        self.unfollowed = Some((group, known(&view.state, &node, said)));
        Ok(answer)
    }

    /// Goes on to the peers of the place that was answered last. The answer must be queued before.
    pub fn follow(&mut self, app: &App) {
        match self.unfollowed.take() {
            Some((Some(group), known)) => {
                self.tap.follow(&app.fleet.overlays.feeds.feed(app, &group), known);
            }
            Some((None, _)) => self.tap.empty(),
            None => {}
        }
    }

    /// Something about the node, or the policy, may have changed: another group is another whole set, and what the answer
    /// said is said again, before the set.
    pub fn refresh(&mut self, state: &State, node: &Node) -> Option<OverlayAnswer> {
        if !node.quarantined
            && let Some(claim) = self.unwritten.take()
        {
            self.waiting.get_or_insert((claim, Instant::now()));
        }
        let (before, group) = self.placed.as_ref()?;
        let (answer, now) = (answered(state, node), state.overlay_group(node));
        let (said_again, regrouped) = (answer != *before, now != *group);
        self.placed = Some((answer.clone(), now.clone()));
        if regrouped {
            self.unfollowed = Some((now, None));
        }
        said_again.then_some(answer)
    }
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
    (wireguard, former_unproven): (Wireguard, bool),
    underlay: Option<Underlay>,
) -> Result<(), Failure> {
    let holder =
        app.view().state.wireguard_keys.get(&wireguard.key).filter(|holder| **holder != peer.id).cloned();
    let holder_seen_at = match &holder {
        Some(holder) => everywhere::node(app, holder).await.and_then(|known| known.source),
        None => None,
    };
    let node = peer.id.clone();
    let claim = ClaimOverlay { node, wireguard, underlay, holder_seen_at, former_unproven };
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
