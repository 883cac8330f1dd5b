//! Error codes: the stable words by which callers tell failures apart.
//!
//! One table. What a registry refuses has the word of its `Rejection`; the rest is the edge's own. Each code
//! has a page under `docs/errors/`.

mod table;

pub use table::*;

use lifecycle::registry::Rejection;

/// How one kind of failure looks on every wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code {
    pub word: &'static str,
    /// HTTP status.
    pub status: u16,
    pub grpc: Grpc,
    /// Whether the same request may succeed later, and may safely be sent again.
    pub retryable: bool,
    /// One line of remedy.
    pub hint: &'static str,
}

impl Code {
    pub fn of(word: &str) -> Option<&'static Code> {
        CODES.iter().copied().find(|code| code.word == word)
    }

    /// A test keeps table and rejections equal, so the fallback is never seen.
    pub fn of_rejection(rejection: &Rejection) -> &'static Code {
        Self::of(rejection.code()).unwrap_or(INTERNAL)
    }
}

/// The gRPC status codes in use, with their numbers on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Grpc {
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    Unauthenticated = 16,
}

impl Grpc {
    pub fn number(self) -> i32 {
        self as i32
    }

    /// As gRPC's own documents write it.
    pub fn name(self) -> &'static str {
        match self {
            Grpc::InvalidArgument => "INVALID_ARGUMENT",
            Grpc::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Grpc::NotFound => "NOT_FOUND",
            Grpc::AlreadyExists => "ALREADY_EXISTS",
            Grpc::PermissionDenied => "PERMISSION_DENIED",
            Grpc::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Grpc::FailedPrecondition => "FAILED_PRECONDITION",
            Grpc::Aborted => "ABORTED",
            Grpc::OutOfRange => "OUT_OF_RANGE",
            Grpc::Unimplemented => "UNIMPLEMENTED",
            Grpc::Internal => "INTERNAL",
            Grpc::Unavailable => "UNAVAILABLE",
            Grpc::Unauthenticated => "UNAUTHENTICATED",
        }
    }
}

impl From<Grpc> for tonic::Code {
    fn from(grpc: Grpc) -> Self {
        tonic::Code::from_i32(grpc.number())
    }
}
