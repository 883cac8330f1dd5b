//! gRPC's own services: `grpc.health.v1`, and server reflection with what it answers from.

/// Generated from `proto/grpc/health/v1/health.proto`.
#[expect(
    unused_qualifications,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated"
)]
pub mod health {
    include!("generated/grpc.health.v1.rs");
}

/// Generated from `proto/grpc/reflection/v1/reflection.proto`.
#[expect(
    unused_qualifications,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated"
)]
pub mod reflection {
    include!("generated/grpc.reflection.v1.rs");
}

/// Every protocol that is served, as a `google.protobuf.FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!("generated/descriptors.bin");

pub use prost_types::{FileDescriptorProto, FileDescriptorSet, Timestamp as WireTimestamp};
