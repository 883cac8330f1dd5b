//! `/v1/operators/renew`: an operator's certificate for a new key. Who asks is what the certificate in use says; the
//! body holds the request for the new certificate and nothing else.

use super::operators;
use crate::http::extract::{Caller, Json, Segment};
use crate::http::failure::Failure;
use crate::process::app::App;
use api::code;
use api::rest::operators::{RemovedOperator, RenewOperatorRequest, RenewedOperator};
use api::rest::scope::TenantScope;
use axum::extract::State;
use lifecycle::registry::{Actor, Command, Rejection, operator_renewable};
use pki::pem;
use std::sync::Arc;

pub async fn renew(
    State(app): State<Arc<App>>,
    caller: Caller,
    Json(request): Json<RenewOperatorRequest>,
) -> Result<axum::Json<RenewedOperator>, Failure> {
    let Actor::Operator { name, serial } = caller.actor.clone() else {
        return Err(no_certificate(&caller.actor));
    };
    let csr = operators::read_csr(&request.csr)?;
    // May it at all? Asked before anything is signed.
    let before = app.view();
    let unused = operator_renewable(&before.state, &name, &serial, csr.key)?.renewed.as_ref();
    let certificate = operators::issue(&app, &name, &csr)?;
    let renew = lifecycle::registry::RenewOperator { name: name.clone(), certificate: certificate.clone() };
    let (_, view) = app.commit(caller.actor, &caller.origin, Command::RenewOperator(Box::new(renew))).await?;
    let operator =
        view.state.operators.get(&name).ok_or(Rejection::OperatorNotFound { name: name.clone() })?;
    let denied = unused.filter(|unused| **unused != serial && !view.state.is_good(unused));
    let issuer = view.state.issuers.get(&certificate.issuer);
    let roots = view.state.server_trust();
    Ok(axum::Json(RenewedOperator {
        name: name.to_string(),
        role: operator.role.as_str().to_owned(),
        tenant: TenantScope::of(&operator.tenants),
        certificate: pem::certificate_pem(&certificate.der),
        chain: issuer.map(|issuer| pem::certificate_pem(&issuer.certificate)).unwrap_or_default(),
        ca: pem::chain_pem(roots),
        cert_serial: certificate.serial.to_string(),
        not_after: certificate.not_after.to_string(),
        denied_serials: denied.map(ToString::to_string).into_iter().collect(),
    }))
}

/// `DELETE /v1/operators/renew`: the operator of that name.
pub async fn remove(state: State<Arc<App>>, caller: Caller) -> Result<axum::Json<RemovedOperator>, Failure> {
    operators::remove(state, caller, Segment("renew".to_owned())).await
}

fn no_certificate(actor: &Actor) -> Failure {
    let message = match actor {
        Actor::Key { .. } => "an API key has no certificate to renew: create a new key instead",
        Actor::Local { .. } => "the operator socket uses no certificate: add an operator to issue one",
        _ => "only an operator renews an operator's certificate",
    };
    Failure::new(code::FORBIDDEN, message)
}
