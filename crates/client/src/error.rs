//! What a caller of this crate learns when something was not done, and the exit code that goes with it.

use crate::exit::Exit;
use crate::trust::TrustError;
use crate::unreachable::{TlsAlert, Unreachable};
use crate::url::UrlError;
use api::agent::NotNeeded;
use api::code;
use api::error::ErrorDetail;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The control plane said no.
    #[error("{}", .0.detail.message)]
    Refused(Box<ApiError>),
    /// No answer, or not from a control plane that we may talk to.
    #[error("{server}: {cause}")]
    Unreachable { server: String, cause: Unreachable },
    /// What was asked for cannot be asked.
    #[error("{0}")]
    Usage(String),
    /// This machine or this program failed.
    #[error("{0}")]
    Fault(String),
}

/// A refusal as the control plane worded it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    pub detail: ErrorDetail,
    /// Its Retry-After.
    pub retry_after: Option<Duration>,
    /// Its clock, in Unix milliseconds.
    pub server_time: Option<u64>,
    /// The detail of `recovery_not_needed`.
    pub not_needed: Option<NotNeeded>,
}

/// Longer values of Retry-After count as a day.
const RETRY_AFTER_MOST: u64 = 86_400;

/// `Retry-After` in its form of whole seconds; a date is not worth a clock.
pub(crate) fn retry_after(text: &str) -> Option<Duration> {
    text.trim().parse().ok().map(|seconds: u64| Duration::from_secs(seconds.min(RETRY_AFTER_MOST)))
}

/// Whether this code says that a replica has no majority to ask.
fn is_cut_off(word: &str) -> bool {
    [code::NO_QUORUM, code::STALE, code::OUTCOME_UNKNOWN].iter().any(|code| code.word == word)
}

impl Error {
    pub(crate) fn unreachable(server: impl Into<String>, cause: Unreachable) -> Self {
        Error::Unreachable { server: server.into(), cause }
    }

    pub fn exit(&self) -> Exit {
        match self {
            Error::Fault(_) => Exit::Fault,
            Error::Usage(_) => Exit::Usage,
            // A replica answered, and there is no control plane behind it: too few replicas reach each other.
            Error::Refused(refusal) if is_cut_off(&refusal.detail.code) => Exit::Unreachable,
            Error::Refused(_) => Exit::Refused,
            // The control plane was there, and turned our certificate away.
            Error::Unreachable {
                cause:
                    Unreachable::Alert(
                        TlsAlert::Revoked
                        | TlsAlert::Expired
                        | TlsAlert::UnknownIssuer
                        | TlsAlert::Unacceptable,
                    ),
                ..
            } => Exit::Refused,
            Error::Unreachable { .. } => Exit::Unreachable,
        }
    }

    /// Whether the replica that was asked did not take the request, and another one may.
    pub(crate) fn is_of_this_replica(&self) -> bool {
        let codes = [code::NO_QUORUM, code::STALE, code::REPLICA_REMOVED];
        matches!(self, Error::Refused(refusal) if codes.iter().any(|code| code.word == refusal.detail.code))
    }

    pub fn exit_code(&self) -> u8 {
        self.exit() as u8
    }

    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Refused(refusal) => refusal.detail.retryable,
            Error::Unreachable { cause, .. } => cause.is_passing(),
            Error::Usage(_) | Error::Fault(_) => false,
        }
    }

    /// A stable word: the control plane's code, or the class of our own failure.
    pub fn code(&self) -> &str {
        match self {
            Error::Refused(refusal) => &refusal.detail.code,
            Error::Unreachable { cause, .. } => cause.class(),
            Error::Usage(_) => "usage",
            Error::Fault(_) => "fault",
        }
    }

    /// One line of remedy; empty where the message says it all.
    pub fn hint(&self) -> &str {
        match self {
            Error::Refused(refusal) => &refusal.detail.hint,
            Error::Unreachable { cause, .. } => cause.hint(),
            Error::Usage(_) | Error::Fault(_) => "",
        }
    }

    /// In the form in which errors travel, for `--json`.
    pub fn detail(&self) -> ErrorDetail {
        match self {
            Error::Refused(refusal) => refusal.detail.clone(),
            _ => ErrorDetail {
                code: self.code().to_owned(),
                message: self.to_string(),
                hint: self.hint().to_owned(),
                request_id: String::new(),
                retryable: self.is_retryable(),
                affected: None,
                active_sessions: None,
            },
        }
    }
}

impl From<UrlError> for Error {
    fn from(error: UrlError) -> Self {
        Error::Usage(error.to_string())
    }
}

impl From<TrustError> for Error {
    fn from(error: TrustError) -> Self {
        match error {
            TrustError::Setup(_) => Error::Fault(error.to_string()),
            _ => Error::Usage(error.to_string()),
        }
    }
}
