//! The overlay: this host's place in it is claimed on the standing connection, and the interface follows what is answered.
//!
//! **Another key never strands the host.** The steps are: the new key on disk beside the old one; the claim; the answer that it is on
//! record; the rename that makes it the key; the interface with it. Killed before the answer is heard, the next process claims
//! the new key again, which is the same claim; until then the old one is in use.

mod kept_peers;
mod keys;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use api::agent::{Evidence, OverlayAnswer, OverlayClaim, OverlayPeers, OverlayReport, Welcome};
use api::code::{self, Code};
use client::ServerUrl;
use pki::wireguard::WireguardPublic;
use tokio::net::lookup_host;
use tokio::time::{Instant, timeout};

use super::call::{Call, CallPanicked};
use super::core::AgentCore;
use super::paced_offers;
use super::rate_limit::RateLimit;
use crate::code::AgentCode;
use crate::config::{OverlaySettings, UnderlayAddresses};
use crate::overlay::claim::{Claims, GrantedPlace, PlaceClaim};
use crate::overlay::here::{OwnAddresses, Whereabouts};
use crate::overlay::netlink::prefix;
use crate::overlay::peer_set::{InterfacePlace, OwnFamilies, Taken};
use crate::overlay::stored::KeptOverlay;
use crate::overlay::worker::{OverlayCondition, OverlayWorker};
use crate::overlay::{Backend, InterfaceSpec, Unavailable, UnavailableReason};
use crate::status::{OverlayState, OverlayStatus, Status};
use kept_peers::KeptPeers;
use keys::OverlayKeys;

/// How often this host looks where it is.
const LOOK: Duration = Duration::from_secs(3);
/// How long names of servers are not looked up again.
const RESOLVED: Duration = Duration::from_secs(60);
const LOOKUP: Duration = Duration::from_secs(3);
/// How long a key that could not be read is left alone.
const KEYS_AGAIN: Duration = Duration::from_secs(10);
/// How often the place may become another: each time the interface is made anew.
const PLACES: u32 = 3;
const PLACE_EVERY: Duration = Duration::from_secs(10);
/// After these codes the key that is on record stays; after any other nobody knows which one that is.
const KEY_REFUSED: [&Code; 4] = [
    code::WIREGUARD_KEY_IN_USE,
    code::WIREGUARD_KEY_UNPROVEN,
    code::WIREGUARD_KEY_INVALID,
    code::REKEY_NOT_ORDERED,
];
/// How many peers may be told at once, in thousands, and how often a thousand more.
const THOUSANDS: u32 = 600;
const THOUSAND_EVERY: Duration = Duration::from_millis(50);
/// How often a change of the peers, or of the figures alone, is worth a report.
const PEERS_REPORTED: Duration = Duration::from_secs(5);
const FIGURES_REPORTED: Duration = Duration::from_secs(60);

pub struct OverlayPart {
    config: OverlaySettings,
    /// The domain has an overlay for this node.
    offered: bool,
    /// The identity is gone.
    ended: bool,
    challenge: Option<WireguardPublic>,
    keys: Option<OverlayKeys>,
    /// When those that could not be read are tried again.
    keys_at: Instant,
    claims: Claims,
    place: Option<GrantedPlace>,
    /// Another place than the one in use, which came too soon after it.
    next_place: Option<GrantedPlace>,
    places: RateLimit,
    /// Peers came before the place was known, and were passed over.
    missed: bool,
    worker: Option<OverlayWorker>,
    /// Why there is none, before there is anything to ask of the system.
    trouble: Option<Unavailable>,
    look: Call<Looked>,
    look_at: Instant,
    resolved: Option<(Instant, Vec<SocketAddr>)>,
    here: OwnAddresses,
    /// Orders to replace the key that are under way, and answers to orders.
    ordered: Vec<String>,
    answers: Vec<OrderAnswer>,
    rekeys: RateLimit,
    told: RateLimit,
    reported: Option<(Instant, OverlayReport)>,
    kept: KeptPeers,
}

/// An order, and how it ended.
pub struct OrderAnswer {
    pub order_id: String,
    pub result: Result<(), String>,
}

/// Where this host is, and the addresses of the servers.
struct Looked {
    servers: Vec<SocketAddr>,
    found: Option<Whereabouts>,
}

/// What the daemon has to see to.
#[derive(Debug, PartialEq, Eq)]
pub enum OverlayEvent {
    Nothing,
    /// This host is elsewhere: the connection from where it was leads nowhere.
    Moved,
}

impl OverlayPart {
    /// The directory is that of an agent whose storage is a disk.
    pub fn new(config: OverlaySettings, dir: Option<PathBuf>) -> Self {
        let now = Instant::now();
        Self {
            config,
            offered: false,
            ended: false,
            challenge: None,
            keys: None,
            keys_at: now,
            claims: Claims::new(now),
            place: None,
            next_place: None,
            places: RateLimit::new(PLACES, PLACE_EVERY, now),
            missed: false,
            worker: None,
            trouble: None,
            look: Call::default(),
            look_at: now,
            resolved: None,
            here: OwnAddresses::default(),
            ordered: Vec::new(),
            answers: Vec::new(),
            rekeys: paced_offers::pace(now),
            told: RateLimit::new(THOUSANDS, THOUSAND_EVERY, now),
            reported: None,
            kept: KeptPeers::new(dir),
        }
    }

    /// Brings up what an earlier process was told, until the control plane says otherwise on the first connection.
    pub fn resume(&mut self, core: &mut AgentCore) {
        let Some(stored) = self.kept.read() else { return };
        self.offered = stored.offered;
        let is_own = core.identity.node_id() == Some(stored.node_id.as_str());
        if core.machine.is_revoked() || !is_own || !self.is_wanted() {
            self.offered = false;
            return self.kept.forget();
        }
        self.load_keys(core);
        let Some(keys) = &self.keys else { return };
        let node_id = stored.node_id.clone();
        let found = stored.place().and_then(|place| {
            let own = interface_place(node_id, keys, place);
            Ok((place, stored.peers(&own)?))
        });
        match found {
            Ok((place, peers)) => {
                tracing::info!(
                    peers = peers.count(),
                    "the overlay comes up with the peers of before, until the control plane says otherwise"
                );
                self.place = Some(place);
                self.follow(place);
                if let Some(worker) = &self.worker {
                    worker.change(|wanted| {
                        wanted.peers = peers;
                        wanted.all_changed();
                    });
                }
            }
            Err(why) => {
                tracing::warn!("the kept peers of the overlay are passed over: {why}");
                self.kept.forget();
            }
        }
    }

    /// Keeps what was not written yet.
    pub async fn stopping(&mut self, core: &AgentCore) {
        // The process may end with the identity, before the next turn of its loop.
        self.identity_gone(core.machine.is_revoked());
        if self.kept.is_writing() {
            _ = self.kept.written().await;
        }
        if self.kept.wake().is_some()
            && let Some(peers) = self.stored(core)
        {
            self.kept.write(peers);
            _ = self.kept.written().await;
        }
    }

    fn stored(&self, core: &AgentCore) -> Option<KeptOverlay> {
        let (node_id, place, worker) = (core.identity.node_id()?, self.place?, self.worker.as_ref()?);
        Some(worker.wanted(|wanted| KeptOverlay::of(node_id, self.offered, place, &wanted.peers)))
    }

    /// Whether this host is to be in the overlay.
    fn is_wanted(&self) -> bool {
        let offered = self.offered && self.config.backend == Backend::Auto;
        !self.ended && (self.config.joins() || offered)
    }

    /// The control plane welcomes this host, or says anew what it said then.
    pub fn welcomed(&mut self, core: &mut AgentCore, welcome: &Welcome) {
        self.offered = welcome.overlay;
        self.challenge = welcome.overlay_challenge.as_slice().try_into().ok();
        if !self.is_wanted() {
            return self.leave();
        }
        if self.challenge.is_none() {
            self.trouble = Some(Unavailable::failed("the control plane does not know overlays on hosts"));
        } else if self.keys.is_none() && self.keys_at <= Instant::now() {
            self.load_keys(core);
        }
        self.look_at = Instant::now();
    }

    /// They may have been put right since the last time.
    fn load_keys(&mut self, core: &mut AgentCore) {
        self.keys_at = Instant::now() + KEYS_AGAIN;
        match OverlayKeys::load(core) {
            Ok(keys) => (self.keys, self.trouble) = (Some(keys), None),
            Err(unavailable) => self.troubled(unavailable),
        }
    }

    /// Says in the log why there is no overlay, once.
    fn troubled(&mut self, unavailable: Unavailable) {
        if self.trouble.as_ref() != Some(&unavailable) {
            let reason = unavailable.reason.as_str();
            tracing::warn!(
                reason,
                "the overlay is unavailable: {}; remedy: {}",
                unavailable.detail,
                unavailable.remedy()
            );
        }
        self.trouble = Some(unavailable);
    }

    /// When there is something to read that could not be read.
    fn keys_wake(&self) -> Option<Instant> {
        (self.challenge.is_some() && self.keys.is_none()).then_some(self.keys_at)
    }

    /// The connection is another.
    pub fn reconnected(&mut self) {
        self.claims.disconnected();
        (self.missed, self.next_place) = (false, None);
        if let Some(worker) = &self.worker {
            worker.change(|wanted| wanted.peers.disconnected());
        }
    }

    /// No interface any more.
    fn leave(&mut self) {
        (self.worker, self.place, self.trouble, self.reported) = (None, None, None, None);
        (self.keys, self.here) = (None, OwnAddresses::default());
        (self.missed, self.next_place) = (false, None);
        self.kept.forget();
        // Back on the same connection, it is claimed anew.
        self.claims.disconnected();
        self.fail_orders("this host is in no overlay");
    }

    /// The identity is gone, or is back.
    pub fn identity_gone(&mut self, gone: bool) {
        if gone != self.ended {
            self.ended = gone;
            if gone {
                self.leave();
            }
        }
    }

    /// The node is no more: neither is its key.
    pub fn decommissioned(&mut self, core: &mut AgentCore) {
        self.identity_gone(true);
        if let Err(error) = crate::store::wireguard::remove(core.path()) {
            core.not_written("the WireGuard key could not be removed", &error);
        }
    }

    /// What has happened; waits for ever where there is no overlay.
    pub async fn next(&mut self, core: &mut AgentCore) -> OverlayEvent {
        let Self { worker, look, kept, .. } = self;
        let reported = async {
            match worker {
                Some(worker) => worker.reported().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            looked = look.ended() => self.looked(core, looked),
            () = reported => OverlayEvent::Nothing,
            written = kept.written() => {
                if let Err(error) = written {
                    core.not_written("the peers of the overlay could not be kept", &error);
                }
                OverlayEvent::Nothing
            }
        }
    }

    pub fn wake(&self, connected: bool) -> Option<Instant> {
        if !self.is_wanted() {
            return None;
        }
        if self.keys.is_none() {
            return self.keys_wake();
        }
        let claim = self.claim().filter(|_| connected);
        let claim = claim.and_then(|claim| self.claims.wake(claim, Instant::now()));
        let place = self.next_place.map(|_| Instant::now() + self.places.wait(Instant::now()));
        Some([claim, place, self.kept.wake()].into_iter().flatten().fold(self.look_at, Instant::min))
    }

    /// Does what is due: looks for its key, takes another place, looks where this host is.
    pub fn tick(&mut self, core: &mut AgentCore, servers: &[ServerUrl]) {
        let now = Instant::now();
        if !self.is_wanted() {
            return;
        }
        if self.keys_wake().is_some_and(|at| at <= now) {
            self.load_keys(core);
        }
        if self.kept.is_due(now)
            && let Some(peers) = self.stored(core)
        {
            self.kept.write(peers);
        }
        if self.places.wait(now).is_zero()
            && let Some(place) = self.next_place.take()
        {
            self.placed(place, now);
        }
        if self.keys.is_none() || now < self.look_at {
            return;
        }
        self.look_at = now + LOOK;
        let known = self.resolved.as_ref().filter(|(at, _)| now < *at + RESOLVED);
        let known = known.map(|(_, servers)| servers.clone());
        let named: Vec<(String, u16)> =
            servers.iter().take(4).map(|server| (server.host(), server.port())).collect();
        let interface = self.config.interface.clone();
        self.look.begin(async move {
            let servers = match known {
                Some(known) => known,
                None => resolve(named).await,
            };
            Looked { found: Whereabouts::look(&servers, &interface).ok(), servers }
        });
    }

    fn looked(&mut self, core: &mut AgentCore, looked: Result<Looked, CallPanicked>) -> OverlayEvent {
        let Ok(Looked { servers, found }) = looked else { return OverlayEvent::Nothing };
        if !servers.is_empty() && self.resolved.as_ref().is_none_or(|(_, known)| *known != servers) {
            self.resolved = Some((Instant::now(), servers));
        }
        let Some(found) = found else { return OverlayEvent::Nothing };
        if found.addresses == self.here || found.addresses.is_empty() {
            return OverlayEvent::Nothing;
        }
        let before = std::mem::replace(&mut self.here, found.addresses);
        let moved = !before.is_empty() && !found.has(before);
        if !before.is_empty() && core.reporting.is_new("overlay endpoint") {
            let OwnAddresses { ipv4, ipv6 } = self.here;
            let shown = [ipv4.map(IpAddr::from), ipv6.map(IpAddr::from)].into_iter().flatten();
            let shown = shown.map(|ip| ip.to_string()).collect::<Vec<_>>().join(", ");
            tracing::info!(addresses = shown, "this host has another address for the overlay");
        }
        let families = self.families();
        if let Some(worker) = &self.worker {
            worker.change(|wanted| {
                if wanted.families != families {
                    wanted.families = families;
                    wanted.all_changed();
                }
                if !before.is_empty() {
                    wanted.moved();
                }
            });
        }
        if moved { OverlayEvent::Moved } else { OverlayEvent::Nothing }
    }

    /// Where others reach this host.
    fn underlay(&self) -> Option<UnderlayAddresses> {
        let OwnAddresses { ipv4, ipv6 } = self.here;
        self.config.endpoint.or_else(|| UnderlayAddresses::of(ipv4, ipv6, self.config.port))
    }

    /// By which families others are reached: those by which they reach this host; any, where nothing can be said.
    fn families(&self) -> OwnFamilies {
        match self.underlay() {
            Some(underlay) => OwnFamilies { ipv4: underlay.has_ipv4(), ipv6: underlay.has_ipv6() },
            None => OwnFamilies::default(),
        }
    }

    /// What is to be on record.
    fn claim(&self) -> Option<PlaceClaim> {
        // Nothing can be said before the first look.
        self.underlay()?;
        let key = self.keys.as_ref()?.claimed().public().ok()?;
        self.challenge.map(|_| PlaceClaim { key, underlay: self.underlay() })
    }

    /// The claim to send now, if one is due.
    pub fn due_claim(&mut self, node_id: &str) -> Option<OverlayClaim> {
        let (claim, now) = (self.claim()?, Instant::now());
        if !self.claims.is_due(claim, now) {
            return None;
        }
        let (keys, challenge) = (self.keys.as_ref()?, self.challenge.as_ref()?);
        let key = keys.claimed();
        let proof = key.prove(challenge, node_id);
        // That the key on record is this host's too.
        let former = Some(keys.current()).filter(|current| *current != key);
        let former = former.and_then(|former| former.prove_for(challenge, node_id, &claim.key).ok());
        let (proof, public) = match proof.and_then(|proof| Ok((proof, key.public_text()?))) {
            Ok(made) => made,
            Err(error) => {
                self.trouble = Some(Unavailable::failed(format!("the key cannot be proven: {error}")));
                self.challenge = None;
                return None;
            }
        };
        self.claims.claimed(claim, now);
        let known = self.worker.as_ref().map_or(0, |worker| worker.wanted(|wanted| wanted.peers.revision()));
        Some(OverlayClaim {
            wireguard_public_key: public,
            proof: proof.to_vec(),
            former_proof: former.map(|proof| proof.to_vec()).unwrap_or_default(),
            underlay: claim.underlay.map(UnderlayAddresses::message),
            revision: if self.claims.is_lost() { 0 } else { known },
        })
    }

    /// What became of a claim.
    pub fn answered(&mut self, core: &mut AgentCore, answer: &OverlayAnswer) {
        let Some(keys) = self.keys.as_mut().filter(|_| self.challenge.is_some()) else { return };
        if keys.claimed().public_text().ok().as_ref() != Some(&answer.wireguard_public_key) {
            return;
        }
        if !answer.code.is_empty() {
            return self.refused(core, answer);
        }
        let now = Instant::now();
        let place = match GrantedPlace::of(answer) {
            Ok(place) => place,
            Err(reason) => {
                core.reporting.log(
                    AgentCode::AnswerInvalid,
                    &format!("the place in the overlay is not taken: {reason}"),
                );
                self.claims.refused(now);
                self.trouble = Some(Unavailable::failed(reason));
                return;
            }
        };
        if let Err(error) = keys.recorded(core) {
            core.not_written("the new WireGuard key could not be put in its place", &error);
            self.claims.refused(now);
            return;
        }
        self.trouble = None;
        for order_id in self.ordered.drain(..) {
            self.answers.push(OrderAnswer { order_id, result: Ok(()) });
        }
        if self.place.is_some_and(|before| before != place) && !self.places.wait(now).is_zero() {
            if core.reporting.is_new("overlay places") {
                tracing::warn!("the control plane changes this host's place in the overlay too often; paced");
            }
            self.next_place = Some(place);
        } else {
            self.placed(place, now);
        }
    }

    /// This host has this place from here on.
    fn placed(&mut self, place: GrantedPlace, now: Instant) {
        let before = self.place.replace(place);
        self.next_place = None;
        if before != Some(place) {
            self.places.count(now);
            self.kept.changed(false);
        }
        self.follow(place);
        let network = |place: GrantedPlace| prefix(place.address, place.prefix_length);
        if before.is_some_and(|before| network(before) != network(place)) {
            // Peers of another network are none of this one.
            if let Some(worker) = &self.worker {
                worker.change(|wanted| {
                    wanted.peers.clear();
                    wanted.all_changed();
                });
            }
            self.missed = true;
        }
        if self.worker.is_none() {
            self.claims.refused(now);
        } else if std::mem::take(&mut self.missed) {
            self.claims.place_lost(now);
        }
    }

    /// The interface is to be so.
    fn follow(&mut self, place: GrantedPlace) {
        let Some(keys) = &self.keys else { return };
        if self.worker.is_none() {
            match OverlayWorker::start(self.config.backend) {
                Ok(worker) => self.worker = Some(worker),
                Err(unavailable) => self.trouble = Some(unavailable),
            }
        }
        let spec = InterfaceSpec {
            name: self.config.interface.clone(),
            port: self.config.port,
            key: keys.current().clone(),
            address: place.address,
            prefix_length: place.prefix_length,
            mtu: self.config.mtu.unwrap_or(place.mtu),
        };
        let families = self.families();
        if let Some(worker) = &self.worker {
            worker.change(|wanted| {
                if wanted.keepalive != place.keepalive || wanted.families != families {
                    (wanted.keepalive, wanted.families) = (place.keepalive, families);
                    wanted.all_changed();
                }
                wanted.interface = Some(spec);
            });
        }
    }

    fn refused(&mut self, core: &mut AgentCore, answer: &OverlayAnswer) {
        let code: String = answer.code.chars().filter(|sign| sign.is_ascii_graphic()).take(64).collect();
        let detail: String = answer.detail.chars().filter(|sign| !sign.is_control()).take(300).collect();
        let what = format!("the control plane refuses this host's place in the overlay: {code}: {detail}");
        // Once a minute, whatever is said.
        if core.reporting.is_new("overlay refused") {
            tracing::warn!(code, "{what}");
        }
        let known = Code::of(&code);
        if known.is_some_and(|code| KEY_REFUSED.contains(&code)) {
            self.fail_orders(&code);
            // A key that was to take the place of another is given up; that one is claimed again, and is what counts.
            if self.keys.as_mut().is_some_and(|keys| keys.give_up_next(core)) {
                return;
            }
        }
        self.claims.refused(Instant::now());
        let unavailable = Unavailable::failed(what);
        self.trouble = Some(match known {
            Some(code) => unavailable.with(code.hint),
            None => unavailable,
        });
    }

    fn fail_orders(&mut self, detail: &str) {
        for order_id in self.ordered.drain(..) {
            self.answers.push(OrderAnswer { order_id, result: Err(detail.to_owned()) });
        }
    }

    /// The control plane orders another key.
    pub fn rekey(&mut self, core: &mut AgentCore, order_id: String) {
        if self.ordered.contains(&order_id) {
            return;
        }
        let now = Instant::now();
        let begun = match self.keys.as_mut().filter(|_| self.challenge.is_some()) {
            None => Err("this host is in no overlay".to_owned()),
            Some(_) if !self.rekeys.wait(now).is_zero() => Err("too many orders".to_owned()),
            Some(keys) => keys.begin_next(core),
        };
        self.rekeys.count(now);
        match begun {
            Ok(()) => {
                tracing::info!(order_id, "another WireGuard key was ordered by the control plane");
                self.ordered.push(order_id);
            }
            Err(detail) => self.answers.push(OrderAnswer { order_id, result: Err(detail) }),
        }
    }

    /// Orders that have ended since this was last asked.
    pub fn ended_orders(&mut self) -> Vec<OrderAnswer> {
        std::mem::take(&mut self.answers)
    }

    /// The control plane tells of peers.
    pub fn told(&mut self, core: &mut AgentCore, message: OverlayPeers) {
        let now = Instant::now();
        let (Some(place), Some(keys), Some(worker)) = (self.place, &self.keys, &self.worker) else {
            // Asked for again as soon as there is a place.
            self.missed = true;
            return;
        };
        if !self.told.wait(now).is_zero() {
            core.reporting
                .log(AgentCode::AnswerInvalid, "the control plane tells more peers than are taken in");
            return self.claims.place_lost(now);
        }
        let thousands = message.peers.len().saturating_add(message.gone.len()) / 1000;
        for _ in 0..=thousands {
            self.told.count(now);
        }
        let node_id = core.identity.node_id().unwrap_or_default().to_owned();
        let place = interface_place(node_id, keys, place);
        let (is_urgent, taken) = worker.change(|wanted| {
            let is_urgent = wanted.peers.is_outdated_by(&message);
            let taken = wanted.peers.take(message, &place);
            match &taken {
                Ok(Taken::Changed(nodes)) => wanted.changed(nodes.clone()),
                Ok(Taken::Whole) => wanted.all_changed(),
                Ok(Taken::Nothing | Taken::Piece | Taken::PlaceLost) | Err(_) => {}
            }
            (is_urgent, taken)
        });
        if matches!(taken, Ok(Taken::Whole | Taken::Changed(_))) {
            self.kept.changed(is_urgent);
        }
        match taken {
            Ok(Taken::Whole) => self.claims.found(),
            Ok(Taken::Nothing | Taken::Piece | Taken::Changed(_)) => {}
            Ok(Taken::PlaceLost) => self.claims.place_lost(now),
            Err(reason) => {
                let what = format!("peers of the overlay are not taken in: {reason}");
                core.reporting.log(AgentCode::AnswerInvalid, &what);
                self.claims.place_lost(now);
            }
        }
    }

    fn condition(&self) -> OverlayCondition {
        self.worker.as_ref().map(OverlayWorker::condition).unwrap_or_default()
    }

    fn state(&self, condition: &OverlayCondition) -> (OverlayState, Option<Unavailable>) {
        if !self.is_wanted() {
            return (OverlayState::Off, None);
        }
        if condition.up.is_some() {
            return (OverlayState::Up, None);
        }
        let why =
            self.trouble.clone().or_else(|| condition.unavailable.clone()).unwrap_or_else(|| self.waiting());
        (OverlayState::Unavailable, Some(why))
    }

    /// For what, while nothing is wrong.
    fn waiting(&self) -> Unavailable {
        Unavailable::waiting(if self.challenge.is_none() {
            "the control plane has not been reached yet"
        } else if self.underlay().is_none() {
            "no address was found at which others could reach this host"
        } else if self.place.is_none() {
            "the control plane has not answered yet where this host is"
        } else {
            "the interface is being made"
        })
    }

    fn public_key(&self) -> Option<String> {
        self.keys.as_ref()?.current().public_text().ok()
    }

    pub fn status(&self, status: &mut Status) {
        let condition = self.condition();
        let (state, why) = self.state(&condition);
        let shown = state != OverlayState::Off;
        status.overlay = Some(OverlayStatus {
            state,
            reason: why.as_ref().map(|why| why.reason.as_str().to_owned()),
            remedy: why.as_ref().map(|why| why.remedy().to_owned()),
            detail: why.map(|why| why.detail),
            interface: shown.then(|| self.config.interface.clone()),
            address: self.place.filter(|_| shown).map(|place| place.address.to_string()),
            public_key: self.public_key(),
            peers: condition.peers,
            unreachable: condition.unreachable,
            unanswered: condition.unanswered,
        });
    }

    pub fn evidence(&mut self, evidence: &mut Evidence) {
        let condition = self.condition();
        let (state, why) = self.state(&condition);
        if state == OverlayState::Off && !self.offered {
            return;
        }
        if why.as_ref().is_some_and(|why| why.reason == UnavailableReason::Waiting) {
            // Nothing to be alarmed by; what was said before holds until there is something to say.
            evidence.overlay = self.reported.as_ref().map(|(_, report)| report.clone());
            return;
        }
        let report = OverlayReport {
            state: state.as_str().to_owned(),
            reason: why.as_ref().map(|why| why.reason.as_str().to_owned()).unwrap_or_default(),
            detail: why.map(|why| why.detail.chars().take(300).collect()).unwrap_or_default(),
            interface: self.config.interface.clone(),
            backend: condition.up.unwrap_or_default().to_owned(),
            wireguard_public_key: self.public_key().unwrap_or_default(),
            revision: condition.revision,
            peers: u32::try_from(condition.peers).unwrap_or(u32::MAX),
            differences: u32::try_from(condition.differences).unwrap_or(u32::MAX),
            oldest_handshake_s: condition.oldest_handshake.map(|age| age.as_secs()),
            recent_handshakes: u32::try_from(condition.recent_handshakes).unwrap_or(u32::MAX),
            received_bytes: condition.received_bytes,
            sent_bytes: condition.sent_bytes,
        };
        let now = Instant::now();
        let (at, before) = self.reported.get_or_insert_with(|| (now, report.clone()));
        // A message each time that a byte passes, or that one of thousands joins, would be too many.
        if is_due(before, &report, now.duration_since(*at)) {
            (*at, *before) = (now, report);
        }
        evidence.overlay = Some(before.clone());
    }

    pub fn metrics(&self) -> Option<(OverlayState, Option<Unavailable>, OverlayCondition)> {
        let condition = self.condition();
        let (state, why) = self.state(&condition);
        (state != OverlayState::Off).then_some((state, why, condition))
    }
}

/// Whether a report is to be sent so long after the one before.
fn is_due(before: &OverlayReport, now: &OverlayReport, elapsed: Duration) -> bool {
    let state = |report: &OverlayReport| {
        let OverlayReport { state, reason, backend, wireguard_public_key, interface, .. } = report.clone();
        (state, reason, backend, wireguard_public_key, interface, report.differences > 0)
    };
    let peers = |report: &OverlayReport| (report.revision, report.peers, report.differences);
    state(before) != state(now)
        || (peers(before) != peers(now) && elapsed >= PEERS_REPORTED)
        || (before != now && elapsed >= FIGURES_REPORTED)
}

fn interface_place(node_id: String, keys: &OverlayKeys, place: GrantedPlace) -> InterfacePlace {
    let GrantedPlace { address, prefix_length, .. } = place;
    InterfacePlace { node_id, keys: keys.public(), address, prefix_length }
}

async fn resolve(named: Vec<(String, u16)>) -> Vec<SocketAddr> {
    let mut servers = Vec::new();
    for (host, port) in named {
        if let Ok(Ok(found)) = timeout(LOOKUP, lookup_host((host.as_str(), port))).await {
            servers.extend(found.take(8));
        }
    }
    servers
}
