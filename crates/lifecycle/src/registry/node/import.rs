//! Importing: a certificate made elsewhere, under a CA that was brought along, becomes a node's. It goes on
//! record as it is, and exactly that certificate is accepted; renewing gives an ordinary one.

use crate::names::{Fingerprint, IssuerId, KeyHash, NodeId, ProfileName, Serial, TenantId, Timestamp};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened, host};
use crate::registry::{
    Certificate, CertificateStatus, Door, Envelope, Event, IssuerKind, Node, NodeState, Owner, Rejection,
    State,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Takes in a certificate that was made elsewhere: what it says of itself, its issuer's signature checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Import {
    /// As its common name says.
    pub node: NodeId,
    pub serial: Serial,
    pub fingerprint: Fingerprint,
    pub key: KeyHash,
    pub issuer: IssuerId,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

pub(in crate::registry) fn decide(state: &State, import: &Import) -> Decision {
    match admit(state, import) {
        Ok(Some(event)) => Decision::granted(vec![event]),
        Ok(None) => Decision::granted(Vec::new()),
        Err(rejection) => rejection.into(),
    }
}

/// What follows; nothing if the certificate is on record as this node's already.
fn admit(state: &State, import: &Import) -> Result<Option<Event>, Rejection> {
    let issuer = state.issuers.get(&import.issuer);
    let issuer = issuer.filter(|issuer| issuer.kind == IssuerKind::Imported && issuer.state.is_trusted());
    let issuer = issuer.ok_or(Rejection::CertificateNotOurs)?;
    if import.not_after.min(issuer.not_after) <= state.at {
        return Err(Rejection::CertificateExpired);
    }
    if let Some(known) = state.certificates.get(&import.serial) {
        let same = known.imported
            && known.fingerprint == import.fingerprint
            && known.owner == Owner::Node(import.node.clone());
        return match same {
            true if state.is_denied(&import.serial) => {
                Err(Rejection::NodeRevoked { node: import.node.clone() })
            }
            true => Ok(None),
            false => Err(Rejection::SerialInUse { serial: import.serial.clone() }),
        };
    }
    if state.serial_is_taken(&import.serial) {
        return Err(Rejection::SerialInUse { serial: import.serial.clone() });
    }
    if state.certified_keys.contains_key(&import.key) {
        return Err(Rejection::KeyInUse);
    }
    is_free(state, &import.node)?;
    let profile = profile();
    let rules = state.policy.profiles.get(&profile);
    let rules = rules.ok_or_else(|| Rejection::ProfileNotFound { profile: profile.clone() })?;
    // No certificate on record outlives its issuer, whatever it says of itself.
    let not_after = import.not_after.min(issuer.not_after);
    Ok(Some(Event::NodeImported(Box::new(NodeImported {
        tenant: TenantId::default_tenant(),
        profile,
        not_after,
        renew_at: rules.renewal_point(import.not_before.min(not_after), not_after),
        import: import.clone(),
    }))))
}

/// Never used before, tombstones included.
fn is_free(state: &State, id: &NodeId) -> Result<(), Rejection> {
    if state.nodes.contains_key(id) || id.is_reserved() {
        Err(Rejection::NodeIdInUse { node: id.clone() })
    } else {
        Ok(())
    }
}

/// Certificates made elsewhere are of the TaskRun document.
fn profile() -> ProfileName {
    Door::Taskrun.profile().unwrap_or_else(ProfileName::default_profile)
}

/// A certificate made elsewhere became an identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeImported {
    pub import: Import,
    pub tenant: TenantId,
    pub profile: ProfileName,
    /// Until when it is accepted: its own end, or its issuer's if that is earlier.
    pub not_after: Timestamp,
    pub renew_at: Timestamp,
}

impl Happened for NodeImported {
    const NAME: &'static str = "host.imported";

    fn fields(&self) -> AuditFields {
        let import = &self.import;
        host(
            &import.node,
            [
                ("tenant", AuditField::text(&self.tenant)),
                ("profile", AuditField::text(&self.profile)),
                ("mtls_cert_fingerprint", AuditField::text(import.fingerprint.labelled())),
                ("cert_serial", AuditField::text(&import.serial)),
                ("issuer", AuditField::text(&import.issuer)),
                ("not_after", AuditField::text(self.not_after)),
            ],
        )
    }

    fn peer(&self) -> Option<&NodeId> {
        Some(&self.import.node)
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        // Its holder has it, so there is nothing to send again; whether it has the trust bundle nobody knows.
        let (at, import) = (state.at, &self.import);
        let mut node = Node::registered(import.node.clone(), self.tenant.clone(), self.profile.clone(), at);
        (node.state, node.state_since, node.enrolled_at) = (NodeState::Enrolled, at, Some(at));
        node.serials.push(import.serial.clone());
        // Nobody enrolled it: whoever holds the key of a certificate made elsewhere has shown no credential of ours.
        node.recovery.eligible = Some(false);
        state.nodes.insert(node.id.clone(), Arc::new(node));
        let certificate = Certificate {
            owner: Owner::Node(import.node.clone()),
            status: CertificateStatus::Live,
            fingerprint: import.fingerprint,
            key: import.key,
            issuer: import.issuer.clone(),
            issued_at: at,
            not_after: self.not_after,
            renew_at: self.renew_at,
            der: None,
            denied_at: None,
            bundle: 0,
            imported: true,
        };
        state.certificates.insert(import.serial.clone(), Arc::new(certificate));
        state.certified_keys.insert(import.key, import.serial.clone());
    }
}
