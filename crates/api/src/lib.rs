//! Wire contracts: operator REST v1, agent gRPC v1, the error body and its codes.
//!
//! Nothing here listens or connects. Server and clients share these types, so that a field cannot be
//! spelled in two ways.
//!
//! - [`agent`]: the gRPC protocol of `enlist-agent`, generated from `proto/`.
//! - [`rest`]: the operator API, one file per family, with the conversions from registry state.
//! - [`doors`]: what the documents' own clients send and are sent, one file per door.
//! - [`claims`]: what domains tell each other of machines.
//! - [`code`], [`error`]: every error code with status and remedy, and the two forms in which errors travel.
//! - [`doors`]: the wire shapes of other systems' clients, one file per document.
//! - [`grpc`]: the services that gRPC itself describes.
//! - [`codec`]: how gRPC messages are read and written.
//! - [`header`]: names of headers and metadata.
//! - [`workload`]: SPIFFE's Workload API, which SPIRE serves on a host.
//! - [`openapi`]: the operator API described, from one table of routes.

pub mod agent;
pub mod claims;
pub mod code;
pub mod codec;
pub mod doors;
pub mod error;
pub mod grpc;
pub mod header;
pub mod openapi;
pub mod rest;
mod status;
pub mod workload;
