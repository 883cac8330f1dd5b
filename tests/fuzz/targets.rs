//! Everything that a stranger's bytes reach, one function per reader: none may panic, hang or grow without
//! bound, and whatever is accepted must survive being written and read again.
//!
//! No fuzzer is needed here. `fuzz/` puts libFuzzer around these; `crates/cli/tests/corpus.rs` runs them over
//! the kept corpus, and over mutations of it, in every build.

#![expect(clippy::expect_used, reason = "a target fails by panicking")]

mod server_chain;
mod stored;
mod text;
pub mod world;
mod x509;

pub use server_chain::server_chain;
pub use stored::{apply, audit_line, snapshot, stored_entry};
pub use text::{config, json_bodies, pin, policy, protobuf, query_strings, server_url, token};
pub use x509::{client_certificate, csr_der, csr_pem, issuance, pem};

pub type Target = fn(&[u8]);

/// Every target by its name, which is also the name of its corpus.
pub const TARGETS: &[(&str, Target)] = &[
    ("apply", apply),
    ("audit_line", audit_line),
    ("client_certificate", client_certificate),
    ("config", config),
    ("csr_der", csr_der),
    ("csr_pem", csr_pem),
    ("json_bodies", json_bodies),
    ("pem", pem),
    ("pin", pin),
    ("policy", policy),
    ("protobuf", protobuf),
    ("query_strings", query_strings),
    ("server_chain", server_chain),
    ("server_url", server_url),
    ("snapshot", snapshot),
    ("stored_entry", stored_entry),
    ("token", token),
];
