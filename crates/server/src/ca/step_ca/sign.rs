//! Asking step-ca for a certificate.

use super::access::UnsealedAccess;
use super::call::{StepCaFailure, StepCaFailureKind, ask};
use crate::process::app::App;
use client::foreign::ForeignAnswer;
use lifecycle::names::{Serial, SpiffeId, Timestamp};
use pki::csr::VerifiedCsr;
use pki::step_ca::{AskedLeaf, ReceivedLeaf, SignToken, check, sign_token};
use rustls_pki_types::CertificateDer;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

/// Certificates that an answer may hold beside the one that was asked for.
const OTHERS: usize = 8;
const UNAUTHORIZED: StepCaFailureKind = StepCaFailureKind::Refused { status: 401 };

/// What a certificate is to say.
pub struct LeafOrder<'a> {
    pub csr: &'a VerifiedCsr,
    pub subject: &'a SpiffeId,
    pub common_name: Option<&'a str>,
    pub serial: &'a Serial,
    pub not_after: Timestamp,
    pub at: Timestamp,
    /// Of the token, which is taken once.
    pub token_id: &'a str,
}

/// A certificate that was not signed, or not as it was to be.
#[derive(Debug)]
pub struct SignFailure {
    pub call: StepCaFailure,
    /// What was signed instead.
    pub serial: Option<Serial>,
}

impl From<StepCaFailure> for SignFailure {
    fn from(call: StepCaFailure) -> Self {
        Self { call, serial: None }
    }
}

/// Asks, and holds the answer against the order.
pub async fn sign(
    app: &App,
    access: &UnsealedAccess,
    order: &LeafOrder<'_>,
    deadline: Instant,
) -> Result<ReceivedLeaf, SignFailure> {
    let result = signed(app, access, order, deadline).await;
    let noted = match &result {
        Ok(_) => Ok(()),
        Err(failure) => Err(&failure.call),
    };
    app.metrics.step_ca_called("sign", noted.err().map_or("ok", |failure| failure.kind.code().word));
    // What is wrong with one request alone (400) says nothing of step-ca.
    if noted.err().is_none_or(|failure| failure.kind != StepCaFailureKind::Refused { status: 400 }) {
        app.ca.step_ca.note(noted);
    }
    result
}

async fn signed(
    app: &App,
    access: &UnsealedAccess,
    order: &LeafOrder<'_>,
    deadline: Instant,
) -> Result<ReceivedLeaf, SignFailure> {
    let answer = match asked(access, order, order.at, deadline).await {
        // It takes no token from before its own start, and ours may have waited for that. What it refuses it has not done.
        Err(failure) if failure.kind == UNAUTHORIZED && app.now().secs() > order.at.secs() => {
            asked(access, order, app.now(), deadline).await?
        }
        answered => answered?,
    };
    let (leaf, others) = certificates(&answer).map_err(|why| StepCaFailure::misbehaved(why.to_owned()))?;
    let asked = AskedLeaf {
        spki: &order.csr.spki,
        subject: order.subject,
        common_name: order.common_name,
        not_after: order.not_after,
        at: order.at,
    };
    let received = check(&asked, &leaf, &others, &access.root)
        .map_err(|wrong| SignFailure { call: StepCaFailure::misbehaved(wrong.what), serial: wrong.serial })?;
    let state = &app.view().state;
    let is_known = state.certificates.contains_key(&received.serial)
        || state.undelivered_revocations.contains_key(&received.serial);
    if is_known {
        let why = format!("it answered the certificate {} a second time", received.serial);
        return Err(StepCaFailure::misbehaved(why).into());
    }
    Ok(received)
}

/// Asks once, with a token of this moment.
async fn asked(
    access: &UnsealedAccess,
    order: &LeafOrder<'_>,
    at: Timestamp,
    deadline: Instant,
) -> Result<ForeignAnswer, StepCaFailure> {
    let names = order.csr.requested_names();
    let token = sign_token(
        &access.key,
        &SignToken {
            provisioner: &access.provisioner,
            audience: &access.address("/1.0/sign"),
            id: order.token_id,
            csr_common_name: names.common_name.as_deref(),
            csr_names: &names.others,
            common_name: order.common_name,
            subject: order.subject,
            serial: order.serial,
            at,
        },
    );
    let token = token.map_err(|error| StepCaFailure::unavailable(error.to_string(), false))?;
    let body = json!({
        "csr": pki::pem::request_pem(&order.csr.der),
        "ott": token,
        "notAfter": order.not_after.to_string(),
    });
    ask(access, "/1.0/sign", Some(&body), deadline).await
}

#[derive(Deserialize)]
struct SignAnswer {
    crt: String,
    #[serde(default)]
    ca: Option<String>,
    #[serde(default, rename = "certChain")]
    chain: Vec<String>,
}

type SignedCertificates = (CertificateDer<'static>, Vec<CertificateDer<'static>>);

fn certificates(answer: &ForeignAnswer) -> Result<SignedCertificates, &'static str> {
    if answer.is_cut {
        return Err("its answer is longer than a certificate can be");
    }
    let told: SignAnswer =
        serde_json::from_slice(&answer.body).map_err(|_| "its answer holds no certificate")?;
    let unread = |_| "its answer holds a certificate that cannot be read";
    let leaf = pki::pem::first_certificate(told.crt.as_bytes()).map_err(unread)?;
    let mut others = Vec::new();
    for pem in told.ca.iter().chain(told.chain.iter()).take(OTHERS) {
        let der = pki::pem::first_certificate(pem.as_bytes()).map_err(unread)?;
        if der != leaf && !others.contains(&der) {
            others.push(der);
        }
    }
    Ok((leaf, others))
}
