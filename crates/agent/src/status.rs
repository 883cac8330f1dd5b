//! `status`: what can be told of this host's identity, by the running daemon or else from its disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anstyle::Style;
use lifecycle::host::{Class, IdentityProvider};
use lifecycle::names::Timestamp;
use lifecycle::registry::Session;
use rustls_pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::code::{self, AgentCode, PENDING, QUARANTINED, UNCONNECTED};
use crate::config::KeyStorage;
use crate::fault::Fault;
use crate::memory::{KeptOverRestart, MemoryStatus};
use crate::reconcile::profile;
use crate::recover::endpoint::ENROLL_ANEW;
use crate::screen::{ATTENTION, BAD, Columns, GOOD, HumanText, harmless};
use crate::space::Free;
use crate::store::dir::Dir;
use crate::store::host_config::{self, ConfigInForce, ConfigState, HostConfig};
use crate::store::identity::{self, HostIdentity, StoredIdentity};
use crate::store::pending::Pending;
use crate::store::trust_refused::{self, TrustRefused};
use crate::store::{last_attempts, recovery, revoked, unconfirmed};

const CERT_EXPIRED: &str = "cert_expired";
const NOT_YET_VALID: &str = "not_yet_valid";
const DAEMON_STOPPED: &str = "daemon_stopped";
const NOT_ENROLLED: &str = "not_enrolled";
pub const ENROLLMENT_PENDING: &str = "enrollment_pending";
pub const CHANNEL_DOWN: &str = "channel_down";
/// No control plane knows the issuer of the certificate: as a rule it was retired.
pub const ISSUER_UNKNOWN: &str = "issuer_unknown";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentState {
    Unenrolled,
    /// Enrolling was begun and has not ended.
    Pending,
    Enrolled,
    /// The control plane's word, heard by the daemon.
    Active,
    Inactive,
    Expired,
    Revoked,
}

/// The connection to the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChannelState {
    Up,
    /// Up, while another for a renewed certificate is being proven.
    Switching,
    Down,
}

/// How an undertaking ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastAttempt {
    pub at: String,
    pub ok: bool,
    /// The class of failure, when not ok.
    pub class: Option<String>,
    pub correlation_id: String,
}

impl std::fmt::Display for LastAttempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.class {
            Some(class) => write!(f, "failed at {} ({class})", self.at),
            None => write!(f, "{} at {}", if self.ok { "ok" } else { "failed" }, self.at),
        }
    }
}

/// Every field is always there; what only a running daemon could know is null.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    pub node_id: Option<String>,
    /// `spire`, `control-plane`, `bootstrap` or `none`: where the identity in use comes from, which the SPIFFE id, the serial and the end
    /// of validity describe.
    #[serde(default)]
    pub identity_provider: String,
    pub spiffe_id: Option<String>,
    pub state: AgentState,
    pub cert_serial: Option<String>,
    pub cert_not_after: Option<String>,
    /// The host's own certificate where it is connected by an SVID; not shown otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fall_back: Option<FallBack>,
    pub renew_at: Option<String>,
    pub channel: ChannelState,
    pub last_renewal: Option<LastAttempt>,
    pub last_recovery: Option<LastAttempt>,
    pub recovery_ready: bool,
    /// False where the control plane has said that this node was enrolled without recovery; not shown otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery_eligible: Option<bool>,
    /// When a host whose issuer was retired recovers by itself; not shown otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovers_at: Option<String>,
    /// A CA or a trust bundle that was offered and not taken; not shown if there was none since the last that was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust_refused: Option<TrustRefused>,
    /// What this host trusts; not shown without an identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<TrustStatus>,
    /// How far this clock is ahead of the control plane's.
    pub clock_offset_ms: Option<i64>,
    pub endpoint_profile: Option<String>,
    pub disk: Disk,
    pub overlay: Option<OverlayStatus>,
    /// Nothing in maintenance mode, and where no configuration is known.
    pub vcluster: Option<String>,
    /// The configuration document in force.
    #[serde(default)]
    pub config: Option<ConfigInForce>,
    #[serde(default)]
    pub config_state: Option<ConfigState>,
    /// Where identity, tokens and configuration are kept.
    #[serde(default)]
    pub storage: KeyStorage,
    /// Of a running daemon that keeps them in memory; not shown otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryStatus>,
    /// The shells and commands that are registered as sessions on this host.
    #[serde(default)]
    pub sessions: Vec<SessionStatus>,
    pub ready: bool,
    /// Why not ready, in stable words.
    pub reasons: Vec<String>,
    /// What the host waits for that is not enrolled yet; not shown otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<WaitingFor>,
    /// What the control plane refused last, with its own code and remedy, while that is the condition at hand; not shown otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing: Option<WaitingFor>,
}

/// What the host falls back on when SPIRE gives no more SVIDs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FallBack {
    pub cert_serial: Option<String>,
    pub cert_not_after: Option<String>,
    /// Why the control plane does not accept it: `denied`, `superseded` or `expired`; null where it does.
    pub refused: Option<String>,
}

/// By what this host recognises the control plane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustStatus {
    /// Fingerprints of the trust bundle.
    pub roots: Vec<String>,
    pub bundle_version: u64,
    /// The number of the revocation list of each root that has one here, by the root's fingerprint.
    pub crl_numbers: BTreeMap<String, u64>,
}

impl TrustStatus {
    fn of(identity: &HostIdentity) -> Self {
        let fingerprint = |der: &CertificateDer<'_>| pki::digest::fingerprint(der).labelled().to_string();
        Self {
            roots: identity.bundle.iter().map(fingerprint).collect(),
            bundle_version: identity.bundle_version(),
            crl_numbers: identity
                .root_lists
                .numbers()
                .map(|(root, number)| (root.labelled().to_string(), number))
                .collect(),
        }
    }
}

/// Whether this host is in the overlay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverlayState {
    Up,
    Unavailable,
    Off,
}

impl OverlayState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Unavailable => "unavailable",
            Self::Off => "off",
        }
    }
}

/// The overlay as it is on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverlayStatus {
    pub state: OverlayState,
    /// Why it is unavailable.
    pub reason: Option<String>,
    /// What shows it, in a sentence; not shown otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// What helps; not shown otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    pub interface: Option<String>,
    pub address: Option<String>,
    pub public_key: Option<String>,
    /// How many peers the interface has.
    pub peers: usize,
    /// How many of them have no address in a family that this host has.
    #[serde(default)]
    pub unreachable: usize,
    /// To how many packets go that nobody has answered for over three minutes.
    #[serde(default)]
    pub unanswered: usize,
}

impl OverlayStatus {
    /// For people; none where there is to be no overlay.
    fn line(&self) -> Option<String> {
        let with = |label: &str, text: &Option<String>| {
            text.as_deref().map(|text| format!("{label}{}", harmless(text))).unwrap_or_default()
        };
        match self.state {
            OverlayState::Off => None,
            OverlayState::Up => Some(self.to_string()),
            OverlayState::Unavailable => {
                Some(format!("{self}{}{}", with(": ", &self.detail), with("; remedy: ", &self.remedy)))
            }
        }
    }
}

impl std::fmt::Display for OverlayStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |text: &Option<String>| text.as_deref().map(harmless).unwrap_or_default();
        match self.state {
            OverlayState::Up => {
                let peers = if self.peers == 1 { "peer" } else { "peers" };
                write!(f, "up ({}, {}, {} {peers}", text(&self.interface), text(&self.address), self.peers)?;
                if self.unreachable > 0 {
                    write!(f, ", {} without an address in a family that this host has", self.unreachable)?;
                }
                if self.unanswered > 0 {
                    write!(f, ", {} not answering", self.unanswered)?;
                }
                f.write_str(")")
            }
            OverlayState::Unavailable => write!(f, "unavailable ({})", text(&self.reason)),
            OverlayState::Off => f.write_str("off"),
        }
    }
}

/// A session that is open on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionStatus {
    pub session_id: String,
    /// `shell` or `exec`.
    pub kind: String,
    pub user: String,
    pub opened_at: String,
    /// The user id of whoever registered it; not shown.
    #[serde(skip)]
    pub owner: u32,
}

impl SessionStatus {
    pub fn of(session: &Session, owner: u32) -> Self {
        Self {
            session_id: session.id.to_string(),
            kind: session.kind.to_string(),
            user: session.user.to_string(),
            opened_at: session.opened_at.to_string(),
            owner,
        }
    }
}

/// Why an enrollment has not succeeded yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingFor {
    /// The error code of the last attempt.
    pub code: String,
    pub message: String,
    pub remedy: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    pub path: String,
    pub available_bytes: Option<u64>,
    /// Of every place that a running daemon watches.
    #[serde(default)]
    pub paths: Vec<Room>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// `cert`, `diagnostic`, `task_retry` or `runtime`.
    pub name: String,
    pub path: String,
    pub available_bytes: u64,
}

impl Room {
    pub fn of(free: &Free) -> Self {
        let path = free.path.display().to_string();
        Self { name: free.name.to_owned(), path, available_bytes: free.available_bytes }
    }
}

impl Status {
    /// Changes nothing.
    pub fn read(dir: &Path, at: Timestamp) -> Result<Self, Fault> {
        let standing = identity::load(dir).map_err(|error| {
            let hint = "run the command as the owner of the directory";
            Fault::host(AgentCode::DirUnusable, format!("{}: {error}", dir.display()), hint)
        })?;
        Ok(match standing {
            StoredIdentity::Present(found) => {
                let mut status = Self::of(dir, &found, at).without_daemon();
                let config = host_config::load(dir, found.node_id().unwrap_or_default());
                status.show_config(config.as_ref(), true);
                status
            }
            StoredIdentity::Absent if Pending::read(dir).is_some() => {
                Self::without(dir, AgentState::Pending, ENROLLMENT_PENDING)
            }
            StoredIdentity::Absent => Self::without(dir, AgentState::Unenrolled, NOT_ENROLLED),
            StoredIdentity::Exposed(_) => Self::without(dir, AgentState::Unenrolled, "key_exposed"),
            StoredIdentity::Damaged(reason) => {
                tracing::warn!(%reason, "the identity in this directory cannot be used");
                Self::without(dir, AgentState::Unenrolled, "identity_damaged")
            }
        })
    }

    /// What was in memory is gone with the daemon, or waits in the service manager's store for its next start.
    pub fn of_ended_memory(dir: &Path) -> Self {
        let status = Self::without(dir, AgentState::Unenrolled, DAEMON_STOPPED);
        Self { storage: KeyStorage::Memory, ..status }
    }

    /// The daemon does not run, and would obtain what is missing.
    pub fn obtains_by(&mut self, remedy: Option<&str>) {
        if let Some(remedy) = remedy.filter(|_| self.state == AgentState::Unenrolled) {
            let message = "this host has no identity yet, and the daemon does not run".to_owned();
            let code = AgentCode::NotEnrolled.word().to_owned();
            self.waiting = Some(WaitingFor { code, message, remedy: remedy.to_owned() });
        }
    }

    /// Says where it is kept, for people to whom a descriptor of the daemon means nothing.
    pub fn is_kept_by(&mut self, dir: &Dir) {
        let Some(memory) = dir.memory() else { return };
        self.storage = KeyStorage::Memory;
        self.memory = Some(memory.status());
        self.disk.path = dir.place().display().to_string();
        self.disk.available_bytes = None;
    }

    /// An identity that nobody uses or renews, and of which nobody knows what the control plane thinks.
    fn without_daemon(mut self) -> Self {
        self.reason(DAEMON_STOPPED, true);
        self.ready = false;
        self
    }

    pub fn show_config(&mut self, config: Option<&HostConfig>, cached: bool) {
        self.vcluster = config.and_then(HostConfig::vcluster).map(str::to_owned);
        self.config = config.map(|config| config.document().clone());
        self.config_state = config.map(|config| config.state(cached));
    }

    /// What to do about the gravest of the reasons.
    fn remedy(&self) -> Option<&'static str> {
        let holds = |word: &str| self.reasons.iter().any(|reason| reason == word);
        match self.state {
            AgentState::Revoked => Some(code::revoked(self.storage)),
            AgentState::Unenrolled
            | AgentState::Pending
            | AgentState::Enrolled
            | AgentState::Active
            | AgentState::Inactive
            | AgentState::Expired => {
                // The class of the failure at hand says more than that there is no channel.
                let failing = Class::ALL.iter().filter(|class| **class != Class::IdentityRevokedOrFenced);
                let failing = failing.map(|class| (class.as_str(), class.remedy()));
                let known = [
                    ("quarantined", QUARANTINED),
                    (DAEMON_STOPPED, code::stopped(self.storage)),
                    (ENROLLMENT_PENDING, PENDING),
                    (NOT_ENROLLED, AgentCode::NotEnrolled.remedy()),
                    (ISSUER_UNKNOWN, code::UNKNOWN_ISSUER),
                ];
                let known = known.into_iter().chain(failing).chain([(CHANNEL_DOWN, UNCONNECTED)]);
                known.into_iter().find(|(word, _)| holds(word)).map(|(_, remedy)| remedy)
            }
        }
    }

    /// Not ready for this reason, if it holds and is not there already.
    pub fn reason(&mut self, word: &str, holds: bool) {
        if holds && !self.reasons.iter().any(|reason| reason == word) {
            self.reasons.push(word.to_owned());
        }
    }

    /// What was told by a clock that is known to be wrong.
    pub fn forget_dates(&mut self) {
        self.reasons.retain(|reason| reason != CERT_EXPIRED && reason != NOT_YET_VALID);
        if self.state == AgentState::Expired {
            self.state = AgentState::Enrolled;
        }
    }

    pub fn of(dir: &Path, identity: &HostIdentity, at: Timestamp) -> Self {
        let expired = identity.is_expired(at);
        let revoked = revoked::is_set(dir, &identity.facts.serial);
        let state = match (revoked, expired) {
            (true, _) => AgentState::Revoked,
            (false, true) => AgentState::Expired,
            (false, false) => AgentState::Enrolled,
        };
        let reasons = [
            ("revoked", revoked),
            (Class::IdentityRevokedOrFenced.as_str(), revoked),
            (CERT_EXPIRED, expired),
            (NOT_YET_VALID, at < identity.facts.not_before),
            ("unconfirmed", unconfirmed::is_set(dir, &identity.facts.serial)),
        ];
        let reasons: Vec<String> =
            reasons.into_iter().filter(|(_, holds)| *holds).map(|(word, _)| word.to_owned()).collect();
        Self {
            node_id: identity.node_id().map(str::to_owned),
            identity_provider: IdentityProvider::ControlPlane.to_string(),
            spiffe_id: Some(identity.spiffe.to_string()),
            cert_serial: Some(identity.facts.serial.to_string()),
            cert_not_after: Some(identity.facts.not_after.to_string()),
            renew_at: identity.renew_at().map(str::to_owned),
            trust: Some(TrustStatus::of(identity)),
            ready: reasons.is_empty(),
            reasons,
            waiting: None,
            ..Self::without(dir, state, "")
        }
    }

    pub fn without(dir: &Path, state: AgentState, reason: &str) -> Self {
        let attempts = last_attempts::read(dir);
        Self {
            node_id: None,
            identity_provider: IdentityProvider::None.to_string(),
            spiffe_id: None,
            state,
            cert_serial: None,
            cert_not_after: None,
            fall_back: None,
            renew_at: None,
            channel: ChannelState::Down,
            last_renewal: attempts.last_renewal,
            last_recovery: attempts.last_recovery,
            recovery_ready: recovery::is_ready(dir, clock::now()),
            recovery_eligible: recovery::is_ineligible(dir).then_some(false),
            recovers_at: None,
            trust_refused: trust_refused::read(dir),
            trust: None,
            clock_offset_ms: None,
            endpoint_profile: profile::load(dir).ok().flatten().map(|profile| profile.id),
            disk: Disk::of(dir),
            overlay: None,
            vcluster: None,
            config: None,
            config_state: None,
            storage: KeyStorage::Disk,
            memory: None,
            sessions: Vec::new(),
            ready: false,
            reasons: vec![reason.to_owned()],
            waiting: None,
            failing: None,
        }
    }
}

impl Disk {
    /// Of the directory, or of the nearest one above it that is there.
    pub fn of(dir: &Path) -> Self {
        let there: Option<PathBuf> = dir.ancestors().find(|path| path.exists()).map(Path::to_owned);
        let space = there.and_then(|path| rustix::fs::statvfs(&path).ok());
        Self {
            path: dir.display().to_string(),
            // A file system without any blocks, such as one in memory, has no bounds that could be told.
            available_bytes: space
                .filter(|space| space.f_blocks > 0)
                .map(|space| space.f_bavail.saturating_mul(space.f_frsize)),
            paths: Vec::new(),
        }
    }
}

impl HumanText for Status {
    fn text(&self, screen: Columns) -> String {
        let style = tone(self.state);
        let channel = match self.channel {
            ChannelState::Up => "up",
            ChannelState::Switching => "switching",
            ChannelState::Down => "down",
        };
        let revoked = self.state == AgentState::Revoked;
        let recovery = match self.recovery_ready {
            _ if revoked => "not possible: a revoked identity cannot be recovered".to_owned(),
            true => "ready".to_owned(),
            false if self.storage == KeyStorage::Memory => {
                "not possible: with storage in memory no recovery token is kept; a restart enrolls anew"
                    .to_owned()
            }
            false if self.recovery_eligible == Some(false) => {
                format!("not possible: enrolled without recovery; {ENROLL_ANEW}")
            }
            false => "not ready".to_owned(),
        };
        let recovery = match &self.recovers_at {
            Some(at) => format!("{recovery}: recovers by itself at {at}"),
            None => recovery,
        };
        let recovery = match &self.last_recovery {
            Some(last) => format!("{recovery}; last recovery {last}"),
            None => recovery,
        };
        let failing = self.failing.as_ref();
        let of_failing = failing.map(|failing| failing.remedy.clone());
        let (waiting, remedy) =
            (self.waiting.as_ref(), of_failing.or_else(|| self.remedy().map(str::to_owned)));
        let fields = [
            ("state", Some(format!("{style}{}{style:#}", word(self.state)))),
            ("node", self.node_id.as_deref().map(harmless)),
            ("identity", Some(harmless(&self.identity_provider))),
            ("SPIFFE ID", self.spiffe_id.as_deref().map(harmless)),
            ("serial", self.cert_serial.as_deref().map(harmless)),
            ("valid until", self.cert_not_after.clone()),
            ("fall-back", self.fall_back.as_ref().map(fall_back)),
            ("renew at", self.renew_at.as_deref().map(harmless)),
            ("channel", Some(channel.to_owned())),
            ("last renewal", self.last_renewal.as_ref().map(ToString::to_string)),
            ("recovery", Some(recovery)),
            ("refused", self.trust_refused.as_ref().map(refused)),
            (
                "vCluster",
                self.config_state
                    .as_ref()
                    .map(|_| self.vcluster.as_deref().map_or_else(maintenance, harmless)),
            ),
            ("config", self.config_state.as_ref().map(configuration)),
            ("sessions", (!self.sessions.is_empty()).then(|| sessions(&self.sessions))),
            ("overlay", self.overlay.as_ref().and_then(OverlayStatus::line)),
            ("directory", Some(harmless(&self.disk.path))),
            ("storage", self.memory.as_ref().map(in_memory)),
            ("not ready", (!self.ready).then(|| harmless(&self.reasons.join(", ")))),
            (
                "refused with",
                failing.map(|failing| harmless(&format!("{}: {}", failing.code, failing.message))),
            ),
            ("waits for", waiting.map(|waiting| harmless(&format!("{}: {}", waiting.code, waiting.message)))),
            ("remedy", waiting.map(|waiting| harmless(&waiting.remedy)).or(remedy)),
        ];
        let shown = fields.into_iter().filter_map(|(label, value)| Some((label, value?)));
        let lines = shown.map(|(label, value)| screen.hang(&format!("{label:<12} "), 13, &value));
        lines.collect::<Vec<_>>().join("\n")
    }
}

fn fall_back(own: &FallBack) -> String {
    let FallBack { cert_serial, cert_not_after, refused } = own;
    let certificate = format!("certificate {}", cert_serial.as_deref().unwrap_or("of the domain"));
    harmless(&match (refused, cert_not_after) {
        (Some(word), _) => format!("none: {certificate} is {word}; the agent asks for another by the SVID"),
        (None, Some(at)) => format!("{certificate}, valid until {at}"),
        (None, None) => certificate,
    })
}

fn refused(offer: &TrustRefused) -> String {
    let TrustRefused { at, class, evidence, remedy } = offer;
    harmless(&format!("at {at} ({class}): {evidence}; {remedy}"))
}

fn sessions(open: &[SessionStatus]) -> String {
    let one = |of: &SessionStatus| format!("{} of {} since {}", of.kind, of.user, of.opened_at);
    harmless(&open.iter().map(one).collect::<Vec<_>>().join("; "))
}

fn maintenance() -> String {
    "none: maintenance mode, with the domain's default configuration".to_owned()
}

fn configuration(state: &ConfigState) -> String {
    let ConfigState { base_version, node_version, received_at, cached, .. } = state;
    let node = match node_version {
        0 => String::new(),
        version => format!(", of this node version {version}"),
    };
    let cached = if *cached { "; cached, since the control plane is not connected" } else { "" };
    harmless(&format!("version {base_version}{node}, received {received_at}{cached}"))
}

fn in_memory(memory: &MemoryStatus) -> String {
    let swapping = match (memory.locked, memory.swap) {
        (true, _) => "locked",
        (false, true) => "not locked, and this host has swap space",
        (false, false) => "not locked; this host has no swap space",
    };
    let restart = match memory.kept_over_restart {
        KeptOverRestart::Yes => "kept over a restart of the service",
        KeptOverRestart::Unknown => "kept over a restart of the service if it has FileDescriptorStoreMax=1",
        KeptOverRestart::No => "lost when the daemon ends",
    };
    format!("memory, {swapping}; {restart}")
}

fn tone(state: AgentState) -> Style {
    match state {
        AgentState::Enrolled | AgentState::Active => GOOD,
        AgentState::Unenrolled | AgentState::Pending | AgentState::Inactive => ATTENTION,
        AgentState::Expired | AgentState::Revoked => BAD,
    }
}

fn word(state: AgentState) -> &'static str {
    match state {
        AgentState::Unenrolled => "unenrolled",
        AgentState::Pending => "pending",
        AgentState::Enrolled => "enrolled",
        AgentState::Active => "active",
        AgentState::Inactive => "inactive",
        AgentState::Expired => "expired",
        AgentState::Revoked => "revoked",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_see_whether_it_could_recover_and_how_the_last_attempts_ended() {
        let dir = tempfile::tempdir().unwrap();
        let attempt = |class: Option<&str>| LastAttempt {
            at: "2030-01-01T00:00:00Z".to_owned(),
            ok: class.is_none(),
            class: class.map(str::to_owned),
            correlation_id: String::new(),
        };
        let (last_renewal, last_recovery) = (Some(attempt(Some("disk_full"))), Some(attempt(None)));
        let known = last_attempts::LastAttempts { last_renewal, last_recovery };
        last_attempts::keep(dir.path(), &known).unwrap();
        let text = Status::without(dir.path(), AgentState::Unenrolled, "not_enrolled").text(Columns::PIPE);
        assert!(text.contains("\nlast renewal failed at 2030-01-01T00:00:00Z (disk_full)\n"), "{text}");
        assert!(
            text.contains("\nrecovery     not ready; last recovery ok at 2030-01-01T00:00:00Z\n"),
            "{text}"
        );
    }

    #[test]
    fn every_way_of_not_being_connected_has_a_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let (pending, new, active) = (AgentState::Pending, AgentState::Unenrolled, AgentState::Active);
        for (state, reasons, remedy) in [
            (new, vec![NOT_ENROLLED], AgentCode::NotEnrolled.remedy()),
            (pending, vec![ENROLLMENT_PENDING], PENDING),
            (active, vec![CHANNEL_DOWN], UNCONNECTED),
            (active, vec![CHANNEL_DOWN, "endpoint_unreachable"], Class::EndpointUnreachable.remedy()),
            (active, vec!["clock_skew", CHANNEL_DOWN], Class::ClockSkew.remedy()),
        ] {
            let mut status = Status::without(dir.path(), state, "");
            status.reasons = reasons.into_iter().map(str::to_owned).collect();
            let text = status.text(Columns::PIPE);
            assert!(text.ends_with(&format!("\nremedy       {remedy}")), "{text}");
        }
    }

    #[test]
    fn what_the_control_plane_refuses_with_comes_before_the_class() {
        let dir = tempfile::tempdir().unwrap();
        let mut status = Status::without(dir.path(), AgentState::Active, "endpoint_unreachable");
        let (code, message) = ("issuer_unavailable".to_owned(), "no issuer can sign".to_owned());
        status.failing = Some(WaitingFor { code, message, remedy: "look at `enlist ca show`".to_owned() });
        let text = status.text(Columns::PIPE);
        assert!(text.contains("\nrefused with issuer_unavailable: no issuer can sign"), "{text}");
        assert!(text.ends_with("\nremedy       look at `enlist ca show`"), "{text}");
    }

    #[test]
    fn a_host_that_is_connected_by_an_svid_says_what_it_falls_back_on() {
        let dir = tempfile::tempdir().unwrap();
        let mut status = Status::without(dir.path(), AgentState::Active, "");
        let fall_back = |refused: Option<&str>| FallBack {
            cert_serial: Some("ab".to_owned()),
            cert_not_after: Some("2030-01-01T00:00:00Z".to_owned()),
            refused: refused.map(str::to_owned),
        };
        status.fall_back = Some(fall_back(None));
        let text = status.text(Columns::PIPE);
        assert!(text.contains("\nfall-back    certificate ab, valid until 2030-01-01T00:00:00Z\n"), "{text}");
        status.fall_back = Some(fall_back(Some("denied")));
        let text = status.text(Columns::PIPE);
        assert!(text.contains("\nfall-back    none: certificate ab is denied"), "{text}");
    }

    #[test]
    fn a_revoked_host_is_told_what_to_do_and_promised_no_recovery() {
        let dir = tempfile::tempdir().unwrap();
        let mut status = Status::without(dir.path(), AgentState::Revoked, "revoked");
        status.recovery_ready = true;
        let text = status.text(Columns::PIPE);
        assert!(text.contains(&format!("\nremedy       {}", code::REVOKED)), "{text}");
        assert!(text.contains("\nrecovery     not possible") && !text.contains("     ready"), "{text}");
        status.state = AgentState::Active;
        let text = status.text(Columns::PIPE);
        assert!(text.contains("\nrecovery     ready") && !text.contains("remedy"), "{text}");
    }
}
