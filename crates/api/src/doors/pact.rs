//! pact: nodes that are registered by their hardware, enroll by it, and stream their configuration.
//!
//! Unknown fields in requests are ignored, as protobuf does.

/// `pact.enrollment`, generated from `proto/pact/enrollment.proto`.
#[expect(
    unused_qualifications,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated"
)]
mod generated_enrollment {
    include!("../generated/pact.enrollment.rs");
}

/// `pact.stream`, generated from `proto/pact/stream.proto`.
#[expect(
    unused_qualifications,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated"
)]
mod generated_stream {
    include!("../generated/pact.stream.rs");
}

mod batch;

pub mod enrollment {
    pub use super::batch::{BATCH_MAX, BatchRegisterNodesRequest};
    pub use super::generated_enrollment::enrollment_service_server::{
        EnrollmentService, EnrollmentServiceServer,
    };
    pub use super::generated_enrollment::*;
}

pub mod stream {
    pub use super::generated_stream::boot_config_service_server::{
        BootConfigService, BootConfigServiceServer,
    };
    pub use super::generated_stream::*;
}
