//! The worker at the other end of a connection.

use crate::edge::authenticate::{self, Peer};
use crate::http::failure::Failure;
use crate::process::app::App;
use api::code;
use api::doors::taskrun::COMMON_NAME_PREFIX;
use lifecycle::names::{NodeId, Serial};

/// On this door the common name is read too, and must not contradict the identity. One that is too long for a
/// certificate was left out of it.
pub async fn authenticated(app: &App, peer: &Peer) -> Result<(NodeId, Serial), Failure> {
    let (id, serial) = authenticate::node(app, peer).await?;
    let name = peer.certificate.as_ref().and_then(|certificate| certificate.common_name.as_deref());
    if name.is_none_or(|name| name.strip_prefix(COMMON_NAME_PREFIX).unwrap_or(name) == id.as_str()) {
        Ok((id, serial))
    } else {
        Err(Failure::new(code::NOT_YOUR_NODE, "the certificate's common name names another worker"))
    }
}
