//! The worker at the other end of a connection.

use crate::edge::authenticate::{self, ConnectionPeer};
use crate::edge::node_peer::ShownIdentity;
use crate::http::failure::Failure;
use crate::process::app::App;
use api::code;
use api::doors::taskrun::COMMON_NAME_PREFIX;
use lifecycle::names::{Malformed, NodeId};
use lifecycle::registry::State;
use pki::csr;

/// The id that a common name holds: `worker:ID`, or the id alone.
pub fn named(common_name: &str) -> Result<NodeId, Malformed> {
    NodeId::parse(common_name.strip_prefix(COMMON_NAME_PREFIX).unwrap_or(common_name))
}

/// A worker writes the id that it wants into the common name of its CSR.
pub fn requested(csr: &csr::VerifiedCsr) -> Result<Option<NodeId>, Failure> {
    let name = csr.common_name.as_deref().filter(|name| !name.is_empty());
    name.map(named).transpose().map_err(|error| {
        Failure::new(code::CSR_INVALID, format!("the common name holds no worker id: {error}"))
    })
}

/// How long a common name can be (RFC 5280, ub-common-name); a longer one is left out of the certificate.
const COMMON_NAME_LENGTH: usize = 64;

/// On this API the common name is read too and must agree with the SPIFFE id: a certificate that was issued for another
/// API is none of a worker. An imported certificate is whose its record says, whatever names it holds.
pub async fn authenticated(app: &App, peer: &ConnectionPeer) -> Result<(NodeId, ShownIdentity), Failure> {
    let (id, shown) = authenticate::node(app, peer).await?;
    let view = app.view();
    let record = shown.on_record().and_then(|serial| view.state.certificates.get(serial));
    let imported = record.is_some_and(|record| record.imported);
    let name = peer.certificate.as_ref().and_then(|certificate| certificate.common_name.as_deref());
    if imported || agrees(name, &id, named_as_worker(&view.state, &id)) {
        return Ok((id, shown));
    }
    let message = format!("the certificate's common name is not {COMMON_NAME_PREFIX}{id}");
    Err(Failure::new(code::NOT_YOUR_NODE, message)
        .remedy("use a certificate with a profile of TaskRun, such as `taskrun`: enroll as a worker"))
}

/// Whether the node's profile gives the common name of a worker.
fn named_as_worker(state: &State, id: &NodeId) -> bool {
    let profile = state.nodes.get(id).and_then(|node| state.policy.profiles.get(&node.profile));
    profile.is_some_and(|profile| profile.cn.strip_prefix(COMMON_NAME_PREFIX) == Some("{node}"))
}

/// One without room for it may be missing, in a certificate that was to have it.
fn agrees(common_name: Option<&str>, id: &NodeId, named_as_worker: bool) -> bool {
    let worker = format!("{COMMON_NAME_PREFIX}{id}");
    match common_name {
        Some(name) => name == worker,
        None => worker.len() > COMMON_NAME_LENGTH && named_as_worker,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_name_that_has_no_room_may_be_missing() {
        let (short, long) = (NodeId::parse("w-1").unwrap(), NodeId::parse(&"n".repeat(63)).unwrap());
        assert!(agrees(Some("worker:w-1"), &short, false));
        for other in
            [None, Some("w-1"), Some("worker:w-2"), Some(""), Some("Worker:w-1"), Some("worker:w-1 ")]
        {
            assert!(!agrees(other, &short, true), "{other:?}");
        }
        assert!(agrees(None, &long, true) && !agrees(Some(long.as_str()), &long, true));
        assert!(!agrees(None, &long, false), "of another profile");
    }
}
