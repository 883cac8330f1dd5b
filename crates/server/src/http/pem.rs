//! Certificates as the doors hand them out.

use lifecycle::names::IssuerId;
use lifecycle::registry::State;
use pki::pem;

/// A leaf, then the intermediates between it and its root.
pub fn leaf_and_chain(state: &State, leaf: &[u8], issuer: &IssuerId) -> String {
    let leaf = pem::certificate_pem(leaf);
    if is_root(state, issuer) { leaf } else { leaf + &chain(state, issuer) }
}

/// What verifies a leaf and the control plane alike: intermediates, then roots.
pub fn trust(state: &State, issuer: &IssuerId) -> String {
    if is_root(state, issuer) { bundle(state) } else { chain(state, issuer) + &bundle(state) }
}

/// An imported CA may be its own root.
fn is_root(state: &State, issuer: &IssuerId) -> bool {
    let issuer = state.issuers.get(issuer);
    issuer.is_some_and(|issuer| state.roots.iter().any(|root| root.fingerprint == issuer.fingerprint))
}

/// The intermediates between a leaf and its root.
pub fn chain(state: &State, issuer: &IssuerId) -> String {
    let issuer = state.issuers.get(issuer);
    issuer.map(|issuer| pem::certificate_pem(&issuer.certificate)).unwrap_or_default()
}

/// What hosts trust to reach the control plane.
pub fn bundle(state: &State) -> String {
    pem::chain_pem(state.roots.iter().map(|root| root.certificate.as_slice()))
}
