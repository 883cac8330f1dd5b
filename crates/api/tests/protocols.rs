//! The Rust of the gRPC protocols is committed, so that building the programs needs no protobuf compiler. It is what
//! `proto/` says; `UPDATE_GOLDEN=1` writes it anew.

#![expect(clippy::expect_used, reason = "a test that cannot go on may panic")]

use prost::Message as _;
use std::path::Path;

const PROTOS: [&str; 7] = [
    "enlist/agent/v1/agent.proto",
    "taskrun/v1/run.proto",
    "pact/enrollment.proto",
    "pact/stream.proto",
    "grpc/health/v1/health.proto",
    "grpc/reflection/v1/reflection.proto",
    "spiffe/workload.proto",
];
const DESCRIPTORS: &str = "descriptors.bin";
const GENERATED: [&str; 8] = [
    "enlist.agent.v1.rs",
    "taskrun.v1.rs",
    "pact.enrollment.rs",
    "pact.stream.rs",
    "grpc.health.v1.rs",
    "grpc.reflection.v1.rs",
    "_.rs",
    DESCRIPTORS,
];

/// protox reads them in Rust, because a fresh machine has no `protoc`.
fn generate(out: &Path) {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let descriptors = protox::compile(PROTOS, [include]).expect("the protocols compile");
    // What server reflection answers from; comments and places in the files are not in it.
    let mut plain = descriptors.clone();
    // SPIRE serves it, and not the control plane.
    plain.file.retain(|file| !file.name().starts_with("spiffe/"));
    for file in &mut plain.file {
        file.source_code_info = None;
    }
    std::fs::write(out.join(DESCRIPTORS), plain.encode_to_vec()).expect("the directory is writable");
    tonic_prost_build::configure()
        .out_dir(out)
        // Small buffers: a stream keeps them.
        .codec_path("crate::codec::LeanCodec")
        // Its entries are counted while they are decoded.
        .extern_path(
            ".pact.enrollment.BatchRegisterNodesRequest",
            "crate::doors::pact::enrollment::BatchRegisterNodesRequest",
        )
        // Their tokens must not end up in a log: `agent.rs` writes the Debug forms.
        .skip_debug([
            "enlist.agent.v1.EnrollRequest",
            "enlist.agent.v1.RecoverRequest",
            "enlist.agent.v1.RecoveryGrant",
            "X509SVID",
        ])
        // It is sent rarely and one at a time; a box in every match would cost more than it saves.
        .type_attribute("enlist.agent.v1.LiveUp.message", "#[allow(clippy::large_enum_variant)]")
        // Connecting is `client`'s, with its own verifier.
        .build_transport(false)
        .emit_rerun_if_changed(false)
        .compile_fds(descriptors)
        .expect("the code can be generated");
}

#[test]
fn the_committed_golden_code_is_what_the_protocols_say() {
    let made = tempfile::tempdir().expect("a directory");
    generate(made.path());
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/generated");
    for name in GENERATED {
        let wanted = std::fs::read(made.path().join(name)).expect("generated");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(kept.join(name), &wanted).expect("src/generated is writable");
        }
        let committed = std::fs::read(kept.join(name)).unwrap_or_default();
        assert!(committed == wanted, "src/generated/{name} differs from proto/: set UPDATE_GOLDEN=1");
    }
}
