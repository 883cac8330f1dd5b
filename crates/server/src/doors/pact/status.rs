//! Failures in pact's words: the status says what kind it is, the message begins with the code. The trailers are those of the
//! native door.

use crate::http::failure::{Failure, FailureCode};
use api::code::{self, Code, Grpc};
use api::header;
use axum::body::Body;
use http::Response;
use tonic::Status;

/// Codes that the document knows; it writes them in capitals.
const OF_THE_DOCUMENT: [&Code; 10] = [
    code::RATE_LIMITED,
    code::NODE_NOT_ENROLLED,
    code::NODE_REVOKED,
    code::ALREADY_ACTIVE,
    code::NODE_ALREADY_ENROLLED,
    code::HARDWARE_IDENTITY_CONFLICT,
    code::ATTESTOR_NOT_ALLOWED,
    code::SERIAL_MISMATCH,
    code::NODE_QUARANTINED,
    code::ACTIVE_SESSIONS,
];

/// The request id is filled in by the edge, which knows it.
pub fn status(failure: &Failure) -> Status {
    ended(failure, "")
}

/// For what ends a stream, of which the edge sees only the beginning.
pub fn ended(failure: &Failure, request_id: &str) -> Status {
    let grpc =
        if failure.code == code::NODE_QUARANTINED { Grpc::PermissionDenied } else { failure.code.grpc };
    worded(failure, grpc, request_id)
}

/// What stands in the way of an act on a node, whatever it is elsewhere.
pub fn precondition(failure: &Failure) -> Status {
    worded(failure, Grpc::FailedPrecondition, "")
}

fn worded(failure: &Failure, grpc: Grpc, request_id: &str) -> Status {
    let plain = Status::from(failure.detail(request_id));
    let mut status = Status::with_metadata(grpc.into(), message(failure), plain.metadata().clone());
    if let Some(seconds) = failure.retry_after {
        status.metadata_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    status
}

/// `CODE: what happened`.
pub fn message(failure: &Failure) -> String {
    let word = failure.code.word;
    let word =
        if OF_THE_DOCUMENT.contains(&failure.code) { word.to_ascii_uppercase() } else { word.to_owned() };
    match failure.active_sessions {
        // As the document's own tools read it.
        Some(count) => format!("{word}: {count}"),
        None => format!("{word}: {}", failure.message),
    }
}

/// A refusal as a whole gRPC answer, for the edge.
pub fn refusal(failure: &Failure) -> Response<Body> {
    let mut response = status(failure).into_http::<Body>();
    response.extensions_mut().insert(FailureCode(failure.code));
    response
}
