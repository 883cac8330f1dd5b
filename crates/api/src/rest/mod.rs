//! The operator API, version 1: one file per family of paths.
//!
//! Requests refuse unknown fields, so that a misspelled one is never silently ignored. In answers every field
//! is always there; what is missing is null. Strings become names at the door, not here.

pub mod alerts;
mod at_most;
pub mod audit;
pub mod bootstrap;
pub mod ca;
pub mod cluster;
pub mod health;
pub mod nodes;
pub mod one_or_more;
pub mod operators;
pub mod overlay;
pub mod page;
pub mod policy;
pub mod scope;
pub mod secret;
pub mod server_clock;
pub mod tenants;
pub mod tokens;
pub mod vclusters;
