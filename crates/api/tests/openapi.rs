//! The description of the operator API is a reviewed file. `UPDATE_GOLDEN=1` rewrites it.

use api::openapi::{Access, routes};
use std::collections::BTreeSet;
use std::path::Path;

#[test]
fn the_committed_document_is_the_one_that_is_served() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let served = api::openapi::json().expect("the document can be written");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &served).expect("docs is writable");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == served, "docs/openapi.json differs: look at the change, then set UPDATE_GOLDEN=1");
}

#[test]
fn every_reference_leads_somewhere() {
    let document = serde_json::to_value(api::openapi::document()).expect("the document can be written");
    let text = document.to_string();
    for reference in text.split("\"$ref\":\"#").skip(1) {
        let pointer = reference.split('"').next().unwrap_or_default();
        assert!(document.pointer(pointer).is_some(), "{pointer}");
    }
}

#[test]
fn routes_have_names_of_their_own() {
    let ids: BTreeSet<&str> = routes().map(|route| route.id).collect();
    assert_eq!(ids.len(), routes().count());
    let places: BTreeSet<_> = routes().map(|route| (route.path, route.method)).collect();
    assert_eq!(places.len(), routes().count());
}

#[test]
fn only_what_everyone_needs_is_open_to_everyone() {
    let open: Vec<&str> =
        routes().filter(|route| route.access == Access::Anyone).map(|route| route.path).collect();
    // A replica joins by the token that it sends.
    let ours = ["/v1/ca/crl", "/v1/ca/trust", "/v1/cluster/join", "/healthz", "/readyz", "/openapi.json"];
    // What a door's document opens is redeemed by what the body holds.
    let plfm = ["/v1/hosts/enroll"];
    let probectl = ["/enroll/agent", "/enroll/agent/rotate", "/v1/collectors/register"];
    let taskrun = ["/v1/enroll"];
    assert_eq!(open, [ours.as_slice(), &plfm, &probectl, &taskrun].concat());
}
