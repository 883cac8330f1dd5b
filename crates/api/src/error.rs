//! What a caller is told when something was not done.

use crate::code::{self, Code};
use crate::doors::probectl;
use lifecycle::registry::Rejection;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The body of every error of the operator API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    pub error: ErrorDetail,
}

/// How the failures of a path look: the doors speak their documents' shapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wording {
    /// [`ErrorBody`]: the operator API and the plfm door.
    Enlist,
    /// `{"error":{"code","message","request_id"?}}` with the few codes of its document.
    Probectl,
    /// `{"error":"code: what happened"}`.
    Taskrun,
}

impl Wording {
    pub fn of(path: &str) -> Self {
        let mut parts = path.split('/').skip(1);
        match (parts.next(), parts.next()) {
            (Some("enroll"), Some("agent")) | (Some("v1"), Some("agents" | "collectors")) => Self::Probectl,
            (Some("v1"), Some("enroll" | "renew" | "workers")) => Self::Taskrun,
            _ => Self::Enlist,
        }
    }

    /// The code by which the path's document calls a failure.
    pub fn code(self, code: &'static Code) -> &'static Code {
        match (self, code.word) {
            (Self::Taskrun, "node_id_in_use") => code::WORKER_ID_IN_USE,
            (Self::Taskrun, "node_revoked") => code::WORKER_REVOKED,
            (Self::Taskrun, "node_not_found") => code::WORKER_NOT_FOUND,
            _ => code,
        }
    }

    /// The HTTP status of a failure.
    pub fn status(self, code: &Code) -> u16 {
        match self {
            // Neither 002 nor 003 has a word for a body of another kind: it is no JSON.
            Self::Probectl | Self::Taskrun if code.status == 415 => 400,
            // 003 knows bad tokens, not malformed ones.
            Self::Taskrun if *code == *code::TOKEN_MALFORMED => 401,
            Self::Enlist | Self::Probectl | Self::Taskrun => code.status,
        }
    }

    /// The whole body of a failure.
    pub fn body(self, error: ErrorDetail) -> serde_json::Value {
        match self {
            Self::Enlist => serde_json::json!({ "error": error }),
            Self::Probectl => serde_json::json!(probectl::error(self.status(error.known()), error)),
            Self::Taskrun => serde_json::json!({ "error": format!("{}: {}", error.code, error.message) }),
        }
    }
}

/// The body of every error of the probectl API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProbectlError {
    pub error: ProbectlDetail,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProbectlDetail {
    pub code: String,
    pub message: String,
    /// Absent where a refusal says nothing about its cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// The body of every error of the TaskRun API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskrunError {
    /// The code, a colon, and what happened.
    #[schema(example = "token_expired: the token has expired")]
    pub error: String,
}

/// Readers must accept codes and fields that they do not know: a newer server may have more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorDetail {
    /// A stable word; each has a page in the documentation.
    #[schema(example = "token_expired")]
    pub code: String,
    /// What happened, for people.
    pub message: String,
    /// One line of remedy.
    pub hint: String,
    /// Finds this request in the server's log and audit trail.
    pub request_id: String,
    /// Whether the same request may succeed later, and may safely be sent again.
    pub retryable: bool,
    /// With `confirmation_needed`: how many nodes the request would affect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affected: Option<u64>,
    /// With `active_sessions`: how many sessions of the node are open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_sessions: Option<u16>,
}

impl ErrorDetail {
    pub fn new(code: &Code, message: impl Into<String>, request_id: impl Into<String>) -> Self {
        Self {
            code: code.word.to_owned(),
            message: message.into(),
            hint: code.hint.to_owned(),
            request_id: request_id.into(),
            retryable: code.retryable,
            affected: None,
            active_sessions: None,
        }
    }

    pub fn of(rejection: &Rejection, request_id: impl Into<String>) -> Self {
        Self::new(Code::of_rejection(rejection), rejection.to_string(), request_id)
    }

    /// The code's row, or that of `internal` for a word this version does not know.
    pub fn known(&self) -> &'static Code {
        Code::of(&self.code).unwrap_or(code::INTERNAL)
    }
}

impl From<ErrorDetail> for ErrorBody {
    fn from(error: ErrorDetail) -> Self {
        Self { error }
    }
}
