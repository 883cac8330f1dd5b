//! What the agent keeps on disk.

pub mod dir;
pub mod disk;
pub mod generation;
pub mod grace;
pub mod host_config;
pub mod identity;
pub mod kept_lists;
mod kept_span;
pub mod last_attempts;
pub mod pending;
pub mod recovery;
pub mod recovery_attempt;
pub mod renewal_key;
pub mod revoked;
pub mod stored_trust;
pub mod tolerance;
pub mod trust_refused;
pub mod unconfirmed;
pub mod wireguard;
