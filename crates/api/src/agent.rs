//! The agent's gRPC protocol: `enlist.agent.v1`, generated from `proto/enlist/agent/v1/agent.proto`.

#[expect(
    unused_qualifications,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated"
)]
mod generated {
    tonic::include_proto!("enlist.agent.v1");
}

pub use generated::agent_client::AgentClient;
pub use generated::agent_server::{Agent, AgentServer};
pub use generated::{
    Ack, Attempt, Bundle, ConfirmRequest, ConfirmResponse, ConfirmStatus, EnrollRequest, EnrollResponse,
    Evidence, Hardware, Heartbeat, Hello, LiveDown, LiveUp, Order, OrderDone, RenewNow, RenewRequest,
    RenewResponse, Standing, Underlay, Welcome, live_down, live_up, order,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_never_printed() {
        let request = EnrollRequest { token: "hush".to_owned(), ..EnrollRequest::default() };
        assert!(!format!("{request:?}").contains("hush"));
    }
}
