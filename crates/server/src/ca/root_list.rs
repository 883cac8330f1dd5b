//! The revocation list of a root, made where the root key is: hosts learn from it which issuers to refuse.

use crate::ca::roll::Requester;
use crate::http::failure::Failure;
use crate::process::app::App;
use journal::View;
use lifecycle::names::IssuerId;
use lifecycle::registry::{Command, Confirmation, ImportRootList, Rejection, RootList, RootState};
use std::sync::Arc;

pub async fn import(
    app: &App,
    by: &Requester<'_>,
    list: &str,
    confirm: Option<String>,
) -> Result<Arc<View>, Failure> {
    let view = app.view();
    let invalid =
        |why: &dyn std::fmt::Display| Failure::from(Rejection::ListInvalid { why: why.to_string() });
    let der = pki::pem::revocation_list(list.as_bytes()).map_err(|error| invalid(&error))?;
    let roots: Vec<_> = view.state.trusted_roots().collect();
    let ders: Vec<&[u8]> = roots.iter().map(|root| root.certificate.as_slice()).collect();
    let read = pki::crl::read_root_list(&der, &ders).map_err(|error| invalid(&error))?;
    let root = roots.get(read.root).ok_or_else(|| invalid(&"no root of this domain has signed it"))?;
    let denied = |certificate: &[u8]| {
        let serial = pki::describe::facts(certificate).map(|facts| facts.serial);
        serial.is_ok_and(|serial| read.denied.contains(&serial))
    };
    let prepared = view.state.root_in(RootState::Prepared);
    let cross = prepared.and_then(|root| root.cross_certificate.as_ref());
    let list = RootList { number: read.number, denied: read.denied.clone(), der: der.to_vec() };
    if cross.is_some_and(|cross| denied(cross)) {
        let known = view.state.lists.get(&root.fingerprint);
        return Err(too_early(known.and_then(|known| list.check_follows(known).err())));
    }
    let of_roots = view.state.trusted_roots().map(|root| root.certificate.as_slice());
    let crosses = view.state.roots.iter().filter_map(|root| root.cross_certificate.as_ref());
    if of_roots.chain(crosses.map(|cross| cross.as_slice())).any(&denied) {
        return Err(invalid(&"it denies a root, and every host that learns it would trust nobody"));
    }
    read.check(&root.certificate).map_err(|error| invalid(&error))?;
    let below = view.state.issuers.values().filter(|issuer| {
        issuer.is_of_domain()
            && view.state.root_of(issuer).is_some_and(|above| above.fingerprint == root.fingerprint)
    });
    let issuers: Vec<IssuerId> =
        below.filter(|issuer| denied(&issuer.certificate)).map(|issuer| issuer.id.clone()).collect();
    let command = ImportRootList {
        root: root.fingerprint,
        list,
        issuers,
        confirm: Confirmation::Asked(confirm),
        asks_for_nodes: true,
    };
    by.commit(app, Command::ImportRootList(Box::new(command))).await
}

/// A list that denies the cross-certificate of a prepared root. What else is wrong with it is said at once: it is imported again.
fn too_early(also: Option<Rejection>) -> Failure {
    let why =
        "it denies the cross-certificate of the root that is prepared, which hosts are to follow".to_owned();
    let (why, hint) = match also {
        None => (
            why,
            "give up the roll to that root first (`enlist ca roll abandon`), then import the list again; or leave the cross-certificate out of it",
        ),
        Some(also) => {
            let also = match also {
                Rejection::ListInvalid { why } => why,
                other => other.to_string(),
            };
            (
                format!("{why}; and {also}"),
                "give up the roll to that root first (`enlist ca roll abandon`), and sign the list again with `enlist ca sign-crl --previous FILE`, \
                 where FILE is the list on record (`enlist ca crl --roots` writes it); then import the new list",
            )
        }
    };
    Failure::from(Rejection::ListInvalid { why }).remedy(hint)
}
