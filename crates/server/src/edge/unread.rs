//! What is answered from the head of a request alone, before a byte of its body is awaited.

use crate::doors;
use crate::edge::body::{Bounded, too_large};
use crate::http::failure::Failure;
use crate::process::app::App;
use api::code;
use axum::body::Body;
use axum::response::IntoResponse;
use http::{HeaderMap, HeaderValue, Request, Response, Version, header};
use http_body::Body as _;
use hyper::body::Incoming;

/// A field costs far more memory than it has bytes on the wire, and is kept until the request is answered.
const HEADER_FIELDS: usize = 64;

/// Whether the caller speaks gRPC, and so reads a refusal from `grpc-status` and not from a JSON body.
pub fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let prefix = b"application/grpc";
    kind.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// A refusal as the caller reads it.
pub fn refusal(grpc: bool, path: &str, failure: Failure) -> Response<Body> {
    if grpc { doors::refusal(path, &failure) } else { failure.into_response() }
}

/// The request, or its refusal when its head says enough. A body that lasts has no limit.
#[expect(clippy::result_large_err, reason = "both are moved once, where this is called")]
pub fn admitted(
    app: &App,
    request: Request<Incoming>,
    limit: u64,
    lasting: bool,
) -> Result<Request<Incoming>, Response<Body>> {
    let grpc = is_grpc(request.headers());
    let failure = if request.headers().len() > HEADER_FIELDS {
        let most = format!("the request has more than {HEADER_FIELDS} header fields");
        Failure::new(code::TOO_LARGE, most)
    } else if !lasting && request.body().size_hint().lower() > limit {
        Failure::new(code::TOO_LARGE, too_large(limit))
    } else if grpc && !doors::serves_grpc(app, request.uri().path()) {
        Failure::new(code::METHOD_NOT_ALLOWED, "this control plane serves no such gRPC method")
    } else {
        return Ok(request);
    };
    let response = refusal(grpc, request.uri().path(), failure);
    // Reading the body would send `100 Continue`.
    if !expects(&request) {
        // Dropped, it reads for a moment what the client is still sending.
        drop(Bounded::unread(request.into_body()));
    }
    Err(response)
}

/// Whether the client waits for `100 Continue` before it sends the body.
pub fn expects<B>(request: &Request<B>) -> bool {
    request.headers().contains_key(header::EXPECT) && request.version() < Version::HTTP_2
}

/// A refused client that waited may now leave the body out: what it sends next could be either, so the connection ends.
pub fn close(response: &mut Response<Body>) {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
}
