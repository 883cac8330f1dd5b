//! Renewing: a node gets the next certificate, for a new key.

use super::issue::{Issue, LeafGrant, Preparation, Released, issue, read_csr};
use crate::edge::node_peer::ShownIdentity;
use crate::http::failure::Failure;
use crate::process::app::{App, Provenance};
use lifecycle::names::{Label, NodeId};
use lifecycle::registry::{
    Actor, Command, Keeping, Rejection, Renew, Renewal, State, has_place_by_svid, renewable, svid_renewable,
};
use pki::csr;
use std::sync::Arc;

/// What a door makes of its wire shape. The node and its serial come from the connection.
pub struct RenewalRequest {
    pub node: NodeId,
    pub with: ShownIdentity,
    pub csr: Vec<u8>,
    pub agent_version: Option<Label>,
    /// What the host says of its recovery token.
    pub keeping: Keeping,
}

/// Renews, and counts the attempt.
pub async fn renew(
    app: &Arc<App>,
    origin: &Provenance,
    request: RenewalRequest,
) -> Result<Released, Failure> {
    let node = request.node.clone();
    let result = attempt(app, origin, request).await;
    app.metrics.renewed(result.as_ref().map_or_else(|failure| failure.code.word, |_| "ok"));
    app.fleet.presence.seen(&node, origin.source, app.now());
    result
}

async fn attempt(app: &Arc<App>, origin: &Provenance, request: RenewalRequest) -> Result<Released, Failure> {
    app.knows_the_time()?;
    let place = app.issuance.place().await?;
    let csr = read_csr(&request.csr)?;
    let command = Renew {
        node: request.node,
        key: csr.key,
        key_kind: csr.kind,
        agent_version: request.agent_version,
        prepared: None,
        keeping: request.keeping,
    };
    let renewing = Renewing { command, csr, with: request.with };
    issue(app, origin, renewing, app.view(), place).await.map_err(|unissued| unissued.failure)
}

/// A renewal by SVID, which leaves places for those by certificate.
fn by_svid(state: &State, command: &Renew) -> Result<Renewal, Rejection> {
    let renewal = svid_renewable(state, command)?;
    if matches!(renewal, Renewal::Fresh { .. })
        && let Err(rejection) = has_place_by_svid(state, &command.node)
    {
        let node = &command.node;
        tracing::warn!(%node, "more certificates are asked for by an SVID than a host needs: somebody else may have it");
        return Err(rejection);
    }
    Ok(renewal)
}

struct Renewing {
    command: Renew,
    csr: csr::VerifiedCsr,
    with: ShownIdentity,
}

impl Issue for Renewing {
    fn actor(&self) -> Actor {
        self.with.actor(&self.command.node)
    }

    fn csr(&self) -> &csr::VerifiedCsr {
        &self.csr
    }

    fn prepare(&self, _app: &App, state: &State) -> Result<Preparation, Failure> {
        let command = self.command.clone();
        let renewal = match self.with.on_record() {
            Some(with) => renewable(state, with, &command)?,
            None => by_svid(state, &command)?,
        };
        match renewal {
            Renewal::Fresh { tenant, profile } => {
                let node = command.node.clone();
                let complete = Box::new(move |certificate| {
                    Command::Renew(Box::new(Renew { prepared: Some(certificate), ..command }))
                });
                Ok(Preparation::Leaf(LeafGrant { tenant, profile, node, complete }))
            }
            Renewal::Again { .. } => Ok(Preparation::Decided(Box::new(Command::Renew(Box::new(command))))),
        }
    }

    fn used(&self, _node: &NodeId) -> Rejection {
        Rejection::KeyInUse
    }
}
