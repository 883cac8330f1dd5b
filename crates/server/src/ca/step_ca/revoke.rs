//! Asking step-ca to revoke a certificate.

use super::access::UnsealedAccess;
use super::call::{StepCaFailure, StepCaFailureKind, ask};
use crate::process::app::App;
use crate::process::chance;
use lifecycle::names::Serial;
use lifecycle::registry::{RevocationReason, UndeliveredRevocation};
use pki::step_ca::revoke_token;
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

const LIMIT: Duration = Duration::from_secs(10);

/// What is revoked already is revoked.
pub async fn revoke(
    app: &App,
    access: &UnsealedAccess,
    serial: &Serial,
    owed: &UndeliveredRevocation,
) -> Result<(), StepCaFailure> {
    let result = revoked(app, access, serial, owed).await;
    let word = result.as_ref().err().map_or("ok", |failure| failure.kind.code().word);
    app.metrics.step_ca_called("revoke", word);
    match &result {
        // One that keeps no database has no place for revocations (501): it signs all the same.
        Err(failure) if failure.why.starts_with("HTTP 501") => {}
        // It takes the provisioner's word; whether it signs as it should is another question.
        Ok(()) => app.ca.step_ca.note_checked(),
        Err(failure) => app.ca.step_ca.note(Err(failure)),
    }
    result
}

async fn revoked(
    app: &App,
    access: &UnsealedAccess,
    serial: &Serial,
    owed: &UndeliveredRevocation,
) -> Result<(), StepCaFailure> {
    let now = app.now();
    let unmade = |why: String| StepCaFailure::unavailable(why, false);
    let id = chance::ulid(now).map_err(|error| unmade(error.to_string()))?.to_string();
    let audience = access.address("/1.0/revoke");
    let token = revoke_token(&access.key, (&access.provisioner, &audience, &id), serial, now)
        .map_err(|error| unmade(error.to_string()))?;
    // RFC 5280: 4 is superseded, 5 the end of its use.
    let reason = match owed.reason() {
        RevocationReason::Unspecified => 0,
        RevocationReason::Superseded => 4,
        RevocationReason::CessationOfOperation => 5,
    };
    let body =
        json!({ "serial": format!("0x{serial}"), "ott": token, "reasonCode": reason, "passive": true });
    match ask(access, "/1.0/revoke", Some(&body), Instant::now() + LIMIT).await {
        Ok(_) => Ok(()),
        Err(failure) if is_done(&failure) => Ok(()),
        Err(failure) => Err(failure),
    }
}

fn is_done(failure: &StepCaFailure) -> bool {
    matches!(failure.kind, StepCaFailureKind::Refused { .. }) && failure.why.contains("already revoked")
}
