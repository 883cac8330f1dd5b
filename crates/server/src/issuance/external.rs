//! Certificates that step-ca signs take two entries: the intent is committed, step-ca is asked, and the command that grants the
//! certificate records it. What was signed and is not recorded is revoked where it was signed.

use crate::ca::keys::Terms;
use crate::ca::step_ca::{self, LeafOrder, SignFailure, StepCaFailureKind};
use crate::http::failure::Failure;
use crate::process::app::{App, Provenance};
use crate::process::chance;
use lifecycle::names::{RequestId, Serial};
use lifecycle::registry::{
    Actor, BeginIssuance, Command, EndIssuance, ExternalIssuance, IntentEnd, Issued, StepCaIntermediate,
};
use pki::csr::VerifiedCsr;
use pki::step_ca::ReceivedLeaf;
use tokio::time::Instant;

/// Has a leaf signed that the rules have granted, until the deadline. Nothing leaves the process with it before it is on record.
pub async fn sign(
    app: &App,
    origin: &Provenance,
    csr: &VerifiedCsr,
    terms: Terms<'_>,
    deadline: Instant,
) -> Result<Issued, Failure> {
    let step_ca = &app.ca.step_ca;
    let access = step_ca.access(app)?;
    step_ca.ready()?;
    let _turn = step_ca.turn(deadline).await?;
    let at = app.now();
    let signed_at = at.whole_second();
    let not_after = signed_at.plus(terms.lifetime).whole_second();
    let serial = Serial::from_bytes(&chance::serial(at)?)
        .map_err(|error| Failure::internal("a serial could not be drawn", &error))?;
    let begin = BeginIssuance {
        replica: app.journal.replica(),
        issuer: access.issuer.clone(),
        serial: serial.clone(),
        key: csr.key,
        subject: terms.subject.clone(),
        not_after,
    };
    let intent = intend(app, origin, begin).await?;
    let order = LeafOrder {
        csr,
        subject: &terms.subject,
        common_name: terms.common_name.as_deref(),
        serial: &serial,
        not_after,
        at,
        token_id: &intent.0.to_string(),
    };
    let received = match step_ca::sign(app, &access, &order, deadline).await {
        Ok(received) => received,
        Err(failure) => return Err(unsigned(app, origin, intent, failure).await),
    };
    let ReceivedLeaf { serial, fingerprint, not_before, not_after, der, chain } = received;
    let chain = chain.into_iter().map(|ca| StepCaIntermediate {
        fingerprint: ca.fingerprint,
        not_after: ca.not_after,
        certificate: ca.der,
    });
    let external = ExternalIssuance { intent, not_before, chain: chain.collect() };
    let renewal = terms.profile.map(|profile| profile.renewal_point(signed_at, not_after));
    Ok(Issued {
        serial,
        fingerprint,
        subject: terms.subject,
        key: csr.key,
        issuer: access.issuer.clone(),
        signed_at,
        not_after,
        renew_at: renewal.unwrap_or(not_after),
        der,
        external: Some(Box::new(external)),
    })
}

/// The first entry.
async fn intend(app: &App, origin: &Provenance, begin: BeginIssuance) -> Result<RequestId, Failure> {
    let actor = Actor::Replica { id: begin.replica };
    let envelope = app.envelope(actor, origin, Command::BeginIssuance(Box::new(begin)))?;
    let id = envelope.id;
    app.propose(envelope).await?.answer?;
    Ok(id)
}

async fn unsigned(app: &App, origin: &Provenance, intent: RequestId, failure: SignFailure) -> Failure {
    let SignFailure { call, serial } = failure;
    let end = match (call.kind, call.is_uncertain) {
        (StepCaFailureKind::Misbehaved, _) => Some(IntentEnd::Misbehaved { serial, what: call.why.clone() }),
        (StepCaFailureKind::Unavailable | StepCaFailureKind::Refused { .. }, false) => {
            Some(IntentEnd::NotSigned)
        }
        // It lapses, and what may have been signed is revoked.
        (StepCaFailureKind::Unavailable | StepCaFailureKind::Refused { .. }, true) => None,
    };
    if let Some(end) = end {
        ended(app, origin, intent, end).await;
    }
    call.into()
}

/// A certificate that was signed and whose command was not granted, or may not have been.
pub async fn not_recorded(app: &App, origin: &Provenance, issued: &Issued) {
    if let Some(external) = &issued.external {
        let end = IntentEnd::NotRecorded { serial: issued.serial.clone() };
        ended(app, origin, external.intent, end).await;
    }
}

/// An intent that has its result is not touched by this. One whose end is not recorded lapses.
async fn ended(app: &App, origin: &Provenance, intent: RequestId, end: IntentEnd) {
    let replica = app.journal.replica();
    let end = Command::EndIssuance(Box::new(EndIssuance { replica, intent, end }));
    if let Err(failure) = app.commit(Actor::Replica { id: replica }, origin, end).await {
        tracing::warn!(
            code = failure.code.word,
            "an intent lapses that has come to nothing: {}",
            failure.message
        );
    }
}
