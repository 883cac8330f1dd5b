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
mod anchored;
pub mod backoff;
mod chain_verifier;
mod connect;
mod denied_issuers;
pub mod error;
mod exit;
pub mod foreign;
mod pinned;
pub mod probe;
mod rationed;
pub mod rest;
mod root_lists;
pub mod trust;
pub mod unreachable;
pub mod url;
mod watched;
pub mod webhook;
pub mod workload;

pub use agent::{AgentApi, LiveConnection};
pub use denied_issuers::DeniedIssuers;
pub use error::Error;
pub use exit::Exit;
pub use rest::OperatorApi;
pub use root_lists::{ListNotKept, RootLists, lists_beside};
pub use trust::{TlsIdentity, Trust, TrustError};
pub use unreachable::Unreachable;
pub use url::ServerUrl;
