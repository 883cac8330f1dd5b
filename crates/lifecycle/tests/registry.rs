//! The rules of the registry, one file per act, through one door: `support::check`.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on stops"
)]

mod alert;
mod apply;
mod audit_fields;
mod authorize;
mod bootstrap;
mod clock;
mod confirm;
mod confirmation;
mod contact;
mod describe;
mod drain;
mod enroll;
mod forwarding;
mod hardware;
mod histories;
mod host;
mod import;
mod issuance;
mod issuer;
mod liveness;
mod operator;
mod overlay;
mod policy;
mod publish;
mod quarantine;
mod recovery;
mod register;
mod renew;
mod repair;
mod replica;
mod report;
mod revoke;
mod roll;
mod rollback;
mod root;
mod rotate;
mod scheduling;
mod server_certificate;
mod session;
mod support;
mod svid;
mod tenant;
mod tidy;
mod token;
mod vcluster;
mod verdict;

#[test]
fn every_file_of_this_folder_is_part_of_the_suite() {
    let suite = include_str!("registry.rs");
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if path.extension().is_some_and(|extension| extension == "rs") && name != "registry" {
            assert!(suite.contains(&format!("mod {name};")), "{name}.rs is not named in registry.rs");
        }
    }
}
