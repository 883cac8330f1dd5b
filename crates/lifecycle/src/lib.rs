//! Every decision, pure.
//!
//! This crate holds what Enlist believes about a fleet and the rules by which that belief may change.
//! It does no I/O, reads no clock, draws no random number and computes no hash: time, chance and digests
//! arrive as arguments. The same inputs give the same state on every replica, for ever.
//!
//! - [`clock`]: how far a wall clock is believed.
//! - [`host`]: what a host decides by itself: when to renew, how to retry.
//! - [`names`]: the vocabulary, each word a type with one way in.
//! - [`registry`]: state, commands, events, rejections, policy, `authorize → decide → fold`, invariants.

#![deny(
    clippy::wildcard_enum_match_arm,
    reason = "a forgotten command, event, actor or verdict must not compile"
)]

pub mod clock;
pub mod host;
pub mod names;
pub mod registry;
