//! A call that failed, with everything that it shows.

use api::code::{self, Code};
use api::error::ErrorDetail;
use client::unreachable::{Distrust, TlsAlert, Unreachable};
use client::{Error, ServerUrl, Trust, probe};
use lifecycle::host::{Failure, Trouble};
use lifecycle::names::{Span, Timestamp};

use crate::clock;

#[derive(Debug)]
pub struct Failed {
    pub error: Error,
    pub trouble: Trouble,
    /// How far this clock is ahead, if it was measured on the way.
    pub clock: Option<i64>,
}

impl Failed {
    /// Where the server's chain is not trusted, it may be this clock that is wrong: that is found out first.
    pub async fn of(error: Error, servers: &[ServerUrl], trust: &Trust) -> Self {
        let trouble = trouble(&error);
        let clock = match &error {
            Error::Refused(refusal) => refusal.server_time.map(|time| ahead_of(Timestamp::from_millis(time))),
            _ if trouble == Trouble::Untrusted => ahead(servers, trust).await,
            _ => None,
        };
        Self { error, trouble, clock }
    }

    /// The clocks were compared and are too far apart.
    pub fn skewed(ahead: i64) -> Self {
        let (secs, side) = (ahead.unsigned_abs() / 1000, if ahead < 0 { "behind" } else { "ahead of" });
        let what = format!("this host's clock is {secs} s {side} the control plane's");
        Self { error: Error::Fault(what), trouble: Trouble::Skewed, clock: Some(ahead) }
    }

    /// By this clock, what lies here has yet to be made.
    pub fn early(made: Timestamp, at: Timestamp) -> Self {
        let what = format!(
            "this host's clock says {at}, which is before the identity or the bundle was issued ({made})"
        );
        let behind = i64::try_from(made.millis().saturating_sub(at.millis())).unwrap_or(i64::MAX);
        Self { error: Error::Fault(what), trouble: Trouble::Skewed, clock: Some(behind.saturating_neg()) }
    }

    pub fn failure(&self) -> Failure {
        let wait = match &self.error {
            Error::Refused(refusal) => refusal.retry_after.unwrap_or_default(),
            _ => std::time::Duration::ZERO,
        };
        let wait = Span::from_millis(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        Failure { trouble: self.trouble, clock: self.clock, wait }
    }
}

/// A failure of which nothing more is to be found out.
impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { trouble: trouble(&error), error, clock: None }
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

/// What a failure means.
pub fn trouble(error: &Error) -> Trouble {
    match error {
        Error::Refused(refusal) => refused(&refusal.detail),
        Error::Unreachable { cause, .. } => match cause {
            Unreachable::Alert(TlsAlert::Revoked) => Trouble::Revoked,
            Unreachable::Alert(TlsAlert::Expired) => Trouble::Expired,
            Unreachable::Alert(TlsAlert::UnknownIssuer) => Trouble::UnknownIssuer,
            Unreachable::Alert(TlsAlert::Unacceptable) => Trouble::Unacceptable,
            Unreachable::Untrusted(Distrust::WrongName) | Unreachable::Garbage(_) => Trouble::Elsewhere,
            Unreachable::Untrusted(_) => Trouble::Untrusted,
            _ => Trouble::Passing,
        },
        Error::Usage(_) | Error::Fault(_) => Trouble::Passing,
    }
}

fn refused(detail: &ErrorDetail) -> Trouble {
    let is = |code: &Code| detail.code == code.word;
    if is(code::NODE_REVOKED) || is(code::WORKER_REVOKED) {
        Trouble::Revoked
    } else if is(code::CERTIFICATE_SUPERSEDED) {
        Trouble::Superseded
    } else if is(code::UNAUTHENTICATED) {
        Trouble::Unacceptable
    } else if detail.retryable {
        Trouble::Passing
    } else {
        Trouble::Refused
    }
}
