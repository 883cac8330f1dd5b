//! A node's first request with a certificate confirms it, whatever the request asks: what is refused or not served is contact too.

use crate::doors;
use crate::edge::authenticate::{self, ConnectionPeer};
use crate::process::app::{App, Provenance};
use lifecycle::registry::{self, NodeState};

/// Paths that authenticate nobody: a certificate that happens to be shown there says nothing.
const UNAUTHENTICATED: &[&str] = &[
    "/healthz",
    "/readyz",
    "/openapi.json",
    "/v1/ca/crl",
    "/v1/ca/trust",
    "/v1/cluster/join",
    "/v1/hosts/enroll",
    "/enroll/agent",
    "/v1/collectors/register",
    "/v1/enroll",
    "/enlist.agent.v1.Agent/Enroll",
    "/enlist.agent.v1.Agent/Recover",
    "/pact.enrollment.EnrollmentService/Enroll",
];
const UNAUTHENTICATED_SERVICES: &[&str] = &["/grpc.health.v1.Health/", "/grpc.reflection."];
/// What `enlist-agent doctor` asks. A diagnosis changes nothing, and is no sign of life either: the daemon may be stopped.
const DIAGNOSIS: &str = "/enlist.agent.v1.Agent/Check";
/// A confirmation may say that the host could not store what it was given: its handler decides.
const CONFIRMATION: &str = "/enlist.agent.v1.Agent/Confirm";

/// Whether a request to this path with a node's certificate is contact.
fn is_contact(path: &str) -> bool {
    let confirms = path == CONFIRMATION
        || path.strip_prefix("/v1/hosts/").is_some_and(|rest| rest.ends_with("/confirm-enrollment"));
    !confirms
        && path != DIAGNOSIS
        && !UNAUTHENTICATED.contains(&path)
        && !UNAUTHENTICATED_SERVICES.iter().any(|service| path.starts_with(service))
}

/// Notes a request of a node whose credential is good. Only what changes the registry is committed; if that fails, the handler or the
/// next request tries again.
pub async fn note(app: &App, peer: &ConnectionPeer, origin: &Provenance, path: &str) {
    if !is_contact(path) {
        return;
    }
    let Ok((id, shown)) = authenticate::node(app, peer).await else { return };
    let view = app.view();
    let is_enrolled = || view.state.nodes.get(&id).is_some_and(|node| node.state == NodeState::Enrolled);
    // A stream that is turned away lets no next certificate take over: only its handler knows whether the host was welcomed.
    if (!doors::lasts(path) || is_enrolled())
        && registry::contact_changes(&view.state, &shown.actor(&id), &id)
        && let Err(failure) = authenticate::contact(app, origin, &id, &shown).await
    {
        tracing::debug!(node = %id, code = failure.code.word, "the contact was not recorded");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_authenticates_nobody_is_no_contact() {
        for path in ["/healthz", "/v1/enroll", "/grpc.health.v1.Health/Check", CONFIRMATION, DIAGNOSIS] {
            assert!(!is_contact(path), "{path}");
        }
        assert!(!is_contact("/v1/hosts/n1/confirm-enrollment"));
        for path in ["/v1/nodes", "/v1/renew", "/nowhere", "/probectl.agent.v1.AgentService/Register", ""] {
            assert!(is_contact(path), "{path}");
        }
    }
}
