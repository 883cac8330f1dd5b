//! What is needed to ask a step-ca: its address, its root, the provisioner and its key.

use crate::ca::keys::{UnsealError, unsealed};
use client::Trust;
use client::foreign::ForeignUrl;
use lifecycle::names::IssuerId;
use lifecycle::registry::{Issuer, StepCaAccess};
use pki::seal::Kek;
use pki::step_ca::ProvisionerKey;

pub struct UnsealedAccess {
    pub issuer: IssuerId,
    pub provisioner: String,
    pub key: ProvisionerKey,
    /// What its own certificate and all that it signs must lead to.
    pub root: Vec<u8>,
    pub trust: Trust,
    base: String,
    sealed_key: Vec<u8>,
    record: StepCaAccess,
}

impl UnsealedAccess {
    pub fn open(kek: &Kek, issuer: &Issuer) -> Result<Self, UnsealError> {
        let unusable = |why: String| UnsealError::Unusable { what: "step-ca issuer", why };
        let step_ca = issuer.step_ca.as_ref().ok_or_else(|| unusable("it is no step-ca".to_owned()))?;
        let (_, key) = unsealed(kek, issuer)?;
        let key = ProvisionerKey::from_bytes(&key, step_ca.access.key_id.clone())
            .map_err(|error| unusable(error.to_string()))?;
        Ok(Self {
            issuer: issuer.id.clone(),
            provisioner: step_ca.access.provisioner.clone(),
            key,
            root: issuer.certificate.clone(),
            trust: Trust::cas(vec![issuer.certificate.clone().into()]),
            sealed_key: issuer.sealed_key.clone(),
            record: step_ca.access.clone(),
            base: step_ca.access.url.trim_end_matches('/').to_owned(),
        })
    }

    /// Whether the record still says the same: the settings may have been changed since, on any replica.
    pub fn is_of(&self, issuer: &Issuer) -> bool {
        self.issuer == issuer.id
            && self.sealed_key == issuer.sealed_key
            && issuer.step_ca.as_ref().is_some_and(|step_ca| step_ca.access == self.record)
    }

    /// An address below that of step-ca, which is also what a token is for.
    pub fn address(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    pub fn url(&self, path: &str) -> Result<ForeignUrl, String> {
        ForeignUrl::parse(&self.address(path)).map_err(|error| error.to_string())
    }
}
