//! `enlist operator renew`: an operator's own certificate, for a new key.

use super::identity;
use super::replacement::Replacement;
use crate::error::CommandError;
use crate::output::Output;
use crate::reach::ca_trust::{self, TrustChange};
use crate::reach::certificate::{self, ClientCertificate};
use crate::reach::credential::{OperatorCredential, ServerTrust, missing_credential};
use crate::reach::target::{ChosenTarget, Target};
use crate::reach::{self, Reach};
use crate::table::harmless;
use api::rest::operators::{RenewOperatorRequest, RenewedOperator};
use api::rest::scope::TenantScope;
use client::rest::Path as Url;
use client::{OperatorApi, ServerUrl, Trust};
use serde::Serialize;
use std::path::{Path, PathBuf};

#[derive(Serialize)]
struct RenewalResult {
    name: String,
    role: String,
    tenant: Option<TenantScope>,
    cert_serial: String,
    not_after: String,
    cert: String,
    key: String,
    /// Whether the new certificate has been used, and the old one is refused.
    in_use: bool,
    /// Certificates of earlier renewals that were never used: they are refused from now on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    denied_serials: Vec<String>,
    /// What verifies the control plane, and what has changed; null in place with a pin, which names no file.
    trust: Option<TrustChange>,
}

/// The certificate in use, and whom to ask with it.
struct CertificateInUse<'a> {
    servers: &'a [String],
    urls: Vec<ServerUrl>,
    server_trust: &'a ServerTrust,
    cert: &'a Path,
    key: &'a Path,
}

impl CertificateInUse<'_> {
    fn open(&self, trust: &Trust) -> Result<(OperatorApi, ClientCertificate), CommandError> {
        let (operator, presented) = certificate::open(&self.urls, trust, self.cert, self.key)?;
        presented.check(false)?;
        Ok((operator, presented))
    }

    /// Whether what verifies the control plane is in a file that can be read again, and be replaced: a pipe cannot.
    fn ca_file(&self) -> Option<&Path> {
        match self.server_trust {
            ServerTrust::Ca(ca) if ca.is_file() => Some(ca),
            ServerTrust::Ca(_) | ServerTrust::Pin(_) => None,
        }
    }

    /// Refuses files that cannot be used before anybody is asked.
    fn check(&self) -> Result<(), CommandError> {
        match self.ca_file() {
            Some(_) => self.open(&reach::trust(self.server_trust)?).map(drop),
            None => Ok(()),
        }
    }
}

pub async fn run(reach: &Reach, out: Option<&Path>, output: Output) -> Result<(), CommandError> {
    let ChosenTarget { target, by } = reach.chosen()?;
    let done = match identity(&target) {
        Ok(identity) => match (identity.check(), out) {
            (Err(failure), _) => Err(failure),
            (Ok(()), Some(dir)) => into_directory(&identity, &target, dir).await,
            (Ok(()), None) => in_place(&identity).await,
        },
        Err(failure) => Err(failure),
    };
    let done = done.map_err(|failure| by.explain(failure))?;
    output.document(&done, |done| output.screen().hang(0, 2, &text(done)))
}

fn identity(target: &Target) -> Result<CertificateInUse<'_>, CommandError> {
    match target {
        Target::Socket(_) => Err(CommandError::usage(
            "the operator socket uses no certificate, so there is none to renew",
            "give --context NAME, or --server URL with --cert, --key and --ca; `enlist operator add NAME --role ROLE --out DIR` issues a first certificate",
        )),
        Target::Server { credential: None, .. } => Err(missing_credential()),
        Target::Server { credential: Some(OperatorCredential::ApiKey(_)), .. } => Err(CommandError::usage(
            "an API key has no certificate to renew",
            "create a new key with `enlist operator key create`, then revoke the old one with `enlist operator key revoke ID`",
        )),
        Target::Server {
            servers,
            server_trust,
            credential: Some(OperatorCredential::Certificate { cert, key }),
        } => {
            let urls = reach::server_urls(servers)?;
            Ok(CertificateInUse { servers, urls, server_trust, cert, key })
        }
    }
}

async fn request_certificate(operator: &OperatorApi, csr: String) -> Result<RenewedOperator, CommandError> {
    Ok(operator.post(&Url::new("/v1/operators/renew"), &RenewOperatorRequest { csr }).await?)
}

/// New files in a directory of their own.
async fn into_directory(
    identity: &CertificateInUse<'_>,
    target: &Target,
    dir: &Path,
) -> Result<RenewalResult, CommandError> {
    let (ca, change) = ca_trust::follow(target, &dir.join("ca.pem")).await?;
    let (operator, _) = identity.open(&ca.trust())?;
    let files = identity::IdentityFiles::prepare(dir, None)?;
    let answer = match request_certificate(&operator, files.request()?).await {
        Ok(answer) => answer,
        Err(failure) => {
            files.discard();
            return Err(failure);
        }
    };
    let issued = identity::OperatorCertificate {
        leaf: &answer.certificate,
        chain: &answer.chain,
        ca: &ca,
        servers: identity.servers,
    };
    files.finish(&issued)?;
    Ok(renewed(answer, dir.join("cert.pem"), dir.join("key.pem"), false, Some(change)))
}

async fn in_place(identity: &CertificateInUse<'_>) -> Result<RenewalResult, CommandError> {
    let (cert, key) = (identity.cert, identity.key);
    let (trust, change) = match identity.ca_file() {
        Some(ca) => {
            let (ca, change) = ca_trust::update(identity.servers, ca).await?;
            (ca.trust(), Some(change))
        }
        None => (reach::trust(identity.server_trust)?, None),
    };
    let lock = Replacement::lock(cert, key)?;
    let (operator, presented) = identity.open(&trust)?;
    let files = lock.prepare(&presented)?;
    let answer = request_certificate(&operator, files.request()?).await?;
    let chain = format!("{}{}", answer.certificate, answer.chain);
    let fits = |cert: &Path, key: &[u8]| certificate::with(&identity.urls, &trust, cert, key);
    let (operator, _) = files.finish(&chain, fits)?;
    // Its first use makes the old one invalid. If this request is lost, the next command does the same.
    let used = operator.get::<serde_json::Value>(&Url::new("/v1/policy")).await.is_ok();
    Ok(renewed(answer, cert.to_owned(), key.to_owned(), used, change))
}

fn renewed(
    answer: RenewedOperator,
    cert: PathBuf,
    key: PathBuf,
    in_use: bool,
    trust: Option<TrustChange>,
) -> RenewalResult {
    let RenewedOperator { name, role, tenant, cert_serial, not_after, denied_serials, .. } = answer;
    let (cert, key) = (cert.display().to_string(), key.display().to_string());
    RenewalResult { name, role, tenant, cert_serial, not_after, cert, key, in_use, denied_serials, trust }
}

fn text(done: &RenewalResult) -> String {
    let (name, until) = (harmless(&done.name), harmless(&done.not_after));
    let old = if done.in_use {
        "The old certificate is no longer accepted."
    } else {
        "The old certificate is accepted until the new one is first used."
    };
    let denied = match done.denied_serials.as_slice() {
        [] => String::new(),
        [one] => format!(
            "The certificate of an earlier renewal, serial {}, was never used and is no longer accepted.\n",
            harmless(one)
        ),
        several => format!(
            "The certificates of earlier renewals, serials {}, were never used and are no longer accepted.\n",
            harmless(&several.join(" "))
        ),
    };
    let trust = done.trust.as_ref().map(TrustChange::text).unwrap_or_default();
    format!(
        "operator {name} has a new certificate until {until}, in {}\n{old}\n{denied}{trust}",
        harmless(&done.cert)
    )
}
