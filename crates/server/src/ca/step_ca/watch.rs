//! Looks after step-ca: often while it fails, so that it is used again at once, and now and then while it is well.

use super::access::UnsealedAccess;
use super::call::{StepCaFailure, StepCaFailureKind, ask};
use crate::process::app::App;
use crate::process::chance;
use pki::agent_key::HostKey;
use pki::step_ca::{SignToken, sign_token};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const PAUSE_FAILING: Duration = Duration::from_secs(1);
const PAUSE_WELL: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_secs(5);

/// Does so until the process stops.
pub async fn watch(app: Arc<App>) {
    loop {
        let pause = if app.ca.step_ca.is_available() { PAUSE_WELL } else { PAUSE_FAILING };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = app.stopped() => return,
        }
        let found = if app.ca.step_ca.is_available() { alive(&app).await } else { asked(&app).await };
        note(&app, found);
    }
}

/// Whether it is there and takes the provisioner's word, for the start.
pub async fn check(app: &App) {
    let found = asked(app).await;
    note(app, found);
}

fn note(app: &App, found: Result<(), StepCaFailure>) {
    match found {
        Ok(()) => app.ca.step_ca.note_checked(),
        Err(failure) => app.ca.step_ca.note(Err(&failure)),
    }
}

fn access(app: &App) -> Result<Arc<UnsealedAccess>, StepCaFailure> {
    app.ca.step_ca.access(app).map_err(|failure| StepCaFailure::unavailable(failure.message, false))
}

/// Whether it is there.
async fn alive(app: &App) -> Result<(), StepCaFailure> {
    let access = access(app)?;
    ask(&access, "/health", None, Instant::now() + LIMIT).await.map(drop)
}

/// Whether it takes the provisioner's word. It is asked for a certificate with names that its token does not hold: who knows the token
/// refuses the names (403), and nothing is signed.
async fn asked(app: &App) -> Result<(), StepCaFailure> {
    let access = access(app)?;
    let unmade = |why: String| StepCaFailure::unavailable(why, false);
    let key = HostKey::generate().map_err(|error| unmade(error.to_string()))?;
    let csr = key.csr_pem_named("refuse-this.invalid").map_err(|error| unmade(error.to_string()))?;
    let now = app.now();
    let id = chance::ulid(now).map_err(|error| unmade(error.to_string()))?.to_string();
    let view = app.view();
    let domain = view.state.domain.as_ref().ok_or_else(|| unmade("no domain".to_owned()))?;
    // No SPIFFE id of this control plane: should anybody sign it, it stands for nobody.
    let subject = format!("spiffe://{}/health-check", domain.name);
    let serial = chance::serial(now).map_err(|error| unmade(error.to_string()))?;
    let serial = lifecycle::names::Serial::from_bytes(&serial).map_err(|error| unmade(error.to_string()))?;
    let names = ["health-check.invalid".to_owned()];
    let token = SignToken {
        provisioner: &access.provisioner,
        audience: &access.address("/1.0/sign"),
        id: &id,
        csr_common_name: Some("health-check.invalid"),
        csr_names: &names,
        common_name: None,
        subject: &subject,
        serial: &serial,
        at: now,
    };
    let token = sign_token(&access.key, &token).map_err(|error| unmade(error.to_string()))?;
    let body = json!({ "csr": csr, "ott": token });
    match ask(&access, "/1.0/sign", Some(&body), Instant::now() + LIMIT).await {
        Err(failure) if !is_answer(failure.kind) => Err(failure),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Unauthorized is how it says that it does not know the provisioner, its key or the time; not found, that it is something else.
fn is_answer(kind: StepCaFailureKind) -> bool {
    match kind {
        StepCaFailureKind::Unavailable | StepCaFailureKind::Misbehaved => false,
        StepCaFailureKind::Refused { status } => !matches!(status, 401 | 404),
    }
}
