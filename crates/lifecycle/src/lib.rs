//! Every decision, pure.
//!
//! This crate holds what Enlist believes about a fleet and the rules by which that belief may change.
//! It does no I/O, reads no clock, draws no random number and computes no hash: time, chance and digests
//! arrive as arguments. The same inputs give the same state on every replica, for ever.
//!
//! - [`host`]: what a host decides by itself: when to renew, how to retry.
//! - [`names`]: the vocabulary, each word a type with one way in.
//! - [`registry`]: state, commands, events, rejections, policy, `authorize → decide → fold`, invariants.

pub mod host;
pub mod names;
pub mod registry;
