//! `status`: what can be told of this host's identity, by the running daemon or else from its disk.

use std::path::{Path, PathBuf};

use lifecycle::names::Timestamp;
use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::store::identity::{self, Identity, Standing};
use crate::store::pending::Pending;
use crate::store::{revoked, unconfirmed};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
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
pub enum Channel {
    Up,
    /// Up, while another for a renewed certificate is being proven.
    Switching,
    Down,
}

/// How an undertaking ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    pub at: String,
    pub ok: bool,
    /// The class of failure, when not ok.
    pub class: Option<String>,
    pub correlation_id: String,
}

/// Every field is always there; what only a running daemon could know is null.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    pub node_id: Option<String>,
    pub spiffe_id: Option<String>,
    pub state: State,
    pub cert_serial: Option<String>,
    pub cert_not_after: Option<String>,
    pub renew_at: Option<String>,
    pub channel: Channel,
    pub last_renewal: Option<Attempt>,
    pub last_recovery: Option<Attempt>,
    pub recovery_ready: bool,
    /// How far this clock is ahead of the control plane's.
    pub clock_offset_ms: Option<i64>,
    pub endpoint_profile: Option<String>,
    pub disk: Disk,
    pub overlay: Option<String>,
    pub vcluster: Option<String>,
    pub ready: bool,
    /// Why not ready, in stable words.
    pub reasons: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    pub path: String,
    pub available_bytes: Option<u64>,
}

impl Status {
    /// Changes nothing.
    pub fn read(dir: &Path, at: Timestamp) -> Result<Self, Fault> {
        let standing = identity::load(dir).map_err(|error| {
            let hint = "run it as the directory's owner";
            Fault::host("dir_unusable", format!("{}: {error}", dir.display()), hint)
        })?;
        Ok(match standing {
            Standing::Present(found) => Self::of(dir, &found, at),
            Standing::Absent if Pending::read(dir).is_some() => {
                Self::without(dir, State::Pending, "enrollment_pending")
            }
            Standing::Absent => Self::without(dir, State::Unenrolled, "not_enrolled"),
            Standing::Exposed(_) => Self::without(dir, State::Unenrolled, "key_exposed"),
            Standing::Damaged(reason) => {
                tracing::warn!(%reason, "the identity here cannot be used");
                Self::without(dir, State::Unenrolled, "identity_damaged")
            }
        })
    }

    /// Whether there is an identity to speak with.
    pub fn is_usable(&self) -> bool {
        let good = matches!(self.state, State::Enrolled | State::Active | State::Inactive);
        good && !self.reasons.iter().any(|reason| reason == "not_yet_valid")
    }

    pub fn of(dir: &Path, identity: &Identity, at: Timestamp) -> Self {
        let expired = identity.is_expired(at);
        let revoked = revoked::is_set(dir, &identity.facts.serial);
        let state = match (revoked, expired) {
            (true, _) => State::Revoked,
            (false, true) => State::Expired,
            (false, false) => State::Enrolled,
        };
        let reasons = [
            ("revoked", revoked),
            ("cert_expired", expired),
            ("not_yet_valid", at < identity.facts.not_before),
            ("unconfirmed", unconfirmed::is_set(dir, &identity.facts.serial)),
        ];
        let reasons: Vec<String> =
            reasons.into_iter().filter(|(_, holds)| *holds).map(|(word, _)| word.to_owned()).collect();
        Self {
            node_id: identity.node_id().map(str::to_owned),
            spiffe_id: Some(identity.spiffe.to_string()),
            cert_serial: Some(identity.facts.serial.to_string()),
            cert_not_after: Some(identity.facts.not_after.to_string()),
            renew_at: identity.renew_at().map(str::to_owned),
            ready: reasons.is_empty(),
            reasons,
            ..Self::without(dir, state, "")
        }
    }

    pub fn without(dir: &Path, state: State, reason: &str) -> Self {
        Self {
            node_id: None,
            spiffe_id: None,
            state,
            cert_serial: None,
            cert_not_after: None,
            renew_at: None,
            channel: Channel::Down,
            last_renewal: None,
            last_recovery: None,
            recovery_ready: false,
            clock_offset_ms: None,
            endpoint_profile: None,
            disk: Disk::of(dir),
            overlay: None,
            vcluster: None,
            ready: false,
            reasons: vec![reason.to_owned()],
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
            available_bytes: space.map(|space| space.f_bavail.saturating_mul(space.f_frsize)),
        }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "state        {}", word(self.state))?;
        for (label, value) in [
            ("node", &self.node_id),
            ("SPIFFE id", &self.spiffe_id),
            ("serial", &self.cert_serial),
            ("valid until", &self.cert_not_after),
            ("renew at", &self.renew_at),
        ] {
            if let Some(value) = value {
                write!(f, "\n{label:<12} {value}")?;
            }
        }
        let channel = match self.channel {
            Channel::Up => "up",
            Channel::Switching => "switching",
            Channel::Down => "down",
        };
        write!(f, "\nchannel      {channel}\ndirectory    {}", self.disk.path)?;
        if !self.ready {
            write!(f, "\nnot ready    {}", self.reasons.join(", "))?;
        }
        Ok(())
    }
}

fn word(state: State) -> &'static str {
    match state {
        State::Unenrolled => "unenrolled",
        State::Pending => "pending",
        State::Enrolled => "enrolled",
        State::Active => "active",
        State::Inactive => "inactive",
        State::Expired => "expired",
        State::Revoked => "revoked",
    }
}
