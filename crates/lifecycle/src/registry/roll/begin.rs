//! Beginning a roll: the requests for the next issuers' certificates go out.

use super::PendingRoll;
use crate::names::{IssuerUse, KeyHash, NodeId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Envelope, Event, IssuerKind, IssuerState, Rejection, RootState, State};
use std::collections::{BTreeMap, BTreeSet};

/// One roll at a time. Asked again for the same, the requests that are out stay the ones.
pub(in crate::registry) fn begin(state: &State, begin: &PendingRoll) -> Decision {
    if let Some(pending) = &state.pending_roll {
        return if what(pending) == what(begin) {
            Decision::granted(Vec::new())
        } else {
            in_progress("a CSR of another roll waits for its certificate")
        };
    }
    if let Some(issuer) = state.domain_issuers_in(IssuerState::Prepared).next() {
        return in_progress(&format!("issuer {} is prepared", issuer.id));
    }
    // The issuers below it were revoked: it goes with the roll that brought it.
    if state.root_in(RootState::Prepared).is_some() {
        return in_progress("a new root is prepared");
    }
    if begin.new_root && state.root_in(RootState::Retiring).is_some() {
        let what = "the root before the active one is not retired yet".to_owned();
        return Rejection::RollInProgress { what, active: true }.into();
    }
    match check(state, begin) {
        Ok(()) => Decision::granted(vec![Event::RollBegun(begin.clone())]),
        Err(why) => Rejection::IssuerInvalid { why: why.to_owned() }.into(),
    }
}

fn in_progress(what: &str) -> Decision {
    Rejection::RollInProgress { what: what.to_owned(), active: false }.into()
}

/// What a roll is for, whatever its keys are and in whichever order it asks.
fn what(roll: &PendingRoll) -> (bool, BTreeMap<IssuerUse, IssuerKind>) {
    (roll.new_root, roll.requests.iter().map(|request| (request.usage, request.kind)).collect())
}

fn check(state: &State, begin: &PendingRoll) -> Result<(), &'static str> {
    let uses: BTreeSet<IssuerUse> = begin.requests.iter().map(|request| request.usage).collect();
    if uses.is_empty() || uses.len() != begin.requests.len() || uses.contains(&IssuerUse::Both) {
        return Err("a roll is for a node issuer, a server issuer, or one of each");
    }
    if uses.len() < 2 && (begin.new_root || !state.is_divided()) {
        return Err("this roll is for a node issuer and a server issuer together");
    }
    let held = |kind| matches!(kind, IssuerKind::Sealed | IssuerKind::Pkcs11);
    if begin.requests.iter().any(|request| request.sealed_key.is_empty() || !held(request.kind)) {
        return Err("the domain does not hold the key");
    }
    // With one key, whoever steals the node issuer could sign for the control plane after all.
    let keys: BTreeSet<KeyHash> = begin.requests.iter().map(|request| request.key).collect();
    if keys.len() != begin.requests.len() {
        return Err("a node issuer and a server issuer have keys of their own");
    }
    Ok(())
}

impl Happened for PendingRoll {
    const NAME: &'static str = "ca.requested";

    fn fields(&self) -> AuditFields {
        let keys: Vec<String> = self.requests.iter().map(|request| request.key.hex()).collect();
        let uses: Vec<&str> = self.requests.iter().map(|request| request.usage.as_str()).collect();
        vec![
            ("key_hashes", AuditField::texts(&keys)),
            ("uses", AuditField::texts(&uses)),
            ("new_root", AuditField::Flag(self.new_root)),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        // A request of a version that knew one issuer for both uses is given up with it.
        state.roll = None;
        state.pending_roll = Some(self.clone());
    }
}
