//! The worker at the other end of a connection.

use crate::edge::authenticate::{self, ConnectionPeer};
use crate::http::failure::Failure;
use crate::process::app::App;
use api::code;
use api::doors::taskrun::COMMON_NAME_PREFIX;
use lifecycle::names::{Malformed, NodeId, Serial};
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

/// On this door the common name is read too, and must not contradict the identity. One that is too long for a
/// certificate was left out of it.
pub async fn authenticated(app: &App, peer: &ConnectionPeer) -> Result<(NodeId, Serial), Failure> {
    let (id, serial) = authenticate::node(app, peer).await?;
    let name = peer.certificate.as_ref().and_then(|certificate| certificate.common_name.as_deref());
    if name.is_none_or(|name| name.strip_prefix(COMMON_NAME_PREFIX).unwrap_or(name) == id.as_str()) {
        Ok((id, serial))
    } else {
        Err(Failure::new(code::NOT_YOUR_NODE, "the certificate's common name names another worker"))
    }
}
