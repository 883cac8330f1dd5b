//! The issuer in this replica's memory: made at start, published through the registry, replaced at half its life.
//!
//! Its key is in this process and nowhere else. It signs only while the registry says that it is the one of this replica, so
//! nothing is signed before its publication is committed, and nothing after it was revoked.

use crate::http::failure::Failure;
use crate::process::app::{App, Provenance};
use crate::process::chance;
use api::code;
use lifecycle::names::{Span, Timestamp};
use lifecycle::registry::{Actor, Command, EPHEMERAL_LIFE, PublishIssuer, Rejection, State};
use pki::issuer::SigningIssuer;
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::Mutex;

#[derive(Default)]
pub struct MemoryIssuers {
    /// The one that signs, and while it is being published the next one.
    held: RwLock<Vec<Arc<SigningIssuer>>>,
    /// One is made and published at a time.
    publishing: Mutex<()>,
}

impl MemoryIssuers {
    /// The one that the registry knows as this replica's.
    fn signer(&self, app: &App, state: &State) -> Option<Arc<SigningIssuer>> {
        let record = state.ephemeral_issuer(app.journal.replica())?;
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        held.iter().find(|issuer| issuer.id() == record.id).cloned()
    }

    fn hold(&self, issuer: Arc<SigningIssuer>) {
        self.held.write().unwrap_or_else(PoisonError::into_inner).push(issuer);
    }

    /// The keys of all others are dropped, and by that overwritten.
    fn keep_only(&self, keep: Option<&SigningIssuer>) {
        let keep = keep.map(SigningIssuer::id);
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        held.retain(|issuer| Some(issuer.id()) == keep);
    }
}

/// What signs the certificates of nodes now.
pub fn node_signer(app: &App) -> Result<Arc<SigningIssuer>, Failure> {
    let view = app.view();
    if !view.state.has_ephemeral_issuers() {
        return Ok(app.ca.keys.client_issuer(&view.state)?);
    }
    let signer = app.ca.memory.signer(app, &view.state);
    signer.filter(|issuer| app.now() < issuer.not_after()).ok_or_else(|| {
        let message = "the issuer in the memory of this replica is not published yet";
        Failure::new(code::ISSUER_UNAVAILABLE, message).retry_after(2)
    })
}

/// Whether certificates of nodes can be signed, as far as the issuer goes.
pub fn is_published(app: &App) -> bool {
    let view = app.view();
    !view.state.has_ephemeral_issuers()
        || app.ca.memory.signer(app, &view.state).is_some_and(|issuer| app.now() < issuer.not_after())
}

/// Makes and publishes an issuer where one is needed: there is none, it was revoked, or half of its life is over.
pub async fn ensure(app: &App) -> Result<(), Failure> {
    let view = app.view();
    if !view.state.has_ephemeral_issuers() {
        return Ok(());
    }
    let _one = app.ca.memory.publishing.lock().await;
    let now = app.now();
    let signer = app.ca.memory.signer(app, &view.state);
    if signer.is_some_and(|issuer| now < half_life(&issuer)) {
        return Ok(());
    }
    app.knows_the_time()?;
    let domain = view.state.domain.as_ref().ok_or(Rejection::NotInitialized)?;
    let made = pki::ephemeral::create(&domain.name, chance::serial(now)?, now)
        .map_err(|error| Failure::internal("an ephemeral issuer could not be made", &error))?;
    let made = Arc::new(made);
    app.ca.memory.hold(made.clone());
    let published = publish(app, &made).await;
    match &published {
        Ok(()) => {
            tracing::info!(issuer = %made.id(), not_after = %made.not_after(), "ephemeral issuer published");
            app.ca.memory.keep_only(Some(&made));
        }
        // It may be on record all the same, and is then replaced by the next one.
        Err(_) => app.ca.memory.keep_only(app.ca.memory.signer(app, &app.view().state).as_deref()),
    }
    published
}

async fn publish(app: &App, issuer: &SigningIssuer) -> Result<(), Failure> {
    let malformed = |error| Failure::internal("an ephemeral issuer has not the shape of one", &error);
    let facts = pki::ephemeral::check(issuer.certificate()).map_err(malformed)?;
    let replica = app.journal.replica();
    let command = PublishIssuer {
        replica,
        issuer: issuer.id(),
        subject: facts.subject,
        certificate: issuer.certificate().to_vec(),
        fingerprint: facts.fingerprint,
        not_before: facts.not_before,
        not_after: facts.not_after,
    };
    let (actor, command) = (Actor::Replica { id: replica }, Command::PublishIssuer(Box::new(command)));
    app.commit(actor, &Provenance::internal(), command).await.map(drop)
}

/// From when on it is replaced: what it signs until then ends before it does.
fn half_life(issuer: &SigningIssuer) -> Timestamp {
    issuer.not_before().plus(Span::from_millis(EPHEMERAL_LIFE.millis() / 2))
}
