//! `status`: what can be told of this host's identity from its disk.

use std::path::{Path, PathBuf};

use lifecycle::names::Timestamp;
use serde::Serialize;

use crate::fault::Fault;
use crate::store::identity::{self, Identity, Standing};
use crate::store::pending::Pending;
use crate::store::unconfirmed;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Unenrolled,
    /// Enrolling was begun and has not ended.
    Pending,
    Enrolled,
    Expired,
}

/// Every field is always there; what only a running daemon could know is null.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    pub node_id: Option<String>,
    pub spiffe_id: Option<String>,
    pub state: State,
    pub cert_serial: Option<String>,
    pub cert_not_after: Option<String>,
    pub renew_at: Option<String>,
    pub channel: &'static str,
    pub last_renewal: Option<()>,
    pub last_recovery: Option<()>,
    pub recovery_ready: bool,
    pub clock_offset_ms: Option<i64>,
    pub endpoint_profile: Option<()>,
    pub disk: Disk,
    pub overlay: Option<()>,
    pub vcluster: Option<()>,
    pub ready: bool,
    /// Why not ready, in stable words.
    pub reasons: Vec<&'static str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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
        self.state == State::Enrolled && !self.reasons.contains(&"not_yet_valid")
    }

    fn of(dir: &Path, identity: &Identity, at: Timestamp) -> Self {
        let expired = identity.is_expired(at);
        let reasons = [
            ("cert_expired", expired),
            ("not_yet_valid", at < identity.facts.not_before),
            ("unconfirmed", unconfirmed::is_set(dir, &identity.facts.serial)),
        ];
        let reasons: Vec<&str> =
            reasons.into_iter().filter_map(|(word, holds)| holds.then_some(word)).collect();
        Self {
            node_id: identity.node_id().map(str::to_owned),
            spiffe_id: Some(identity.spiffe.to_string()),
            cert_serial: Some(identity.facts.serial.to_string()),
            cert_not_after: Some(identity.facts.not_after.to_string()),
            renew_at: identity.renew_at().map(str::to_owned),
            ready: reasons.is_empty(),
            reasons,
            ..Self::without(dir, if expired { State::Expired } else { State::Enrolled }, "")
        }
    }

    fn without(dir: &Path, state: State, reason: &'static str) -> Self {
        Self {
            node_id: None,
            spiffe_id: None,
            state,
            cert_serial: None,
            cert_not_after: None,
            renew_at: None,
            channel: "down",
            last_renewal: None,
            last_recovery: None,
            recovery_ready: false,
            clock_offset_ms: None,
            endpoint_profile: None,
            disk: Disk::of(dir),
            overlay: None,
            vcluster: None,
            ready: false,
            reasons: vec![reason],
        }
    }
}

impl Disk {
    /// Of the directory, or of the nearest one above it that is there.
    fn of(dir: &Path) -> Self {
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
        let word = match self.state {
            State::Unenrolled => "unenrolled",
            State::Pending => "pending",
            State::Enrolled => "enrolled",
            State::Expired => "expired",
        };
        write!(f, "state        {word}")?;
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
        write!(f, "\ndirectory    {}", self.disk.path)?;
        if !self.ready {
            write!(f, "\nnot ready    {}", self.reasons.join(", "))?;
        }
        Ok(())
    }
}
