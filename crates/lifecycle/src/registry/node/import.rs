//! Importing: a certificate made elsewhere, under a CA that was brought along, becomes a node's. It goes on
//! record as it is, and exactly that certificate is accepted; renewing gives an ordinary one.

use crate::names::{NodeId, ProfileName, TenantId};
use crate::registry::apply::Decision;
use crate::registry::{Door, Event, Import, IssuerKind, NodeImported, Owner, Rejection, State};

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
