//! Importing the revocation list of a root: hosts are told which issuers to refuse. The rules here read no list: that it is
//! signed by this root, and says what the fields say, is checked where it is read (`pki::crl`).

use super::RootList;
use crate::names::{Fingerprint, IssuerId, IssuerUse, NodeId, Serial};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Confirmation, Envelope, Event, IssuerState, Rejection, State};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportRootList {
    /// The root that signed it.
    pub root: Fingerprint,
    pub list: RootList,
    /// Those issuers of the domain whose certificates it denies.
    pub issuers: Vec<IssuerId>,
    #[serde(default, skip_serializing_if = "Confirmation::is_not_asked")]
    pub confirm: Confirmation,
    /// Asks about issuers of nodes too. Commands of before asked about those of the control plane only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asks_for_nodes: bool,
}

pub(in crate::registry) fn import(state: &State, import: &ImportRootList) -> Decision {
    let invalid = |why: &str| Rejection::ListInvalid { why: why.to_owned() }.into();
    if !state.trusted_roots().any(|root| root.fingerprint == import.root) {
        return invalid("no root of this domain has signed it");
    }
    if let Some(known) = state.lists.get(&import.root) {
        if known.der == import.list.der {
            return Decision::granted(Vec::new());
        }
        if let Err(refused) = import.list.check_follows(known) {
            return refused.into();
        }
    }
    if let Err(needed) = check_confirmed(state, import) {
        return needed.into();
    }
    Decision::granted(vec![Event::RootListImported(Box::new(import.clone()))])
}

impl RootList {
    /// Whether it may take the place of the list on record, which hosts have: it is newer and denies no less.
    pub fn check_follows(&self, known: &RootList) -> Result<(), Rejection> {
        if self.number < known.number {
            return Err(Rejection::ListOlder { number: self.number, known: known.number });
        }
        if self.number == known.number {
            let why = "it has the number of the list on record and other contents".to_owned();
            return Err(Rejection::ListInvalid { why });
        }
        let missing = known.denied.iter().filter(|serial| !self.denied.contains(serial));
        let missing: Vec<&str> = missing.map(Serial::as_str).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let certificates = if missing.len() == 1 { "certificate" } else { "certificates" };
        let why = format!(
            "it does not name the issuer {certificates} {}, which the list on record denies",
            missing.join(", ")
        );
        Err(Rejection::ListInvalid { why })
    }
}

/// A list that denies the issuer of the control plane's own certificate cuts off every host that learns it, and none can be
/// taken back.
fn check_confirmed(state: &State, import: &ImportRootList) -> Result<(), Rejection> {
    let signs = |id: &IssuerId, wanted: fn(IssuerUse) -> bool| {
        state.issuers.get(id).is_some_and(|issuer| {
            matches!(issuer.state, IssuerState::Active | IssuerState::Prepared) && wanted(issuer.usage)
        })
    };
    let own = |id: &&IssuerId| state.control_plane_uses(id) || signs(id, IssuerUse::signs_servers);
    let of_nodes = |id: &&IssuerId| import.asks_for_nodes && signs(id, IssuerUse::signs_clients);
    let (issuer, consequence, affected) = if let Some(issuer) = import.issuers.iter().find(own) {
        let consequence = format!(
            "issuer {issuer} signs the control plane's own certificate, or is about to: every host that learns this list refuses the control plane \
             until that certificate comes from another issuer; a list cannot be taken back"
        );
        (issuer, consequence, state.holders().count() as u64)
    } else if let Some(issuer) = import.issuers.iter().find(of_nodes) {
        let consequence = format!(
            "issuer {issuer} signs the certificates of nodes and operators, or is about to: whoever verifies these by this list refuses them, \
             while the control plane accepts them until the issuer is revoked; a list cannot be taken back"
        );
        (issuer, consequence, state.users_of(issuer).nodes.len() as u64)
    } else {
        return Ok(());
    };
    import.confirm.check(issuer.as_str(), &consequence, affected)
}

impl Happened for ImportRootList {
    const NAME: &'static str = "ca.list_imported";

    fn fields(&self) -> AuditFields {
        vec![
            ("root_fingerprint", AuditField::text(self.root.labelled())),
            ("number", AuditField::Number(self.list.number)),
            ("denied_serials", AuditField::texts(&self.list.denied)),
            ("issuers", AuditField::texts(&self.issuers)),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.lists.insert(self.root, self.list.clone());
        state.bundle_version += 1;
    }
}
