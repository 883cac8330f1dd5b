//! The plfm door: hosts that bring a WireGuard key. Unknown fields are ignored here, as its clients expect.

mod enroll;
mod host;
mod overlay;
mod token;

pub use enroll::{ClusterConfig, EnrollHost, EnrolledHost, UnderlayEndpoint};
pub use host::{
    ConfirmHost, ConfirmedHost, DecommissionHost, HostItem, HostList, HostQuery, RevokeHost, state_word,
};
pub use overlay::{HostOverlay, OverlayConfig, OverlayPeer, OverlayQuery};
pub use token::{CreateHostToken, HostTokenItem, HostTokenList, HostTokenQuery, MintedHostToken};
