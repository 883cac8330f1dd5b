//! A refusal on its way out: the code that callers rely on, and what the log keeps.

use api::code::{self, Code};
use api::error::{ErrorDetail, Wording};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode};
use lifecycle::registry::{HardwareFault, Rejection};
use std::borrow::Cow;

/// Why a request was not granted. `message` is for the caller; causes are logged where they are handled.
#[derive(Debug, Clone)]
pub struct Failure {
    pub code: &'static Code,
    pub message: String,
    /// What to do in this very case, if the code's own remedy is not enough.
    pub hint: Option<Cow<'static, str>>,
    /// Seconds after which trying again makes sense.
    pub retry_after: Option<u32>,
    /// How many nodes the request would affect, where it has to be confirmed.
    pub affected: Option<u64>,
    /// How many sessions stand in the way.
    pub active_sessions: Option<u16>,
    /// What the registry said, for whoever has more to say about it.
    pub rejection: Option<Box<Rejection>>,
}

impl Failure {
    pub fn new(code: &'static Code, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            code,
            message,
            hint: None,
            retry_after: None,
            affected: None,
            active_sessions: None,
            rejection: None,
        }
    }

    pub fn remedy(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    pub fn detail(&self, request_id: &str) -> ErrorDetail {
        self.detail_as(self.code, request_id)
    }

    pub fn detail_as(&self, code: &'static Code, request_id: &str) -> ErrorDetail {
        let detail = ErrorDetail {
            affected: self.affected,
            active_sessions: self.active_sessions,
            ..ErrorDetail::new(code, &*self.message, request_id)
        };
        match &self.hint {
            Some(hint) => ErrorDetail { hint: hint.to_string(), ..detail },
            None => detail,
        }
    }

    /// Something that should not happen did: the cause goes to the log, not to the caller.
    pub fn internal(what: &str, cause: &dyn std::fmt::Display) -> Self {
        tracing::error!(%cause, "{what}");
        Self::new(code::INTERNAL, "something went wrong inside the control plane")
    }
}

impl From<HardwareFault> for Failure {
    fn from(fault: HardwareFault) -> Self {
        let code = match fault {
            HardwareFault::Mac { .. } | HardwareFault::NoMac => code::MAC_INVALID,
            HardwareFault::TooManyMacs | HardwareFault::Text { .. } | HardwareFault::Placeholder { .. } => {
                code::BAD_REQUEST
            }
        };
        Self::new(code, fault.to_string())
    }
}

impl From<Rejection> for Failure {
    fn from(rejection: Rejection) -> Self {
        let failure = Self::new(Code::of_rejection(&rejection), rejection.to_string());
        let failure = Self { rejection: Some(Box::new(rejection.clone())), ..failure };
        let failure = match rejection {
            Rejection::IssuerInUse { state: Some(_), .. } => failure.remedy(
                "an issuer retires after another one was activated in its place; `enlist ca show` lists the issuers",
            ),
            Rejection::RollInProgress { active: true, .. } => failure.remedy(
                "retire what was active before: `enlist ca roll retire` (`enlist ca roll status` says what it waits for); an active roll cannot be abandoned",
            ),
            Rejection::ConfirmationNeeded { affected, .. } => Self { affected: Some(affected), ..failure },
            Rejection::ActiveSessions { sessions, .. } => {
                Self { active_sessions: Some(u16::try_from(sessions).unwrap_or(u16::MAX)), ..failure }
            }
            _ => failure,
        };
        // What the registry limits, it limits by the minute.
        if failure.code.status == 429 { failure.retry_after(60) } else { failure }
    }
}

impl From<crate::ca::keys::UnsealError> for Failure {
    fn from(error: crate::ca::keys::UnsealError) -> Self {
        tracing::error!(%error, "nothing can be signed");
        Self::new(code::ISSUER_UNAVAILABLE, "no issuer can sign now").retry_after(5)
    }
}

impl From<journal::ProposeError> for Failure {
    fn from(error: journal::ProposeError) -> Self {
        let code = match error {
            journal::ProposeError::OutcomeUnknown => code::OUTCOME_UNKNOWN,
            journal::ProposeError::Unavailable => code::NO_QUORUM,
            journal::ProposeError::ShuttingDown => code::UNAVAILABLE,
        };
        Self::new(code, error.to_string()).retry_after(1)
    }
}

impl From<crate::process::chance::NoChance> for Failure {
    fn from(error: crate::process::chance::NoChance) -> Self {
        Self::internal("cannot draw random numbers", &error)
    }
}

/// Marks an answer as a failure, so that the edge can limit and count it.
#[derive(Debug, Clone, Copy)]
pub struct FailureCode(pub &'static Code);

impl IntoResponse for Failure {
    /// Without words yet: the edge, which knows the path and the request id, has [`Failure::worded`] add them.
    fn into_response(self) -> Response {
        let mut response = status(self.code.status).into_response();
        response.extensions_mut().insert(FailureCode(self.code));
        response.extensions_mut().insert(self);
        response
    }
}

impl Failure {
    /// The whole answer, as callers of this path expect it.
    pub fn worded(&self, wording: Wording, request_id: &str) -> Response {
        let code = wording.code(self.code);
        let body = wording.body(self.detail_as(code, request_id));
        let mut response = (status(wording.status(code)), axum::Json(body)).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(http::header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

fn status(number: u16) -> StatusCode {
    StatusCode::from_u16(number).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}
