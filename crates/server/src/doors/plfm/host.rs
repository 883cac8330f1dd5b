//! A host that speaks for itself, with its own certificate; and its first word, the confirmation.

use crate::doors::plain;
use crate::edge::authenticate::{self, ConnectionPeer};
use crate::edge::node_peer::ShownIdentity;
use crate::http::extract::{Json, Segment};
use crate::http::failure::Failure;
use crate::process::app::{App, Provenance};
use api::code;
use api::doors::plfm::{ConfirmHost, ConfirmedHost, state_word};
use axum::extract::{FromRequestParts, State};
use http::request::Parts;
use lifecycle::names::NodeId;
use lifecycle::registry::{Command, Confirm, ConfirmStatus, Keeping};
use std::sync::Arc;

/// The host that the path names, and that the certificate is of.
pub struct HostCaller {
    pub id: NodeId,
    pub shown: ShownIdentity,
    pub peer: ConnectionPeer,
    pub origin: Provenance,
}

impl FromRequestParts<Arc<App>> for HostCaller {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Failure> {
        let missing = || Failure::internal("a request without its connection", &"");
        let peer = parts.extensions.get::<ConnectionPeer>().cloned().ok_or_else(missing)?;
        let origin = parts.extensions.get::<Provenance>().cloned().ok_or_else(missing)?;
        let (id, shown) = authenticate::node(app, &peer).await?;
        let Segment(named) = Segment::from_request_parts(parts, app).await?;
        if named != id.as_str() {
            return Err(Failure::new(
                code::NOT_YOUR_HOST,
                "the client certificate belongs to another host than the path names",
            ));
        }
        Ok(Self { id, shown, peer, origin })
    }
}

pub async fn confirm(
    State(app): State<Arc<App>>,
    host: HostCaller,
    Json(request): Json<ConfirmHost>,
) -> Result<axum::Json<ConfirmedHost>, Failure> {
    let status = match request.status.as_deref() {
        None | Some("ok") => ConfirmStatus::Ok,
        Some("failed") => ConfirmStatus::Failed { reason: plain(&request.reason.unwrap_or_default()) },
        Some(_) => return Err(Failure::new(code::BAD_REQUEST, "status must be ok or failed")),
    };
    let HostCaller { id, shown, origin, .. } = host;
    let command = Command::Confirm(Confirm { node: id.clone(), status, keeping: Keeping::default() });
    let (_, view) = app.commit(shown.actor(&id), &origin, command).await?;
    app.fleet.presence.seen(&id, origin.source, app.now());
    let state = view.state.nodes.get(&id).map(|node| state_word(node)).unwrap_or_default();
    Ok(axum::Json(ConfirmedHost { host_id: id.to_string(), state: state.to_owned() }))
}
