//! What the machine learns, and what it answers.

use super::{Class, FailureKind};
use crate::names::{Span, Timestamp};

/// Both of a host's clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Of the calendar; may be wrong, and may be set.
    pub wall: Timestamp,
    /// Since the daemon started; never set.
    pub steady: Span,
}

/// What is drawn for each thing learned.
#[derive(Debug, Clone)]
pub struct Chance {
    pub number: u32,
    /// The correlation id of the next failure and everything done about it.
    pub id: String,
}

/// Of the certificate in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life {
    pub not_after: Timestamp,
    /// Jitter included.
    pub renew_at: Timestamp,
}

/// Where a certificate that has yet to be proven came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CandidateOrigin {
    Renewal,
    Recovery,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallFailure {
    pub kind: FailureKind,
    /// How far this clock is ahead, if it was measured on the way.
    pub clock: Option<i64>,
    /// How long the control plane asks to be left alone.
    pub wait: Span,
}

impl From<FailureKind> for CallFailure {
    fn from(kind: FailureKind) -> Self {
        Self { kind, clock: None, wait: Span::from_millis(0) }
    }
}

/// How a recovery went well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecoveryResult {
    /// There is a certificate to be proven.
    Issued,
    /// Only the trust bundle was stale, and is not any more.
    Refreshed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// This certificate is in use from now on; none waits to be proven.
    Loaded(Life),
    /// A certificate to be proven was found on disk.
    CandidateFound(CandidateOrigin),
    Opened(Result<(), CallFailure>),
    Disconnected(CallFailure),
    /// The answer is on disk, to be proven; or why not.
    Renewed(Result<(), CallFailure>),
    /// The control plane gives no certificate to a host that comes as this one does.
    RenewalNotAllowed,
    Recovered(Result<RecoveryResult, CallFailure>),
    /// How far this clock is ahead.
    Clock(i64),
    Tolerance(Span),
    /// How long a host may be silent.
    Grace(Span),
    /// Whether the disk took what was last written.
    DiskFull(bool),
    Drift(bool),
    /// Whether there is what a recovery takes.
    RecoveryReady(bool),
    /// Whether this machine may ask for another certificate by its hardware identity.
    HardwareReady(bool),
    /// Told to renew.
    RenewalOrdered,
    /// A mark says that the identity was revoked.
    Revoked,
}

/// What the daemon does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostAction {
    /// Connects: as the certificate to be proven, if there is one.
    Open,
    Renew,
    /// For this reason.
    Recover(Class),
}

/// What else follows at once from something learned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FollowUp {
    Nothing,
    /// The certificate to be proven is of no use.
    DropCandidate,
    /// Look whether another lies on disk.
    FindCandidate,
}

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition {
    pub class: Class,
    pub since: Timestamp,
}
