//! Rolling the issuer. The root key is elsewhere: a request goes out, a certificate comes back.

use crate::ca::keys::roll_context;
use crate::http::failure::Failure;
use crate::process::app::{App, Provenance};
use crate::process::chance;
use api::code;
use journal::View;
use lifecycle::names::IssuerId;
use lifecycle::registry::{
    ActivateIssuer, Actor, Command, Confirmation, IssuerKind, IssuerState, NewIssuer, PrepareRoll, Rejection,
    State,
};
use pki::issuer::issuer_id;
use pki::{csr, hierarchy, pem, roll};
use std::sync::Arc;

/// What comes after the request.
const UNSIGNED: &str = "sign the CSR with the root key (`enlist ca sign-intermediate`), then submit the certificate: \
    `enlist ca roll prepare --cert FILE`";

/// Who asks, and how it is recorded.
pub struct Requester<'a> {
    pub actor: &'a Actor,
    pub origin: &'a Provenance,
}

impl Requester<'_> {
    async fn commit(&self, app: &App, command: Command) -> Result<Arc<View>, Failure> {
        app.commit(self.actor.clone(), self.origin, command).await.map(|(_, view)| view)
    }
}

/// Puts the request for the next issuer's certificate on record: the one that is out, or a new one.
pub async fn request(app: &App, by: &Requester<'_>) -> Result<Arc<View>, Failure> {
    // What is sealed meanwhile must not be left behind under the old key.
    let _still = app.ca.sealing().await?;
    let view = app.view();
    let domain = view.state.domain.as_ref().ok_or(Rejection::NotInitialized)?;
    let prepare = match &view.state.roll {
        Some(roll) => roll.clone(),
        None => {
            let made = roll::intermediate_request(&domain.name)
                .map_err(|error| Failure::internal("no key for the next issuer", &error))?;
            let key = pki::digest::key_hash(&made.spki);
            let sealed_key = app.ca.keys.kek().seal(&roll_context(&key), &made.key);
            let sealed_key =
                sealed_key.map_err(|error| Failure::internal("a key could not be sealed", &error))?;
            PrepareRoll { key, request: made.csr_pem, sealed_key }
        }
    };
    by.commit(app, Command::PrepareRoll(prepare)).await
}

/// Takes the certificate that came back.
pub async fn certify(app: &App, by: &Requester<'_>, certificate: &str) -> Result<Arc<View>, Failure> {
    let view = app.view();
    let bad = |why: &dyn std::fmt::Display| Failure::new(code::BAD_REQUEST, format!("certificate: {why}"));
    let ders = pem::certificates(certificate.as_bytes()).map_err(|error| bad(&error))?;
    let der = ders.first().ok_or_else(|| bad(&"the request holds no certificate"))?;
    if let Some(known) = view.state.issuers.get(&issuer_id(der)) {
        return match known.state {
            // Sent again after a lost answer, or after it has done its work.
            IssuerState::Prepared | IssuerState::Active => Ok(view),
            IssuerState::Retiring | IssuerState::Retired | IssuerState::Revoked => {
                Err(Rejection::IssuerNotPrepared { issuer: known.id.clone() }.into())
            }
        };
    }
    let roll = view.state.roll.as_ref().ok_or(Rejection::NoRoll)?;
    let request = csr::read(roll.request.as_bytes())
        .map_err(|error| Failure::internal("the pending request cannot be read", &error))?;
    let roots: Vec<&[u8]> = view.state.roots.iter().map(|root| root.certificate.as_slice()).collect();
    let checked =
        roll::check_intermediate(der, &roots, &request.spki, app.now()).map_err(|error| bad(&error))?;
    if view.state.issuers.values().any(|issuer| issuer.subject == checked.facts.subject) {
        return Err(bad(&"another issuer of this domain has its name"));
    }
    let id = issuer_id(der);
    let issuer = NewIssuer {
        sealed_key: roll.sealed_key.clone(),
        kind: IssuerKind::Sealed,
        subject: checked.facts.subject,
        certificate: der.to_vec(),
        fingerprint: pki::digest::fingerprint(der),
        not_after: checked.facts.not_after,
        id,
    };
    by.commit(app, Command::CertifyRoll(Box::new(issuer))).await
}

/// Lets the prepared issuer sign from now on. The audit key stays; its certificate comes from the new issuer.
pub async fn activate(
    app: &App,
    by: &Requester<'_>,
    named: Option<IssuerId>,
    force: bool,
    confirm: Option<String>,
) -> Result<Arc<View>, Failure> {
    let confirm = Confirmation::Asked(confirm);
    let view = app.view();
    let id = match named {
        Some(id) => id,
        None => in_state(&view.state, IssuerState::Prepared).ok_or_else(|| not_ready(&view.state))?,
    };
    let record =
        view.state.issuers.get(&id).ok_or_else(|| Rejection::IssuerNotFound { issuer: id.clone() })?;
    if record.state != IssuerState::Prepared {
        let command = ActivateIssuer { issuer: id, force, audit_certificate: Vec::new(), confirm };
        return by.commit(app, Command::ActivateIssuer(command)).await;
    }
    let domain = view.state.domain.as_ref().ok_or(Rejection::NotInitialized)?;
    let signer = view.state.audit_signer.as_ref().ok_or(Rejection::NotInitialized)?;
    let issuer = app.ca.keys.open(record)?;
    let at = app.now();
    let audit_certificate =
        hierarchy::recertify_audit(&issuer, &signer.certificate, &domain.name, chance::serial(at)?, at)
            .map_err(|error| Failure::internal("the audit key could not be certified", &error))?;
    let command = ActivateIssuer { issuer: id, force, audit_certificate, confirm };
    by.commit(app, Command::ActivateIssuer(command)).await
}

pub async fn retire(app: &App, by: &Requester<'_>, named: Option<IssuerId>) -> Result<Arc<View>, Failure> {
    let view = app.view();
    let issuer = match named {
        Some(id) => id,
        None => in_state(&view.state, IssuerState::Retiring).ok_or_else(|| none_retiring(&view.state))?,
    };
    by.commit(app, Command::RetireIssuer { issuer }).await
}

/// Why there is nothing to activate.
fn not_ready(state: &State) -> Failure {
    match &state.roll {
        Some(_) => Failure::new(code::NO_ROLL, "the next issuer has no certificate yet").remedy(UNSIGNED),
        None => Rejection::NoRoll.into(),
    }
}

/// Why there is nothing to retire.
fn none_retiring(state: &State) -> Failure {
    let failure = |why: &str| Failure::new(code::NO_ROLL, format!("no issuer is retiring{why}"));
    if in_state(state, IssuerState::Prepared).is_some() {
        let hint = "activate the prepared issuer first: `enlist ca roll activate`";
        return failure(": the prepared issuer is not active yet").remedy(hint);
    }
    match &state.roll {
        Some(_) => failure(": the next issuer has no certificate yet").remedy(UNSIGNED),
        None => failure(""),
    }
}

fn in_state(state: &State, wanted: IssuerState) -> Option<IssuerId> {
    state.domain_issuer_in(wanted).map(|issuer| issuer.id.clone())
}
