//! `[ready]`: what `/readyz` demands.

use super::form::Form;
use super::key::config_keys;
use super::shape::StringOr;

static ISSUER: Form<IssuerReadiness> = Form::new(
    |text| match text {
        "required" => Some(IssuerReadiness::Required),
        "warn" => Some(IssuerReadiness::Warn),
        _ => None,
    },
    || "required or warn".to_owned(),
);

/// What an issuer that does not sign means for `/readyz`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IssuerReadiness {
    Required,
    Warn,
}

config_keys! {
    /// `[ready]` as written.
    pub struct RawReady as written;
    /// `[ready]` key by key.
    pub struct ReadyConfig {
        /// What `/readyz` answers while certificates of nodes cannot be issued, because the HSM, step-ca or an active issuer is missing.
        /// `required`: 503, so that a load balancer sends nothing here. `warn`: 200, and `reasons` names it; all but issuing works
        "issuer" issuer: StringOr<IssuerReadiness> = StringOr(&ISSUER, "required");
    }
}
