//! One typed client for agent and CLI: TLS with pinning, fail-over, retry with jitter, error decoding.
//!
//! It decides nothing about identities; it makes sure that whoever asks talks to the right control plane, and
//! that a failure says what failed.
//!
//! - [`url`], [`trust`]: where the control plane is, and by what it is recognised.
//! - [`rest`]: the operator API, over the operator socket or TLS.
//! - [`agent`]: the agent's gRPC calls, over several servers in turn.
//! - [`foreign`], [`webhook`]: one request to a server that is somebody else's.
//! - [`probe`]: what the time is there, when a certificate is not valid at ours.
//! - [`error`], [`unreachable`]: what went wrong, in words that tell one cause from another.

pub mod agent;
pub mod backoff;
mod bounded;
mod connect;
pub mod error;
mod exit;
pub mod foreign;
mod pinned;
pub mod probe;
mod rationed;
pub mod rest;
pub mod trust;
pub mod unreachable;
pub mod url;
mod watched;
pub mod webhook;

pub use agent::{AgentApi, LiveConnection};
pub use error::Error;
pub use exit::Exit;
pub use rest::OperatorApi;
pub use trust::{TlsIdentity, Trust};
pub use unreachable::Unreachable;
pub use url::ServerUrl;
