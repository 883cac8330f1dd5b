//! Compiles the gRPC protocols. protox reads it in Rust, because a fresh machine has no `protoc`.

const INCLUDE: &str = "proto";
const PROTOS: [&str; 2] = ["enlist/agent/v1/agent.proto", "taskrun/v1/run.proto"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed={INCLUDE}");
    let descriptors = protox::compile(PROTOS, [INCLUDE])?;
    tonic_prost_build::configure()
        // Their tokens must not end up in a log: `agent.rs` writes the Debug forms.
        .skip_debug([
            "enlist.agent.v1.EnrollRequest",
            "enlist.agent.v1.RecoverRequest",
            "enlist.agent.v1.RecoveryGrant",
        ])
        // It is sent rarely and one at a time; a box in every match would cost more than it saves.
        .type_attribute("enlist.agent.v1.LiveUp.message", "#[allow(clippy::large_enum_variant)]")
        // Connecting is `client`'s, with its own verifier.
        .build_transport(false)
        .compile_fds(descriptors)?;
    Ok(())
}
