//! `/v1/audit`: the trail, its export with a signed end, its verification.

mod list;

pub use list::list;

use crate::ca::keys::audit_issuer;
use crate::edge::sharer::Sharer;
use crate::edge::shares::{PlaceUse, PoolPlace};
use crate::edge::{authenticate, fed};
use crate::http::extract::Caller;
use crate::http::failure::Failure;
use crate::process::app::App;
use api::rest::audit::{AuditFault, AuditVerify};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::Stream;
use http::header;
use journal::View;
use journal::audit::{Footer, footer_message};
use lifecycle::registry::Act;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Duration;

const CHUNK: usize = 500;
/// How long an export may take in all; one that is not read ends much sooner.
const EXPORT_LIMIT: Duration = Duration::from_secs(3600);

/// A page of the trail, each line byte for byte.
#[derive(serde::Serialize)]
pub struct AuditPage {
    pub items: Vec<Box<RawValue>>,
    pub next_cursor: Option<String>,
}

pub fn line(text: String) -> Result<Box<RawValue>, Failure> {
    RawValue::from_string(text).map_err(|error| unreadable(&error))
}

async fn read(app: &Arc<App>, after: u64, limit: usize) -> Result<Vec<String>, Failure> {
    let app = app.clone();
    let lines = tokio::task::spawn_blocking(move || app.journal.audit().list(after, limit)).await;
    match lines {
        Ok(Ok(lines)) => Ok(lines),
        Ok(Err(error)) => Err(unreadable(&error)),
        Err(error) => Err(unreadable(&error)),
    }
}

pub fn unreadable(error: &dyn std::fmt::Display) -> Failure {
    Failure::internal("the audit trail could not be read", error)
}

pub async fn export(State(app): State<Arc<App>>, caller: Caller) -> Result<Response, Failure> {
    let (view, _) = authenticate::reader(&app, &caller.actor, Act::ReadAudit)?;
    let place = app.audit_readers.export(&view.state, &caller.actor)?;
    let over = place.displaced.clone();
    let kind = [(header::CONTENT_TYPE, "application/jsonl")];
    Ok((kind, fed::body(lines(app, view, place), Some(EXPORT_LIMIT), over)).into_response())
}

/// The lines up to the head at the beginning, then the signed footer. A break ends the stream with an error,
/// so that the reader misses the footer.
fn lines(
    app: Arc<App>,
    view: Arc<View>,
    place: PoolPlace<Sharer>,
) -> impl Stream<Item = Result<Bytes, std::io::Error>> {
    futures::stream::unfold(Some((app, view, 0u64, place)), |at| async move {
        let (app, view, after, place) = at?;
        place.set(PlaceUse::Active);
        let left = view.audit.seq.saturating_sub(after);
        if left == 0 {
            return Some((footer(&app, &view), None));
        }
        let size = CHUNK.min(usize::try_from(left).unwrap_or(CHUNK));
        match read(&app, after, size).await {
            Ok(lines) if lines.is_empty() => {
                Some((Err(std::io::Error::other("the trail ends before its head")), None))
            }
            Ok(lines) => {
                let count = lines.len() as u64;
                let text = lines.join("\n") + "\n";
                // Until its reader takes this it waits.
                place.set(PlaceUse::Idle);
                Some((Ok(Bytes::from(text)), Some((app, view, after + count, place))))
            }
            Err(failure) => Some((Err(std::io::Error::other(failure.message)), None)),
        }
    })
}

fn footer(app: &App, view: &View) -> Result<Bytes, std::io::Error> {
    let missing = || std::io::Error::other("the domain is not initialized");
    let domain = view.state.domain.as_ref().ok_or_else(missing)?;
    let signer = view.state.audit_signer.as_ref().ok_or_else(missing)?;
    let (seq, head, at) = (view.audit.seq, view.audit.head, app.clock.now());
    let message = footer_message(&domain.cluster, &domain.name, seq, &head, at);
    let signature = app.ca.keys.audit.sign(&message).map_err(std::io::Error::other)?;
    let issuer = audit_issuer(&view.state, signer).map(|issuer| issuer.certificate.as_slice());
    let chain =
        issuer.into_iter().chain(view.state.cross_certificates(app.now())).chain(view.state.server_trust());
    let footer = Footer {
        cluster_id: domain.cluster,
        domain: domain.name.clone(),
        last_seq: seq,
        head: head.hex(),
        exported_at: at.to_string(),
        signature: hex::encode(signature),
        certificate: pki::pem::certificate_pem(&signer.certificate),
        chain: pki::pem::chain_pem(chain),
    };
    Ok(Bytes::from(footer.line() + "\n"))
}

/// Walks the whole trail as it is on disk now.
pub async fn verify(State(app): State<Arc<App>>, caller: Caller) -> Result<axum::Json<AuditVerify>, Failure> {
    let (view, _) = authenticate::reader(&app, &caller.actor, Act::ReadAudit)?;
    // It is given on when the walk is over, even if nobody waits for it any more.
    let turn = app.audit_readers.verification(&caller.actor).await?;
    let walk = app.clone();
    let result = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        let (Some(domain), Some(signer)) = (&view.state.domain, &view.state.audit_signer) else {
            return Err("the domain is not initialized".to_owned());
        };
        let signed = |seq: u64, head: &lifecycle::names::Fingerprint, signature: &[u8]| {
            let message = journal::checkpoint_message(&domain.cluster, seq, head);
            pki::sign::verify_audit(&signer.certificate, &message, signature)
        };
        let verified = walk.journal.audit().verify(&signed).with_checkpoint(view.state.checkpoint);
        Ok(verified.and(walk.journal.checkpoint_fault()))
    });
    let verification = match result.await {
        Ok(Ok(verification)) => verification,
        Ok(Err(error)) => return Err(unreadable(&error)),
        Err(error) => return Err(unreadable(&error)),
    };
    let known = |seq: u64| (seq > 0).then_some(seq);
    Ok(axum::Json(AuditVerify {
        ok: verification.ok,
        first_seq: known(verification.first_seq),
        last_seq: known(verification.last_seq),
        head: known(verification.last_seq).map(|_| verification.head.hex()),
        checkpoint: verification.checkpoint,
        fault: verification.fault.map(|fault| AuditFault { seq: Some(fault.seq), what: fault.what }),
    }))
}
