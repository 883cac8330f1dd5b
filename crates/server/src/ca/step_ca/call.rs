//! One call of step-ca: bounded in time and size, and each failure with its name.

use super::access::UnsealedAccess;
use crate::http::failure::Failure;
use api::code::{self, Code};
use client::Unreachable;
use client::foreign::{ForeignAnswer, ForeignRequest};
use http::{HeaderValue, Method, header};
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;

/// A certificate with a chain of three is a sixth of this.
const ANSWER_BYTES: usize = 64 * 1024;
/// How often a connection is tried that was not made.
const CONNECTS: usize = 3;
const PAUSE: Duration = Duration::from_millis(200);
/// How much of a reason is kept.
const REASON: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepCaFailureKind {
    /// It cannot be reached, is not the one that was named, takes too long, or fails.
    Unavailable,
    /// It answered that it does not do this.
    Refused { status: u16 },
    /// What it answered is not what it was asked for.
    Misbehaved,
}

impl StepCaFailureKind {
    pub fn code(self) -> &'static Code {
        match self {
            StepCaFailureKind::Unavailable => code::ISSUER_UNAVAILABLE,
            StepCaFailureKind::Refused { .. } => code::ISSUER_REFUSED,
            StepCaFailureKind::Misbehaved => code::ISSUER_MISBEHAVED,
        }
    }

    pub fn remedy(self) -> &'static str {
        match self {
            StepCaFailureKind::Unavailable => {
                "check that step-ca runs, that its address leads to it, and that its certificate comes from the root that was given"
            }
            StepCaFailureKind::Refused { .. } => {
                "check the provisioner's name and key, its limits for lifetimes, and the clocks of both machines; the log of step-ca says more"
            }
            StepCaFailureKind::Misbehaved => "check the provisioner's template, and who runs this step-ca",
        }
    }
}

/// A call that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepCaFailure {
    pub kind: StepCaFailureKind,
    pub why: String,
    /// Whether it may have been carried out all the same.
    pub is_uncertain: bool,
}

impl std::fmt::Display for StepCaFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.kind.code().word, self.why)
    }
}

/// What a caller is told: nothing of where the issuer is or how it words things.
impl From<StepCaFailure> for Failure {
    fn from(failure: StepCaFailure) -> Self {
        let message = match failure.kind {
            StepCaFailureKind::Unavailable => "the issuer of nodes does not answer now",
            StepCaFailureKind::Refused { .. } => "the issuer of nodes refuses to sign",
            StepCaFailureKind::Misbehaved => {
                "the issuer of nodes answered with something else than it was asked for"
            }
        };
        let told = Failure::new(failure.kind.code(), message);
        if failure.kind == StepCaFailureKind::Misbehaved { told } else { told.retry_after(5) }
    }
}

impl StepCaFailure {
    pub fn unavailable(why: String, is_uncertain: bool) -> Self {
        Self { kind: StepCaFailureKind::Unavailable, why, is_uncertain }
    }

    pub fn misbehaved(why: String) -> Self {
        Self { kind: StepCaFailureKind::Misbehaved, why, is_uncertain: true }
    }
}

#[derive(Deserialize)]
struct Told {
    #[serde(default)]
    message: String,
}

/// What it says, without what could confuse a log.
pub fn reason(answer: &ForeignAnswer) -> String {
    let told = serde_json::from_slice::<Told>(&answer.body).map(|told| told.message).unwrap_or_default();
    told.chars().filter(|c| !c.is_control()).take(REASON).collect()
}

/// Asks once. A connection that could not be made is tried again; a request that was sent is not.
pub async fn ask(
    access: &UnsealedAccess,
    path: &str,
    body: Option<&Value>,
    deadline: Instant,
) -> Result<ForeignAnswer, StepCaFailure> {
    let url = access.url(path).map_err(|why| StepCaFailure::unavailable(why, false))?;
    let mut tried = 0;
    loop {
        tried += 1;
        let request = ForeignRequest {
            method: if body.is_some() { Method::POST } else { Method::GET },
            headers: vec![(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))],
            body: body.map(ToString::to_string).unwrap_or_default().into_bytes(),
            time_limit: deadline.saturating_duration_since(Instant::now()),
            answer_bytes: ANSWER_BYTES,
        };
        let error = match url.ask(&access.trust, request).await {
            Ok(answer) => return sorted(answer),
            Err(error) => error,
        };
        let sent = may_have_been_sent(&error);
        if sent || !error.is_passing() || tried >= CONNECTS || Instant::now() + PAUSE >= deadline {
            return Err(StepCaFailure::unavailable(error.to_string(), sent));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn may_have_been_sent(error: &Unreachable) -> bool {
    match error {
        Unreachable::NoSuchName { .. }
        | Unreachable::ConnectionRefused
        | Unreachable::SocketForbidden
        | Unreachable::Untrusted(_)
        | Unreachable::BrokenOff(_) => false,
        Unreachable::TimedOut(_)
        | Unreachable::Network(_)
        | Unreachable::Closed
        | Unreachable::Alert(_)
        | Unreachable::Garbage(_) => true,
    }
}

/// What step-ca refuses it has not done; what fails inside of it may be done.
fn sorted(answer: ForeignAnswer) -> Result<ForeignAnswer, StepCaFailure> {
    let status = answer.status.as_u16();
    match status {
        200..=299 => Ok(answer),
        400..=499 => {
            let why = format!("HTTP {status}: {}", reason(&answer));
            Err(StepCaFailure { kind: StepCaFailureKind::Refused { status }, why, is_uncertain: false })
        }
        _ => Err(StepCaFailure::unavailable(format!("HTTP {status}: {}", reason(&answer)), true)),
    }
}
