//! TaskRun: workers that enroll with a bootstrap token, renew over mTLS and hold a stream open.
//!
//! Unknown fields in requests are ignored, as its document's clients may have more.

use crate::rest::nodes::NodeItem;
use crate::rest::secret::Secret;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The stream: `taskrun.v1`, generated from `proto/taskrun/v1/run.proto`.
#[expect(
    unused_qualifications,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated"
)]
mod generated {
    include!("../generated/taskrun.v1.rs");
}

pub use generated::run_service_server::{RunService, RunServiceServer};
pub use generated::{
    RunClientMessage, RunServerMessage, ServerAck, WorkerHeartbeat, WorkerHello, run_client_message,
    run_server_message,
};

/// How the document writes a worker's id into certificates and requests.
pub const COMMON_NAME_PREFIX: &str = "worker:";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EnrollWorker {
    /// The secret. Never logged.
    pub bootstrap_token: Secret,
    /// A PKCS#10 request, PEM. Its common name, `worker:ID` or `ID`, is the id that the worker wants.
    pub csr: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EnrolledWorker {
    /// The leaf, then its intermediates, PEM.
    pub worker_cert: String,
    /// What verifies the control plane and the leaf: intermediates, then roots, PEM.
    pub ca_cert: String,
    pub expires_at: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RenewWorker {
    /// A PKCS#10 request for a new key, PEM.
    pub csr: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RenewedWorker {
    /// The leaf, then its intermediates, PEM.
    pub worker_cert: String,
    pub expires_at: String,
}

/// Why a worker is revoked, if its operator says so.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RevokeWorker {
    /// 1 to 200 characters, for the audit trail; `unspecified` when absent.
    pub reason: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RevokedWorker {
    pub worker_id: String,
    pub revoked_at: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkerItem {
    pub worker_id: String,
    /// `registered`, `enrolled`, `active`, `inactive`, `revoked` or `decommissioned`.
    pub state: String,
    /// Lower-case hex without leading zeros.
    #[schema(required)]
    pub cert_serial: Option<String>,
    #[schema(required)]
    pub expires_at: Option<String>,
    #[schema(required)]
    pub last_seen: Option<String>,
    #[schema(required)]
    pub enrolled_at: Option<String>,
}

impl From<NodeItem> for WorkerItem {
    fn from(node: NodeItem) -> Self {
        Self {
            worker_id: node.node_id,
            state: node.state,
            cert_serial: node.cert_serial,
            expires_at: node.cert_not_after,
            last_seen: node.last_seen,
            enrolled_at: node.enrolled_at,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkerList {
    pub workers: Vec<WorkerItem>,
    /// Pass it as `cursor` for the next page; null on the last one.
    #[schema(required)]
    pub next_cursor: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_never_printed() {
        let text = r#"{"bootstrap_token":"hush","csr":"","more":1}"#;
        let request: EnrollWorker = serde_json::from_str(text).expect("unknown fields are ignored");
        assert_eq!(request.bootstrap_token.reveal(), "hush");
        assert!(!format!("{request:?}").contains("hush"));
    }
}
