//! One file per act: find a rule by its verb.

pub(super) mod audit;
pub(super) mod confirm;
pub(super) mod enroll;
pub(super) mod found;
pub(super) mod operator;
pub(super) mod policy;
pub(super) mod server_certificate;
pub(super) mod tenant;
pub(super) mod tidy;
pub(super) mod token;
