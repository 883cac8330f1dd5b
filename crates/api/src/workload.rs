//! SPIFFE's Workload API, as far as the agent calls it.

/// Generated from `proto/spiffe/workload.proto`.
#[expect(
    unused_qualifications,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated"
)]
pub mod wire {
    include!("generated/_.rs");
}

pub use wire::spiffe_workload_api_client::SpiffeWorkloadApiClient;
pub use wire::{X509svid, X509svidRequest, X509svidResponse};

/// Without the key.
impl std::fmt::Debug for X509svid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("X509svid").field("spiffe_id", &self.spiffe_id).finish_non_exhaustive()
    }
}
