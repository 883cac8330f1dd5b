//! Certificates as the doors hand them out.

use lifecycle::names::IssuerId;
use lifecycle::registry::{Issuer, State};
use pki::pem;

/// A leaf, then the intermediates between it and its root.
pub fn leaf_and_chain(state: &State, leaf: &[u8], issuer: &IssuerId) -> String {
    let leaf = pem::certificate_pem(leaf);
    if is_root(state, issuer) || is_ephemeral(state, issuer) { leaf } else { leaf + &chain(state, issuer) }
}

/// What verifies the control plane, and a leaf unless its issuer is ephemeral: intermediates, then roots. Who is given this
/// trusts the control plane by it, so an issuer of nodes alone is not in it.
pub fn trust(state: &State, issuer: &IssuerId) -> String {
    if is_ephemeral(state, issuer) { bundle(state) } else { trust_of_both(state, issuer) }
}

/// The same for pact's clients, which verify their leaf by it: with the issuer, whatever it is. An ephemeral one is no
/// danger there: it is for client certificates only, and says so.
pub fn trust_of_both(state: &State, issuer: &IssuerId) -> String {
    if is_root(state, issuer) { bundle(state) } else { chain(state, issuer) + &bundle(state) }
}

/// In the memory of a replica: a root of its own, and of no server's certificate.
fn is_ephemeral(state: &State, issuer: &IssuerId) -> bool {
    state.issuers.get(issuer).is_some_and(Issuer::is_ephemeral)
}

/// An imported CA may be its own root.
fn is_root(state: &State, issuer: &IssuerId) -> bool {
    let issuer = state.issuers.get(issuer);
    issuer.is_some_and(|issuer| state.roots.iter().any(|root| root.fingerprint == issuer.fingerprint))
}

/// What a leaf is verified by beside the bundle: the intermediates between it and its root, or its ephemeral issuer.
pub fn chain(state: &State, issuer: &IssuerId) -> String {
    let issuer = state.issuers.get(issuer);
    issuer.map(|issuer| pem::certificate_pem(&issuer.certificate)).unwrap_or_default()
}

/// What hosts trust to reach the control plane.
pub fn bundle(state: &State) -> String {
    pem::chain_pem(state.roots.iter().map(|root| root.certificate.as_slice()))
}
