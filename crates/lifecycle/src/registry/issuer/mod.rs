//! Issuers: what signs certificates.

pub(super) mod roll;
