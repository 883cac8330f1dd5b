//! The probectl door: what agents with join tokens, and their operators, send and are sent.
//!
//! Unknown fields are refused: a body that claims a tenant or an id is no request of this door.

use crate::error::{ErrorDetail, ProbectlDetail, ProbectlError};
use crate::rest::secret::Secret;
use lifecycle::names::{SpiffeId, Timestamp};
use lifecycle::registry::{Node, NodeState, State};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EnrollAgent {
    pub token: Secret,
    /// A PKCS#10 request. Names in it are ignored.
    pub csr_pem: String,
    pub hostname: Option<String>,
    pub version: Option<String>,
    /// `join-token` or nothing.
    pub attestor: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateAgent {
    /// The current certificate; what follows it is not read.
    pub cert_pem: String,
    /// A PKCS#10 request for the next key.
    pub csr_pem: String,
    /// Hex of the current key's signature over `csr_pem`, byte for byte: ECDSA over its SHA-256 in ASN.1 DER.
    pub proof: String,
}

/// What an agent is, and how others can tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Identity)]
pub struct ProbectlIdentity {
    /// The leaf, then its issuer.
    pub cert_pem: String,
    /// The issuer, then the roots: verifies the leaf and the control plane alike.
    pub ca_bundle: String,
    pub spiffe_id: String,
    pub tenant_id: String,
    pub agent_id: String,
    /// Lower-case hex without leading zeros.
    pub serial: String,
    /// RFC 3339 with a fraction.
    pub not_after: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MintEnrollToken {
    /// Only this agent may be enrolled with it.
    pub agent_id: Option<String>,
    /// The agent's name.
    pub name: Option<String>,
    /// The policy's `token.default_ttl` when absent.
    pub ttl_seconds: Option<u64>,
}

/// A new token: the only time that its value is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MintedEnrollToken {
    /// `pjt_` and 64 hex digits.
    pub token: Secret,
    pub id: String,
    pub tenant_id: String,
    pub expires_at: String,
    /// Hex of the SHA-256 of the certificate that the control plane presents now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_cert_pin: Option<String>,
}

/// What the document's programs call an active agent.
const ONLINE: &str = "online";

/// An agent, under the document's names and under those that its programs read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Agent)]
pub struct ProbectlAgent {
    pub agent_id: String,
    /// The same as `agent_id`.
    pub id: String,
    pub tenant_id: String,
    pub spiffe_id: String,
    /// `registered`, `enrolled`, `active`, `inactive`, `revoked` or `decommissioned`.
    pub state: String,
    /// `online` for an active agent, else the state.
    pub status: String,
    #[schema(required)]
    pub serial: Option<String>,
    #[schema(required)]
    pub not_after: Option<String>,
    #[schema(required)]
    pub hostname: Option<String>,
    #[schema(required)]
    pub version: Option<String>,
    /// The same as `version`.
    #[schema(required)]
    pub agent_version: Option<String>,
    #[schema(required)]
    pub name: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// What kind of collector it was registered as.
    #[schema(required)]
    pub plane: Option<String>,
    #[schema(required)]
    pub last_seen: Option<String>,
    /// The same as `last_seen`.
    #[schema(required)]
    pub last_seen_at: Option<String>,
}

impl ProbectlAgent {
    /// `seen` is the last sign of life that has not been written down yet.
    pub fn of(state: &State, node: &Node, seen: Option<Timestamp>) -> Self {
        let version = node.agent_version.as_ref().map(ToString::to_string);
        let last_seen = node.last_seen.max(seen).map(moment);
        Self {
            agent_id: node.id.to_string(),
            id: node.id.to_string(),
            tenant_id: node.tenant.to_string(),
            spiffe_id: spiffe_id(state, node),
            state: node.state.to_string(),
            status: if node.state == NodeState::Active { ONLINE.to_owned() } else { node.state.to_string() },
            serial: node.current_serial().map(ToString::to_string),
            not_after: state.current_certificate(node).map(|(_, held)| moment(held.not_after)),
            hostname: node.hostname.as_ref().map(ToString::to_string),
            version: version.clone(),
            agent_version: version,
            name: node.name.as_ref().map(ToString::to_string),
            labels: node.labels.pairs().clone(),
            plane: node.plane.as_ref().map(ToString::to_string),
            last_seen: last_seen.clone(),
            last_seen_at: last_seen,
        }
    }
}

/// Who an agent is in certificates.
pub fn spiffe_id(state: &State, node: &Node) -> String {
    let domain = state.domain.as_ref();
    domain.map(|domain| SpiffeId::agent(&domain.name, &node.tenant, &node.id).to_string()).unwrap_or_default()
}

/// RFC 3339 as the document's own programs write it: with a fraction.
pub fn moment(at: Timestamp) -> String {
    let text = at.to_string();
    if text.contains('.') { text } else { text.replace('Z', ".000Z") }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Agents {
    pub agents: Vec<ProbectlAgent>,
    /// The same as `agents`.
    pub items: Vec<ProbectlAgent>,
    /// Pass it as `after` for the next page; null on the last one.
    #[schema(required)]
    pub next: Option<String>,
    /// The same as `next`.
    #[schema(required)]
    pub next_cursor: Option<String>,
}

impl Agents {
    pub fn page(agents: Vec<ProbectlAgent>, next: Option<String>) -> Self {
        Self { items: agents.clone(), agents, next_cursor: next.clone(), next }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AgentQuery {
    /// `next` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// 1 to 1000; 100 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// What is absent stays as it is; null is forgotten.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DescribeAgent {
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub name: Option<Option<String>>,
    /// All of them: what is not here is forgotten.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    pub labels: Option<Option<BTreeMap<String, String>>>,
}

/// Tells null from absent.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RevokedAgent {
    pub agent_id: String,
    pub spiffe_id: String,
    /// How many certificates were valid until then.
    pub live_serials_revoked: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RegisterCollector {
    /// An unused token; an operator needs none.
    pub token: Option<Secret>,
    /// What kind of collector it is.
    pub plane: String,
    pub hostname: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RegisteredCollector {
    pub tenant_id: String,
    pub agent_id: String,
    pub plane: String,
    #[schema(required)]
    pub hostname: Option<String>,
}

/// The body of a failure. A 401 is always the same, to the byte: it says nothing of its cause.
pub(crate) fn error(status: u16, detail: ErrorDetail) -> ProbectlError {
    let code = match status {
        401 => "unauthorized",
        403 => "forbidden",
        404 => "not_found",
        405 => "method_not_allowed",
        408 => "timeout",
        409 => "conflict",
        413 => "too_large",
        429 => "rate_limited",
        400..500 => "bad_request",
        502 | 503 => "unavailable",
        _ => "internal",
    };
    let (message, request_id) = match status {
        401 => ("not authorized".to_owned(), None),
        _ => (detail.message, Some(detail.request_id)),
    };
    ProbectlError { error: ProbectlDetail { code: code.to_owned(), message, request_id } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code;
    use crate::error::Wording;

    #[test]
    fn a_refusal_says_nothing_of_its_cause() {
        let body = |code, message, id| Wording::Probectl.body(ErrorDetail::new(code, message, id));
        let one = body(code::TOKEN_EXPIRED, "the token has expired", "1");
        assert_eq!(one, body(code::UNAUTHENTICATED, "no client certificate", "2"));
        assert_eq!(one, serde_json::json!({"error": {"code": "unauthorized", "message": "not authorized"}}));
    }

    #[test]
    fn every_code_has_a_word_of_the_document() {
        for code in code::CODES {
            let body = Wording::Probectl.body(ErrorDetail::new(code, "x", "1"));
            let internal = body.pointer("/error/code") == Some(&"internal".into());
            assert_eq!(internal, code.status == 500, "{}", code.word);
        }
    }

    #[test]
    fn absent_is_not_null() {
        let read = |text: &str| serde_json::from_str::<DescribeAgent>(text).ok();
        assert_eq!(read("{}"), Some(DescribeAgent::default()));
        assert_eq!(read(r#"{"name":null}"#).map(|body| body.name), Some(Some(None)));
        assert_eq!(read(r#"{"tenant_id":"x"}"#), None);
    }

    #[test]
    fn moments_have_a_fraction() {
        assert_eq!(moment(Timestamp::from_secs(0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(moment(Timestamp::from_millis(7)), "1970-01-01T00:00:00.007Z");
    }
}
