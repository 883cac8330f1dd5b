//! Revoking an issuer: nothing that it signed is good any more.

use crate::names::{IssuerId, IssuerUse, NodeId};
use crate::registry::apply::Decision;
use crate::registry::confirmation::named_operators;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::issuer::IssuerUsers;
use crate::registry::{Actor, Confirmation, Envelope, Event, Issuer, IssuerState, Rejection, State};

pub(in crate::registry) fn revoke(
    state: &State,
    actor: &Actor,
    id: &IssuerId,
    reason: &str,
    confirm: &Confirmation,
    asks_for_holders: bool,
) -> Decision {
    match state.issuers.get(id) {
        None => Rejection::IssuerNotFound { issuer: id.clone() }.into(),
        Some(issuer) if issuer.state == IssuerState::Revoked => Decision::granted(Vec::new()),
        Some(issuer)
            if let Err(needed) = check_confirmed(state, actor, issuer, confirm, asks_for_holders) =>
        {
            needed.into()
        }
        Some(_) => Decision::granted(vec![Event::IssuerRevoked(IssuerRevoked {
            issuer: id.clone(),
            reason: reason.to_owned(),
            leaves: state.leaves(id),
        })]),
    }
}

/// Without the issuer that signs, no node can enroll, renew or recover; with ephemeral issuers, no operator and no replica gets
/// a certificate. Of one that signs no more, whoever uses a certificate is cut off.
fn check_confirmed(
    state: &State,
    actor: &Actor,
    issuer: &Issuer,
    confirm: &Confirmation,
    asks_for_holders: bool,
) -> Result<(), Rejection> {
    let IssuerUsers { nodes, operators, replicas } = state.users_of(&issuer.id);
    let cuts_off = asks_for_holders && !(nodes.is_empty() && operators.is_empty() && replicas.is_empty());
    if confirm.is_not_asked() || (issuer.state != IssuerState::Active && !cuts_off) {
        return Ok(());
    }
    let mut consequence = consequence(state, issuer);
    if !operators.is_empty() {
        consequence.push_str(&format!("; operators affected {}", named_operators(&operators, actor)));
        // The active issuer would sign the renewal.
        if issuer.state != IssuerState::Active {
            consequence.push_str("; an operator who runs `enlist operator renew` first avoids that");
        }
    }
    if !replicas.is_empty() {
        consequence.push_str(&format!("; replicas affected: {}", replicas.len()));
    }
    confirm.check(issuer.id.as_str(), &consequence, nodes.len() as u64)
}

/// Revoking is the registry's, by which clients are verified. Who verifies the control plane does not ask it.
const SERVERS_GO_ON: &str = "hosts and operators refuse nothing by this, and the control plane goes on with the certificate that it has: they refuse what \
    this issuer signed once they have a list of the root that denies it (`enlist ca sign-crl` where the root key is, then `enlist ca import-crl`)";

fn consequence(state: &State, issuer: &Issuer) -> String {
    if issuer.state != IssuerState::Active {
        return format!(
            "issuer {} is {} and still has valid certificates: every certificate of a node or an operator that it signed is refused at once, and their holders have to be enrolled or added again",
            issuer.id,
            issuer.state.as_str()
        );
    }
    if issuer.is_ephemeral() {
        format!(
            "issuer {} signs now: every certificate that it signed is refused at once, and their nodes have to recover or enroll again; its replica publishes another issuer by itself",
            issuer.id
        )
    } else if state.has_ephemeral_issuers() && issuer.usage.is_both() {
        format!(
            "issuer {} signs the certificates of operators and of the control plane: every operator's certificate that it signed is refused at once, and none of these can be issued until another issuer is active; nodes have theirs from ephemeral issuers, which go on; {SERVERS_GO_ON}",
            issuer.id
        )
    } else {
        let id = &issuer.id;
        match issuer.usage {
            IssuerUse::Both => format!(
                "issuer {id} is the only one that signs: every certificate of a node or an operator that it signed is refused at once, and none can be issued until another issuer is active; {SERVERS_GO_ON}"
            ),
            IssuerUse::Node => format!(
                "issuer {id} is the only one that signs for nodes and operators: every certificate that it signed is refused at once, and none can be issued until another issuer is active"
            ),
            IssuerUse::Server => format!(
                "issuer {id} is the only one that signs for the control plane: no certificate of the control plane can be issued until another issuer is active; {SERVERS_GO_ON}"
            ),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerRevoked {
    pub issuer: IssuerId,
    pub reason: String,
    /// How many certificates that were good are denied by it.
    pub leaves: u64,
}

impl Happened for IssuerRevoked {
    const NAME: &'static str = "ca.revoked";

    fn fields(&self) -> AuditFields {
        vec![
            ("issuer", AuditField::text(&self.issuer)),
            ("reason", AuditField::text(&self.reason)),
            ("leaves", AuditField::Number(self.leaves)),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.end_issuer(&self.issuer, IssuerState::Revoked);
        state.denials += 1;
    }
}
