//! What a caller is told when something was not done.

use crate::code::{self, Code};
use lifecycle::registry::Rejection;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The body of every error of the operator API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    pub error: ErrorDetail,
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
}

impl ErrorDetail {
    pub fn new(code: &Code, message: impl Into<String>, request_id: impl Into<String>) -> Self {
        Self {
            code: code.word.to_owned(),
            message: message.into(),
            hint: code.hint.to_owned(),
            request_id: request_id.into(),
            retryable: code.retryable,
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
