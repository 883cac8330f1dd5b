//! The host's own decisions: when to renew, how long to stay away, what a failure means.
//!
//! Time and chance are arguments here as everywhere in this crate. `agent` performs what is decided.

mod backoff;
mod cascade;
mod class;
mod classify;
mod failure_kind;
mod input;
mod machine;
mod notices;
pub mod recovery;
mod renewal;
mod server_order;
mod task;

pub use backoff::Backoff;
pub use cascade::{CascadeStep, IdentityCascade, IdentityProvider, SvidTerm};
pub use class::Class;
pub use classify::classify;
pub use failure_kind::{
    FailureKind, adopts_candidate, check_revoked_after, discards_candidate, discards_key,
};
pub use input::{
    CallFailure, CandidateOrigin, Chance, Condition, FollowUp, HostAction, Input, Life, Now, RecoveryResult,
};
pub use machine::{GRACE, HostMachine, TOLERANCE};
pub use notices::Notices;
pub use renewal::{due, retry_within};
pub use server_order::after_loss;

use crate::names::Span;

/// Part of a span, by chance: nothing at 0, all of it at the highest number.
fn share(whole: Span, chance: u32) -> Span {
    let part = u128::from(whole.millis()) * u128::from(chance) / u128::from(u32::MAX);
    Span::from_millis(u64::try_from(part).unwrap_or(u64::MAX))
}
