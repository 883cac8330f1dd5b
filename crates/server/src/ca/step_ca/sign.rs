//! Asking step-ca for a certificate.

use super::access::UnsealedAccess;
use super::call::{StepCaFailure, StepCaFailureKind, ask};
use crate::process::app::App;
use crate::process::chance;
use client::foreign::ForeignAnswer;
use lifecycle::names::{Serial, SpiffeId, Timestamp};
use lifecycle::registry::{INTERMEDIATES, StepCaIntermediate};
use pki::agent_key::HostKey;
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
    /// The CSR is to blame: with another one the same is signed.
    pub is_of_csr: bool,
}

impl From<StepCaFailure> for SignFailure {
    fn from(call: StepCaFailure) -> Self {
        Self { call, serial: None, is_of_csr: false }
    }
}

/// Asks, and holds the answer against the order. What a caller put into its CSR says nothing of step-ca: after a refusal that may be
/// about the CSR, step-ca is judged by a request of our own.
pub async fn sign(
    app: &App,
    access: &UnsealedAccess,
    order: &LeafOrder<'_>,
    deadline: Instant,
) -> Result<ReceivedLeaf, SignFailure> {
    let result = counted(app, access, order, deadline).await;
    match result {
        Err(refused) if may_be_of_csr(refused.call.kind) => {
            Err(judged(app, access, order, deadline, refused).await)
        }
        result => noted(app, result),
    }
}

/// Forbidden, or not readable. Unauthorized and not found are about the provisioner.
fn may_be_of_csr(kind: StepCaFailureKind) -> bool {
    matches!(kind, StepCaFailureKind::Refused { status } if !matches!(status, 401 | 404))
}

async fn counted(
    app: &App,
    access: &UnsealedAccess,
    order: &LeafOrder<'_>,
    deadline: Instant,
) -> Result<ReceivedLeaf, SignFailure> {
    let result = signed(app, access, order, deadline).await;
    app.metrics
        .step_ca_called("sign", result.as_ref().err().map_or("ok", |failure| failure.call.kind.code().word));
    result
}

fn noted(app: &App, result: Result<ReceivedLeaf, SignFailure>) -> Result<ReceivedLeaf, SignFailure> {
    app.ca.step_ca.note(result.as_ref().map(|_| ()).map_err(|failure| &failure.call));
    result
}

/// Asks for the same with a CSR without names, for a key that nobody keeps. If that is signed, the caller's CSR was refused; what was
/// signed is to be revoked.
async fn judged(
    app: &App,
    access: &UnsealedAccess,
    order: &LeafOrder<'_>,
    deadline: Instant,
    refused: SignFailure,
) -> SignFailure {
    let at = app.now();
    let id = match chance::ulid(at) {
        Ok(id) => id.to_string(),
        Err(_) => return refused,
    };
    let csr = HostKey::generate().and_then(|key| key.csr_pem());
    let Some(csr) = csr.ok().and_then(|pem| pki::csr::read(pem.as_bytes()).ok()) else { return refused };
    let order = LeafOrder { csr: &csr, token_id: &id, at, ..*order };
    match noted(app, counted(app, access, &order, deadline).await) {
        Ok(signed) => SignFailure { serial: Some(signed.serial), is_of_csr: true, ..refused },
        Err(failure) => failure,
    }
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
    let received = check(&asked, &leaf, &others, &access.root).map_err(|wrong| SignFailure {
        serial: wrong.serial,
        ..StepCaFailure::misbehaved(wrong.what).into()
    })?;
    let state = &app.view().state;
    let is_known = state.certificates.contains_key(&received.serial)
        || state.undelivered_revocations.contains_key(&received.serial);
    if is_known {
        let why = format!("it answered the certificate {} a second time", received.serial);
        return Err(StepCaFailure::misbehaved(why).into());
    }
    let known = state.step_ca_issuer().map(|(_, step_ca)| step_ca);
    if known.is_some_and(|known| !known.has_room_for(&intermediates(&received), app.now())) {
        let why = format!(
            "it signs through a new intermediate, and {INTERMEDIATES} that have not ended are on record: let it sign through one of those, or wait until one has ended"
        );
        return Err(SignFailure { serial: Some(received.serial), ..StepCaFailure::misbehaved(why).into() });
    }
    Ok(received)
}

/// What came with a certificate, as it goes on record.
pub fn intermediates(received: &ReceivedLeaf) -> Vec<StepCaIntermediate> {
    let recorded = received.chain.iter().map(|ca| StepCaIntermediate {
        fingerprint: ca.fingerprint,
        not_after: ca.not_after,
        certificate: ca.der.clone(),
    });
    recorded.collect()
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
            subject: &order.subject.to_string(),
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
