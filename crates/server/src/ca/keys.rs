//! What can sign: the unsealed keys of the domain, held in memory only.

use lifecycle::names::{IssuerId, KeyHash, Span, SpiffeId, Timestamp};
use lifecycle::registry::{
    self, AuditSigner, CertificateProfile, Issued, IssuerKind, IssuerState, Rewrap, State,
};
use pki::csr;
use pki::issuer::SigningIssuer;
use pki::leaf::{Issuance, SignError, sign_leaf};
use pki::pkcs11::Hsm;
use pki::seal::Kek;
use pki::sign::AuditKey;
use rustls_pki_types::CertificateDer;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use zeroize::Zeroizing;

pub const AUDIT_CONTEXT: &str = "audit";
pub const SERVER_CONTEXT: &str = "server";

/// What an issuer's sealed key is bound to, so that one ciphertext cannot stand for another.
pub fn issuer_context(id: &IssuerId) -> String {
    format!("issuer/{id}")
}

/// The same for the key of a next issuer, which has no certificate yet.
pub fn roll_context(key: &KeyHash) -> String {
    format!("roll/{}", key.hex())
}

#[derive(Debug, thiserror::Error)]
pub enum UnsealError {
    #[error("the domain has no {0}")]
    Missing(&'static str),
    #[error("the key-encryption key does not open the {0}")]
    WrongKek(&'static str),
    /// Or it is the right one, and the directory only claims to be of an older version.
    #[error(
        "the {0} is not sealed by a version that wrote such a directory with this key-encryption key: another key, or \
         the directory was made to look older than it is"
    )]
    NotOlder(&'static str),
    #[error("the {what} cannot be used: {why}")]
    Unusable { what: &'static str, why: String },
    #[error(
        "the issuer's key is in an HSM (label '{label}'), and enlist.toml has no [pkcs11] that says where"
    )]
    NoHsm { label: String },
}

/// The unsealed keys, and the key that seals what is written beside the store.
pub struct Keys {
    kek: RwLock<Arc<Kek>>,
    /// What has signed. Which issuers sign now is the registry's to say.
    issuers: RwLock<BTreeMap<IssuerId, Arc<SigningIssuer>>>,
    /// Where keys are that are not sealed here.
    hsm: Option<Arc<Hsm>>,
    pub audit: AuditKey,
}

impl Keys {
    pub fn unseal(state: &State, kek: Arc<Kek>, hsm: Option<Arc<Hsm>>) -> Result<Self, UnsealError> {
        let active = state.domain_issuers_in(IssuerState::Active);
        let issuers =
            active.map(|record| Ok((record.id.clone(), Arc::new(open(&kek, hsm.as_ref(), record)?))));
        let issuers = issuers.collect::<Result<_, UnsealError>>()?;
        let signer = state.audit_signer.as_ref().ok_or(UnsealError::Missing("audit key"))?;
        let key =
            kek.unseal(AUDIT_CONTEXT, &signer.sealed_key).map_err(|_| UnsealError::WrongKek("audit key"))?;
        let audit = AuditKey::from_pkcs8(&key)
            .map_err(|error| UnsealError::Unusable { what: "audit key", why: error.to_string() })?;
        Ok(Self { kek: RwLock::new(kek), issuers: RwLock::new(issuers), hsm, audit })
    }

    pub fn kek(&self) -> Arc<Kek> {
        read(&self.kek)
    }

    /// Seals and opens with another key from now on.
    pub fn set_kek(&self, kek: Arc<Kek>) {
        *self.kek.write().unwrap_or_else(PoisonError::into_inner) = kek;
    }

    /// What signs for operators now, and for nodes unless these have ephemeral issuers.
    pub fn client_issuer(&self, state: &State) -> Result<Arc<SigningIssuer>, UnsealError> {
        self.active(state, state.client_issuer().ok_or(UnsealError::Missing("node issuer"))?)
    }

    /// What signs for the control plane now.
    pub fn server_issuer(&self, state: &State) -> Result<Arc<SigningIssuer>, UnsealError> {
        self.active(state, state.server_issuer().ok_or(UnsealError::Missing("server issuer"))?)
    }

    /// After a roll its key is opened by whoever asks first, and the keys of those that sign no more are dropped.
    fn active(&self, state: &State, record: &registry::Issuer) -> Result<Arc<SigningIssuer>, UnsealError> {
        let known = self.issuers.read().unwrap_or_else(PoisonError::into_inner).get(&record.id).cloned();
        if let Some(issuer) = known {
            return Ok(issuer);
        }
        let issuer = Arc::new(self.open(record)?);
        let mut issuers = self.issuers.write().unwrap_or_else(PoisonError::into_inner);
        issuers.retain(|id, _| state.domain_issuers_in(IssuerState::Active).any(|active| active.id == *id));
        issuers.insert(record.id.clone(), issuer.clone());
        Ok(issuer)
    }

    /// Any issuer whose key is held, active or not: it signs its own revocation list.
    pub fn open(&self, record: &registry::Issuer) -> Result<SigningIssuer, UnsealError> {
        open(&self.kek(), self.hsm.as_ref(), record)
    }

    /// The HSM, if one is configured.
    pub fn hsm(&self) -> Option<&Arc<Hsm>> {
        self.hsm.as_ref()
    }
}

/// The sealed keys of a directory of before the log was authenticated, sealed as they are now. What is sealed so already was
/// put there by somebody who wants an authenticated directory taken for an older one.
pub fn sealed_anew_from_older(state: &State, kek: &Kek) -> Result<Rewrap, UnsealError> {
    let again = |what: &'static str, contexts: &[String], sealed: &[u8]| {
        let opened =
            contexts.iter().find_map(|context| Some((context, kek.unseal_older(context, sealed).ok()?)));
        let (context, key) = opened.ok_or(UnsealError::NotOlder(what))?;
        kek.seal(context, &key).map_err(|error| UnsealError::Unusable { what, why: error.to_string() })
    };
    let held = state.issuers.values().filter(|issuer| !issuer.sealed_key.is_empty());
    let issuers = held.map(|issuer| {
        let sealed = again("issuer's key", &contexts(issuer), &issuer.sealed_key)?;
        Ok((issuer.id.clone(), sealed.into()))
    });
    let signer = state.audit_signer.as_ref().ok_or(UnsealError::Missing("audit key"))?;
    let roll = state
        .roll
        .as_ref()
        .map(|roll| again("next issuer's key", &[roll_context(&roll.key)], &roll.sealed_key));
    Ok(Rewrap {
        issuers: issuers.collect::<Result<_, UnsealError>>()?,
        audit: again("audit key", &[AUDIT_CONTEXT.to_owned()], &signer.sealed_key)?,
        roll: roll.transpose()?.map(Into::into),
        // Of a version that knew none.
        pending: Vec::new(),
    })
}

fn read<T: Clone>(lock: &RwLock<T>) -> T {
    lock.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// An issuer's key, and what it was sealed as: a rolled one still as what waited for its certificate, because
/// what is sealed once is not sealed again while it may be changing hands.
pub fn unsealed(kek: &Kek, record: &registry::Issuer) -> Result<(String, Zeroizing<Vec<u8>>), UnsealError> {
    let opened = |context: String| kek.unseal(&context, &record.sealed_key).ok().map(|key| (context, key));
    contexts(record).into_iter().find_map(opened).ok_or(UnsealError::WrongKek("issuer's key"))
}

fn contexts(record: &registry::Issuer) -> [String; 2] {
    let spki = pki::describe::facts(&record.certificate).map(|facts| facts.spki).unwrap_or_default();
    [issuer_context(&record.id), roll_context(&pki::digest::key_hash(&spki))]
}

fn open(kek: &Kek, hsm: Option<&Arc<Hsm>>, record: &registry::Issuer) -> Result<SigningIssuer, UnsealError> {
    let (_, key) = unsealed(kek, record)?;
    if record.kind == IssuerKind::Pkcs11 {
        return super::hsm::issuer(record, &key, hsm);
    }
    SigningIssuer::new(&record.certificate, &key)
        .map_err(|error| UnsealError::Unusable { what: "issuer", why: error.to_string() })
}

/// The issuer of the audit key's certificate, whether it signs now or not.
pub fn audit_issuer<'a>(state: &'a State, signer: &AuditSigner) -> Option<&'a registry::Issuer> {
    let own = CertificateDer::from(signer.certificate.as_slice());
    state.issuers.values().find(|issuer| pki::verify::is_issued_by(&own, &issuer.certificate))
}

/// Rules for a leaf that no profile covers: operators' certificates.
pub const OPERATOR_LIFETIME: Span = Span::from_days(90);

/// What a leaf should say.
pub struct Terms<'a> {
    pub subject: SpiffeId,
    pub common_name: Option<String>,
    pub lifetime: Span,
    /// Says when to renew; without one, never.
    pub profile: Option<&'a CertificateProfile>,
}

/// Signs a leaf for a request. Nothing leaves the process with it before it is on record.
pub fn sign(
    issuer: &SigningIssuer,
    request: &csr::VerifiedCsr,
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
        external: None,
    })
}
