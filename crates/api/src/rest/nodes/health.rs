//! Whether a node is well, in one word.

use super::NodeLiveness;
use lifecycle::host::Class;
use lifecycle::names::Serial;
use lifecycle::registry::{AlertKind, Certificate, Node, NodeState, PRESSURE, Report, State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeHealth {
    /// `cert_expired` if its certificate has expired, or has ended because its issuer was retired, as `evidence` says; else `identity_revoked_or_fenced` if the issuer of its certificate
    /// was revoked; else the failure that it last reported, one of the eight classes
    /// or `node_observability_disk_pressure`; else the kind of the oldest open alert about it, except
    /// `node_silent`; else
    /// `endpoint_unreachable` if it is inactive; null when healthy.
    #[schema(required)]
    pub reason: Option<String>,
    #[schema(required)]
    pub since: Option<String>,
    #[schema(required)]
    pub evidence: Option<String>,
}

impl NodeHealth {
    pub(super) fn of(state: &State, node: &Node, live: &NodeLiveness) -> Self {
        if let Some((serial, held)) = state.ended_certificate(node) {
            if held.not_after > state.at {
                return Self::retired(state, node, live, (serial, held));
            }
            let evidence = format!("certificate {serial} has expired and was not renewed");
            return Self::ill("cert_expired", held.not_after.to_string(), evidence);
        }
        if let Some((serial, held)) = state.fenced_certificate(node) {
            let since = state.issuers.get(&held.issuer).and_then(|issuer| issuer.revoked_at);
            let evidence =
                format!("certificate {serial} is denied because its issuer was revoked: enroll it again");
            let since = since.unwrap_or(node.state_since).to_string();
            return Self::ill(Class::IdentityRevokedOrFenced.as_str(), since, evidence);
        }
        let report = node.newest_report(live.report.as_ref()).filter(|_| !node.state.is_gone());
        if let Some(problem) = report.and_then(|report| Self::reported(report)) {
            return problem;
        }
        // What a long silence is called, the last case below says.
        let about = state.alerts.values().filter(|alert| alert.node.as_ref() == Some(&node.id));
        let about = about.filter(|alert| alert.kind != AlertKind::NodeSilent);
        if let Some(alert) = about.min_by_key(|alert| (alert.since, alert.id)) {
            return Self::ill(alert.kind.as_str(), alert.since.to_string(), alert.detail.clone());
        }
        if node.state == NodeState::Inactive {
            let last = node.last_seen.max(live.last_seen).unwrap_or(node.state_since);
            let evidence = format!("no contact since {last}");
            return Self::ill(Class::EndpointUnreachable.as_str(), node.state_since.to_string(), evidence);
        }
        Self::default()
    }

    /// Its certificate ended before its time, with an issuer that was retired by force.
    fn retired(
        state: &State,
        node: &Node,
        live: &NodeLiveness,
        (serial, held): (&Serial, &Certificate),
    ) -> Self {
        let root = state.issuers.get(&held.issuer).and_then(|issuer| state.root_of(issuer));
        let at = root.and_then(|root| root.retired_at).unwrap_or(node.state_since);
        let back = node.last_seen.max(live.last_seen).unwrap_or(at).max(at).plus(state.policy.liveness_grace);
        let evidence = format!(
            "the issuer {} of certificate {serial} was retired: the host recovers by itself with its recovery token, about {back} if it runs (`liveness.grace`), or with a repair bundle",
            held.issuer
        );
        Self::ill("cert_expired", at.to_string(), evidence)
    }

    /// What the host says itself stands even when it falls silent: then it is the likely cause.
    fn reported(report: &Report) -> Option<Self> {
        let reason = match report.class {
            Some(class) => class.as_str(),
            None if report.observability_pressure => PRESSURE,
            None => return None,
        };
        let evidence = match report.detail.as_str() {
            "" => "reported by the host".to_owned(),
            detail => format!("reported by the host: {detail}"),
        };
        Some(Self::ill(reason, report.since.to_string(), evidence))
    }

    fn ill(reason: &str, since: String, evidence: String) -> Self {
        Self { reason: Some(reason.to_owned()), since: Some(since), evidence: Some(evidence) }
    }
}
