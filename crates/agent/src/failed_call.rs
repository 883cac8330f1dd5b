//! A call that failed, with everything that it shows.

use api::code;
use client::unreachable::{Distrust, TlsAlert, Unreachable};
use client::{Error, ServerUrl, Trust, probe};
use lifecycle::host::{CallFailure, FailureKind};
use lifecycle::names::{Span, Timestamp};

use crate::clock;
use crate::fault_code::FaultCode;
use crate::spoken::spoken;

#[derive(Debug)]
pub struct FailedCall {
    pub error: Error,
    pub kind: FailureKind,
    /// How far this clock is ahead, if it was measured on the way.
    pub clock: Option<i64>,
}

impl FailedCall {
    /// Where the server's chain is not trusted, it may be this clock that is wrong: that is found out first.
    pub async fn of(error: Error, servers: &[ServerUrl], trust: &Trust) -> Self {
        let kind = failure_kind(&error);
        let clock = match &error {
            Error::Refused(refusal) => refusal.server_time.map(|time| ahead_of(Timestamp::from_millis(time))),
            _ if kind == FailureKind::Untrusted => ahead(servers, trust).await,
            _ => None,
        };
        Self { error, kind, clock }
    }

    /// The clocks were compared and are too far apart.
    pub fn skewed(ahead: i64) -> Self {
        let (far, side) = (spoken(ahead.unsigned_abs()), if ahead < 0 { "behind" } else { "ahead of" });
        let what = format!("this host's clock is {far} {side} the control plane's");
        Self { error: Error::Fault(what), kind: FailureKind::ClockSkew, clock: Some(ahead) }
    }

    /// By this clock, the identity or the bundle has yet to be issued.
    pub fn early(issued: Timestamp, at: Timestamp) -> Self {
        let what = format!(
            "this host's clock says {at}, which is before the identity or the bundle was issued ({issued})"
        );
        let behind = i64::try_from(issued.millis().saturating_sub(at.millis())).unwrap_or(i64::MAX);
        Self { error: Error::Fault(what), kind: FailureKind::ClockSkew, clock: Some(behind.saturating_neg()) }
    }

    pub fn code(&self) -> FaultCode {
        FaultCode::of_error(&self.error)
    }

    /// What the state machine learns of it.
    pub fn failure(&self) -> CallFailure {
        let wait = match &self.error {
            Error::Refused(refusal) => refusal.retry_after.unwrap_or_default(),
            Error::Unreachable { .. } | Error::Usage(_) | Error::Fault(_) => std::time::Duration::ZERO,
        };
        let wait = Span::from_millis(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        CallFailure { kind: self.kind, clock: self.clock, wait }
    }
}

/// A failure of which nothing more is to be found out.
impl From<Error> for FailedCall {
    fn from(error: Error) -> Self {
        Self { kind: failure_kind(&error), error, clock: None }
    }
}

/// How far this clock is ahead of the first of these servers that says its own, if its chain is good then.
pub async fn ahead(servers: &[ServerUrl], trust: &Trust) -> Option<i64> {
    for server in servers {
        if let Ok(seen) = probe::date(server, trust).await {
            return seen.in_date.then(|| ahead_of(seen.date));
        }
    }
    None
}

pub fn ahead_of(there: Timestamp) -> i64 {
    let millis = |at: Timestamp| i64::try_from(at.millis()).unwrap_or(i64::MAX);
    millis(clock::now()).saturating_sub(millis(there))
}

/// What a failure means for this host.
pub fn failure_kind(error: &Error) -> FailureKind {
    match error {
        Error::Refused(refusal) => refusal_kind(&FaultCode::of_error(error), refusal.detail.retryable),
        Error::Unreachable { cause, .. } => match cause {
            Unreachable::Alert(TlsAlert::Revoked) => FailureKind::Revoked,
            Unreachable::Alert(TlsAlert::Expired) => FailureKind::Expired,
            Unreachable::Alert(TlsAlert::UnknownIssuer) => FailureKind::UnknownIssuer,
            Unreachable::Alert(TlsAlert::Unacceptable) => FailureKind::Unacceptable,
            Unreachable::Untrusted(Distrust::WrongName) | Unreachable::Garbage(_) => FailureKind::WrongServer,
            Unreachable::Untrusted(_) => FailureKind::Untrusted,
            Unreachable::Alert(TlsAlert::Other(_))
            | Unreachable::NoSuchName { .. }
            | Unreachable::ConnectionRefused
            | Unreachable::TimedOut(_)
            | Unreachable::SocketForbidden
            | Unreachable::Network(_)
            | Unreachable::Closed
            | Unreachable::BrokenOff(_) => FailureKind::Transient,
        },
        Error::Usage(_) | Error::Fault(_) => FailureKind::Transient,
    }
}

/// What it means that the control plane refuses with this code.
pub fn refusal_kind(code: &FaultCode, retryable: bool) -> FailureKind {
    if code.is_one_of(&[code::NODE_REVOKED, code::WORKER_REVOKED]) {
        FailureKind::Revoked
    } else if code.is(code::CERTIFICATE_SUPERSEDED) {
        FailureKind::Superseded
    } else if code.is(code::UNAUTHENTICATED) {
        FailureKind::Unacceptable
    } else if retryable {
        FailureKind::Transient
    } else {
        FailureKind::Refused
    }
}
