//! `enlist operator renew`: an operator's own certificate, for a new key.

use super::identity;
use super::replacement::Replacement;
use crate::failure::Failure;
use crate::output::Output;
use crate::reach::certificate::{self, Presented};
use crate::reach::target::{Chosen, Proof, Way};
use crate::reach::{self, Reach};
use crate::table::harmless;
use api::rest::operators::{RenewOperator, RenewedOperator};
use api::rest::scope::Scope;
use client::rest::Path as Url;
use client::{Operator, ServerUrl, Trust};
use serde::Serialize;
use std::path::{Path, PathBuf};

#[derive(Serialize)]
struct Renewed {
    name: String,
    role: String,
    tenant: Option<Scope>,
    cert_serial: String,
    not_after: String,
    cert: String,
    key: String,
    /// Whether the new certificate has been used, and the old one is refused.
    in_use: bool,
}

/// The certificate in use, and whom to ask with it.
struct Identity<'a> {
    server: &'a str,
    url: ServerUrl,
    trust: Trust,
    cert: &'a Path,
    key: &'a Path,
}

impl Identity<'_> {
    fn open(&self) -> Result<(Operator, Presented), Failure> {
        let (operator, presented) = certificate::open(&self.url, &self.trust, self.cert, self.key)?;
        presented.check(false)?;
        Ok((operator, presented))
    }
}

pub async fn run(reach: &Reach, out: Option<&Path>, output: Output) -> Result<(), Failure> {
    let Chosen { way, by } = reach.chosen()?;
    let done = match identity(&way) {
        Ok(identity) => match out {
            Some(dir) => beside(&identity, dir).await,
            None => in_place(&identity).await,
        },
        Err(failure) => Err(failure),
    };
    let done = done.map_err(|failure| match by.context() {
        Some(name) => failure.in_context(name),
        None => failure,
    })?;
    output.document(&done, text)
}

fn identity(way: &Way) -> Result<Identity<'_>, Failure> {
    match way {
        Way::Socket(_) => Err(Failure::usage(
            "the operator socket uses no certificate, so there is none to renew",
            "give --context NAME, or --server URL with --cert, --key and --ca; `enlist operator add NAME --role ROLE --out DIR` issues a first certificate",
        )),
        Way::Server { proof: Proof::ApiKey(_), .. } => Err(Failure::usage(
            "an API key has no certificate to renew",
            "create a new key with `enlist operator key create`, then revoke the old one with `enlist operator key revoke ID`",
        )),
        Way::Server { url: server, recognition, proof: Proof::Certificate { cert, key } } => {
            let url = ServerUrl::parse(server).map_err(client::Error::from)?;
            Ok(Identity { server, url, trust: reach::trust(recognition)?, cert, key })
        }
    }
}

async fn ask(operator: &Operator, csr: String) -> Result<RenewedOperator, Failure> {
    Ok(operator.post(&Url::new("/v1/operators/renew"), &RenewOperator { csr }).await?)
}

/// New files in a directory of their own.
async fn beside(identity: &Identity<'_>, dir: &Path) -> Result<Renewed, Failure> {
    let (operator, _) = identity.open()?;
    let files = identity::Files::prepare(dir)?;
    let answer = match ask(&operator, files.request()?).await {
        Ok(answer) => answer,
        Err(failure) => {
            files.discard();
            return Err(failure);
        }
    };
    let issued = identity::Issued {
        leaf: &answer.certificate,
        chain: &answer.chain,
        ca: &answer.ca,
        server: Some(identity.server),
    };
    files.finish(&issued)?;
    Ok(renewed(answer, dir.join("cert.pem"), dir.join("key.pem"), false))
}

async fn in_place(identity: &Identity<'_>) -> Result<Renewed, Failure> {
    let (cert, key) = (identity.cert, identity.key);
    let lock = Replacement::lock(cert, key)?;
    let (operator, presented) = identity.open()?;
    let files = lock.prepare(&presented)?;
    let answer = match ask(&operator, files.request()?).await {
        Ok(answer) => answer,
        Err(failure) => {
            files.discard();
            return Err(failure);
        }
    };
    let chain = format!("{}{}", answer.certificate, answer.chain);
    let fits = |cert: &Path, key: &[u8]| certificate::with(&identity.url, &identity.trust, cert, key);
    let (operator, _) = files.finish(&chain, fits)?;
    // Its first use makes the old one invalid. If this request is lost, the next command does the same.
    let used = operator.get::<serde_json::Value>(&Url::new("/v1/policy")).await.is_ok();
    Ok(renewed(answer, cert.to_owned(), key.to_owned(), used))
}

fn renewed(answer: RenewedOperator, cert: PathBuf, key: PathBuf, in_use: bool) -> Renewed {
    let RenewedOperator { name, role, tenant, cert_serial, not_after, .. } = answer;
    let (cert, key) = (cert.display().to_string(), key.display().to_string());
    Renewed { name, role, tenant, cert_serial, not_after, cert, key, in_use }
}

fn text(done: &Renewed) -> String {
    let (name, until) = (harmless(&done.name), harmless(&done.not_after));
    let old = if done.in_use {
        "The old certificate is no longer accepted."
    } else {
        "The old certificate is accepted until the new one is first used."
    };
    format!("operator {name} has a new certificate until {until}, in {}\n{old}\n", harmless(&done.cert))
}
