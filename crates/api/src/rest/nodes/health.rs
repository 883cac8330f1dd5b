//! Whether a node is well, in one word.

use lifecycle::registry::{Node, State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeHealth {
    /// `cert_expired` if its certificate has ended, else the kind of the oldest open alert about it; null when healthy.
    #[schema(required)]
    pub reason: Option<String>,
    #[schema(required)]
    pub since: Option<String>,
    #[schema(required)]
    pub evidence: Option<String>,
}

impl NodeHealth {
    pub(super) fn of(state: &State, node: &Node) -> Self {
        if let Some((serial, held)) = state.current_certificate(node)
            && held.not_after <= state.at
            && !node.state.is_gone()
            && !state.is_denied(serial)
        {
            return Self {
                reason: Some("cert_expired".to_owned()),
                since: Some(held.not_after.to_string()),
                evidence: Some(format!("certificate {serial} has ended and there is none after it")),
            };
        }
        let about = state.alerts.values().filter(|alert| alert.node.as_ref() == Some(&node.id));
        about.min_by_key(|alert| (alert.since, alert.id)).map_or_else(Self::default, |alert| Self {
            reason: Some(alert.kind.to_string()),
            since: Some(alert.since.to_string()),
            evidence: Some(alert.detail.clone()),
        })
    }
}
