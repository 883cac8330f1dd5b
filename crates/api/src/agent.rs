//! The agent's gRPC protocol: `enlist.agent.v1`, generated from `proto/enlist/agent/v1/agent.proto`.

#[expect(
    unused_qualifications,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated"
)]
mod generated {
    include!("generated/enlist.agent.v1.rs");
}

pub use generated::agent_client::AgentClient;
pub use generated::agent_server::{Agent, AgentServer};
pub use generated::{
    Ack, Attempt, BootConfigRequest, Bundle, BundleEvidence, CheckRequest, Config, ConfirmRequest,
    ConfirmResponse, ConfirmStatus, EndedSession, EndpointProfile, EnrollRequest, EnrollResponse, Evidence,
    FreeSpace, Hardware, HardwareIdentity, Heartbeat, Hello, LiveDown, LiveUp, NotNeeded, OpenSession, Order,
    OrderDone, OverlayAnswer, OverlayClaim, OverlayPeer, OverlayPeers, OverlayReport, RecoverRequest,
    RecoverResponse, RecoveryGrant, RecoveryKept, RecoveryProfile, RekeyOverlay, RenewNow, RenewRequest,
    RenewResponse, Sessions, SessionsRecorded, Standing, Underlay, Welcome, live_down, live_up, order,
};

/// Without the token.
impl std::fmt::Debug for EnrollRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EnrollRequest")
            .field("hostname", &self.hostname)
            .field("agent_version", &self.agent_version)
            .finish_non_exhaustive()
    }
}

/// Without the token.
impl std::fmt::Debug for RecoverRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecoverRequest")
            .field("node_id", &self.node_id)
            .field("class", &self.class)
            .finish_non_exhaustive()
    }
}

/// Without the token.
impl std::fmt::Debug for RecoveryGrant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecoveryGrant")
            .field("token_id", &self.token_id)
            .field("expires_at", &self.expires_at)
            .field("profile", &self.profile)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_never_printed() {
        let request = EnrollRequest { token: "hush".to_owned(), ..EnrollRequest::default() };
        let recover = RecoverRequest { token: "hush".to_owned(), ..RecoverRequest::default() };
        let grant = RecoveryGrant { token: "hush".to_owned(), ..RecoveryGrant::default() };
        let down = LiveDown { message: Some(live_down::Message::Recovery(grant.clone())) };
        for shown in
            [format!("{request:?}"), format!("{recover:?}"), format!("{grant:?}"), format!("{down:?}")]
        {
            assert!(!shown.contains("hush"));
        }
    }
}
