//! How step-ca is asked: what is given for it is checked without asking it, sealed and put on record, at the start of a domain and later.

use super::access::UnsealedAccess;
use crate::ca::keys::issuer_context;
use crate::ca::roll::Requester;
use crate::http::failure::Failure;
use crate::process::app::App;
use api::code;
use api::rest::ca::StepCaSettings;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use client::foreign::ForeignUrl;
use journal::View;
use lifecycle::names::{IssuerUse, Timestamp};
use lifecycle::registry::{Command, IssuerKind, NewIssuer, NewStepCa, StepCaAccess};
use pki::seal::Kek;
use pki::step_ca::ProvisionerKey;
use std::sync::Arc;
use zeroize::Zeroizing;

/// How step-ca is to be asked, as far as can be checked without it.
pub struct CheckedStepCa {
    pub url: String,
    pub provisioner: String,
    pub key_id: String,
    root: Vec<u8>,
    facts: pki::describe::Facts,
}

impl CheckedStepCa {
    /// `root` is PEM. An error says what is wrong, for whoever gave it.
    pub fn check(access: StepCaAccess, root: &[u8], at: Timestamp) -> Result<Self, String> {
        let StepCaAccess { url, provisioner, key_id } = access;
        let parsed = ForeignUrl::parse(&url).ok();
        if parsed.is_none_or(|parsed| parsed.path() != "/") || !url.starts_with("https://") {
            return Err(format!("its URL must be https://HOST[:PORT], and is '{url}'"));
        }
        if provisioner.is_empty() || provisioner.chars().any(char::is_control) {
            return Err("the provisioner needs a name".to_owned());
        }
        let root = pki::pem::certificates(root).map_err(|error| format!("its root: {error}"))?;
        let [root] = root.as_slice() else {
            return Err("its root must be one certificate".to_owned());
        };
        if !pki::step_ca::is_root(root) {
            return Err(
                "its root is no CA certificate that is signed by itself: give the root, not the intermediate"
                    .to_owned(),
            );
        }
        let facts = pki::describe::facts(root).map_err(|error| format!("its root: {error}"))?;
        if facts.not_after <= at {
            return Err(format!("its root expired at {}", facts.not_after));
        }
        Ok(Self { url, provisioner, key_id, root: root.to_vec(), facts })
    }

    /// The record of it, with the provisioner's key sealed. Nothing is sent to it: it may not run yet.
    pub fn seal(self, kek: &Kek, key: &[u8]) -> Result<NewStepCa, pki::seal::SealError> {
        let id = pki::issuer::issuer_id(&self.root);
        let access = StepCaAccess { url: self.url, provisioner: self.provisioner, key_id: self.key_id };
        let issuer = NewIssuer {
            sealed_key: kek.seal(&issuer_context(&id), key)?,
            id,
            kind: IssuerKind::StepCa,
            subject: self.facts.subject,
            certificate: self.root,
            fingerprint: self.facts.fingerprint,
            not_after: self.facts.not_after,
            usage: IssuerUse::Node,
            root: None,
        };
        Ok(NewStepCa { issuer, access })
    }
}

/// Changes what is given and leaves the rest as it is. Every replica asks with the new settings once it has applied them.
pub async fn change(app: &App, by: &Requester<'_>, settings: StepCaSettings) -> Result<Arc<View>, Failure> {
    let _alone = app.ca.sealing().await?;
    let bad = |why: String| Failure::new(code::BAD_REQUEST, format!("step-ca: {why}"));
    let (view, kek) = (app.view(), app.ca.keys.kek());
    let current = view.state.step_ca_issuer();
    let missing = |what: &str| bad(format!("no step-ca signs here now, so that {what} must be given"));
    let known = |what: &str| current.map(|(_, step_ca)| step_ca.access.clone()).ok_or_else(|| missing(what));
    let url = settings.url.map_or_else(|| Ok(known("url")?.url), Ok::<_, Failure>)?;
    let provisioner =
        settings.provisioner.map_or_else(|| Ok(known("provisioner")?.provisioner), Ok::<_, Failure>)?;
    let (key, key_id) = match (settings.key, settings.key_id) {
        (Some(key), Some(key_id)) => {
            let key = Zeroizing::new(key);
            let bytes = STANDARD.decode(key.as_bytes()).map_err(|error| bad(format!("key: {error}")))?;
            let bytes = Zeroizing::new(bytes);
            ProvisionerKey::from_bytes(&bytes, key_id.clone())
                .map_err(|error| bad(format!("key: {error}")))?;
            (bytes, key_id)
        }
        (None, None) => {
            let (issuer, _) = current.ok_or_else(|| missing("key"))?;
            UnsealedAccess::open(&kek, issuer)?;
            let (_, key) = crate::ca::keys::unsealed(&kek, issuer)?;
            (key, known("key_id")?.key_id)
        }
        (Some(_), None) | (None, Some(_)) => return Err(bad("key and key_id go together".to_owned())),
    };
    let root = match settings.root {
        Some(root) => root,
        None => pki::pem::certificate_pem(&current.ok_or_else(|| missing("root"))?.0.certificate),
    };
    let access = StepCaAccess { url, provisioner, key_id };
    let checked = CheckedStepCa::check(access, root.as_bytes(), app.now()).map_err(bad)?;
    let sealed = checked.seal(&kek, &key);
    let sealed =
        sealed.map_err(|error| Failure::internal("the provisioner's key could not be sealed", &error))?;
    let view = by.commit(app, Command::ChangeStepCa(Box::new(sealed))).await?;
    // Whether it works is known when this is answered; `enlist ca show` says so.
    super::check(app).await;
    Ok(view)
}
