//! What can sign: the unsealed keys of the domain, held in memory only.

use lifecycle::names::{IssuerId, Span, SpiffeId, Timestamp};
use lifecycle::registry::{Issued, Profile, State};
use pki::csr;
use pki::issuer::Issuer;
use pki::leaf::{Issuance, SignError, sign_leaf};
use pki::seal::Kek;
use pki::sign::AuditKey;

pub const AUDIT_CONTEXT: &str = "audit";
pub const SERVER_CONTEXT: &str = "server";

/// What an issuer's sealed key is bound to, so that one ciphertext cannot stand for another.
pub fn issuer_context(id: &IssuerId) -> String {
    format!("issuer/{id}")
}

#[derive(Debug, thiserror::Error)]
pub enum UnsealError {
    #[error("the domain has no {0}")]
    Missing(&'static str),
    #[error("the key-encryption key does not open the {0}")]
    WrongKek(&'static str),
    #[error("the {what} cannot be used: {why}")]
    Unusable { what: &'static str, why: String },
}

/// The unsealed keys, and the key that seals what is written beside the store.
pub struct Keys {
    pub kek: Kek,
    pub issuer: Issuer,
    pub audit: AuditKey,
}

impl Keys {
    pub fn unseal(state: &State, kek: Kek) -> Result<Self, UnsealError> {
        let record = state.active_issuer().ok_or(UnsealError::Missing("issuer"))?;
        let key = kek
            .unseal(&issuer_context(&record.id), &record.sealed_key)
            .map_err(|_| UnsealError::WrongKek("issuer's key"))?;
        let issuer = Issuer::new(&record.certificate, &key)
            .map_err(|error| UnsealError::Unusable { what: "issuer", why: error.to_string() })?;
        let signer = state.audit_signer.as_ref().ok_or(UnsealError::Missing("audit key"))?;
        let key =
            kek.unseal(AUDIT_CONTEXT, &signer.sealed_key).map_err(|_| UnsealError::WrongKek("audit key"))?;
        let audit = AuditKey::from_pkcs8(&key)
            .map_err(|error| UnsealError::Unusable { what: "audit key", why: error.to_string() })?;
        Ok(Self { kek, issuer, audit })
    }
}

/// Rules for a leaf that no profile covers: operators' certificates.
pub const OPERATOR_LIFETIME: Span = Span::from_days(90);

/// What a leaf should say.
pub struct Terms<'a> {
    pub subject: SpiffeId,
    pub common_name: Option<String>,
    pub lifetime: Span,
    /// Says when to renew; without one, never.
    pub profile: Option<&'a Profile>,
}

/// Signs a leaf for a request. Nothing leaves the process with it before it is on record.
pub fn sign(
    issuer: &Issuer,
    request: &csr::Request,
    terms: Terms<'_>,
    serial: [u8; 16],
    at: Timestamp,
) -> Result<Issued, SignError> {
    let Terms { subject, common_name, lifetime, profile } = terms;
    let issuance = Issuance { subject: subject.clone(), common_name, serial, signing_time: at, lifetime };
    let signed = sign_leaf(issuer, &request.spki, &issuance)?;
    let signed_at = at.whole_second();
    let renew_at =
        profile.map_or(signed.not_after, |profile| profile.renewal_point(signed_at, signed.not_after));
    Ok(Issued {
        serial: signed.serial,
        fingerprint: signed.fingerprint,
        subject,
        key: request.key,
        issuer: issuer.id(),
        signed_at,
        renew_at,
        not_after: signed.not_after,
        der: signed.der,
    })
}
