//! Certificates that step-ca signs take two entries: the intent is committed, step-ca is asked, and the command that grants the
//! certificate records it. What was signed and is not recorded is revoked where it was signed.

use crate::ca::keys::Terms;
use crate::ca::step_ca::{self, Applicant, LeafOrder, SignFailure, StepCaFailureKind};
use crate::http::failure::Failure;
use crate::process::app::{App, Provenance};
use crate::process::chance;
use api::code;
use lifecycle::names::{RequestId, Serial};
use lifecycle::registry::{
    Actor, BeginIssuance, Command, EndIssuance, ExternalIssuance, Intent, IntentEnd, Issued, Rejection, State,
};
use pki::csr::VerifiedCsr;
use pki::step_ca::{ReceivedLeaf, misread_name};
use tokio::time::Instant;

/// Intents of one node, or for one key, that wait for their results.
const OPEN_INTENTS: usize = 4;

/// Has a leaf signed that the rules have granted, until the deadline. Nothing leaves the process with it before it is on record.
pub async fn sign(
    app: &App,
    origin: &Provenance,
    applicant: Applicant,
    csr: &VerifiedCsr,
    terms: Terms<'_>,
    deadline: Instant,
) -> Result<Issued, Failure> {
    if let Some(name) = misread_name(csr) {
        return Err(csr_refused(format!(
            "the issuer of nodes would take '{name}' in the CSR for something else"
        )));
    }
    let step_ca = &app.ca.step_ca;
    let access = step_ca.access(app)?;
    step_ca.ready()?;
    let share = step_ca.share(applicant)?;
    let _turn = step_ca.turn(&share, origin.source.prefix(), deadline).await?;
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
    check_open_intents(&app.view().state, &begin)?;
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
        Err(failure) => {
            if failure.is_of_csr {
                share.refused();
            }
            return Err(unsigned(app, origin, intent, failure).await);
        }
    };
    let chain = step_ca::intermediates(&received);
    let ReceivedLeaf { serial, fingerprint, not_before, not_after, der, chain: _ } = received;
    let external = ExternalIssuance { intent, not_before, chain };
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

fn csr_refused(message: String) -> Failure {
    Failure::new(code::CSR_INVALID, message).remedy(
        "make the CSR without subject alternative names: what the certificate says is not taken from it",
    )
}

/// What a host left behind by requests whose result is not known lapses within a minute: until then it has few more.
fn check_open_intents(state: &State, begin: &BeginIssuance) -> Result<(), Failure> {
    let same = |intent: &&Intent| intent.key == begin.key || intent.subject == begin.subject;
    match state.intents.values().filter(same).count() < OPEN_INTENTS {
        true => Ok(()),
        false => Err(Rejection::TooManyIssuances { max: OPEN_INTENTS }.into()),
    }
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
    let SignFailure { call, serial, is_of_csr } = failure;
    if is_of_csr {
        // In its place a certificate was signed that nobody has the key of.
        let end = serial.map_or(IntentEnd::NotSigned, |serial| IntentEnd::NotRecorded { serial });
        ended(app, origin, intent, end).await;
        return csr_refused("the issuer of nodes does not sign this CSR".to_owned());
    }
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
