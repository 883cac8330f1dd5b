//! Names of headers and gRPC metadata, lower-case as HTTP/2 wants them.

/// A caller's key for asking again after a lost reply: 1 to 128 visible ASCII characters.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Ties together what belongs to one undertaking, across calls.
pub const CORRELATION_ID: &str = "x-correlation-id";
/// On every answer; a caller's own is kept if it is well formed.
pub const REQUEST_ID: &str = "x-request-id";
/// Unix milliseconds, on every answer to a node.
pub const SERVER_TIME: &str = "x-server-time";
/// On what a replica answered without a leader to ask: how old what it knows may be, in milliseconds.
pub const STATE_AGE: &str = "x-state-age-ms";
/// Chooses the tenant where an operator has several.
pub const TENANT: &str = "x-tenant";
/// The same on the probectl API, as its own programs write it.
pub const PROBECTL_TENANT: &str = "x-probectl-tenant";
/// Whole seconds until asking again makes sense; on gRPC as metadata of the status.
pub const RETRY_AFTER: &str = "retry-after";

/// gRPC trailers of a refusal.
pub const CODE: &str = "enlist-code";
pub const HINT: &str = "enlist-hint";
pub const GRPC_REQUEST_ID: &str = "enlist-request-id";
