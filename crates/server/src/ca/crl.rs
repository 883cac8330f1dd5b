//! Lists of revocations: one per issuer whose key is held, signed when it is asked for and something was denied
//! since, or a minute has passed. Served without authentication: one list is shared by all who ask, and signatures are bounded in number.
//! The lists of roots are signed where their keys are, and only passed on.

use crate::ca::hsm;
use crate::http::failure::Failure;
use crate::process::app::App;
use bytes::Bytes;
use lifecycle::names::{IssuerId, Span, Timestamp};
use lifecycle::registry::{Issuer, Rejection, Revocation, RevocationReason, State};
use pki::crl::{Contents, CrlReason, LIFETIME, Revoked, sign_crl};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio::time::error::Elapsed;

/// For so long a list is given out again: certificates also end by time, which no command tells.
const KEPT: Span = Span::from_minutes(1);
/// One signature in this time and of an issuer; who asks sooner for something new waits.
const PAUSE: Duration = Duration::from_secs(1);
/// How long anyone waits for a list, and for the turn to look at it.
const WAIT: Duration = Duration::from_secs(10);

#[derive(Default)]
pub struct Lists {
    signed: Mutex<BTreeMap<IssuerId, SignedList>>,
    all: Mutex<Option<AllLists>>,
}

#[derive(Clone)]
pub struct SignedList {
    pub der: Bytes,
    pub pem: Bytes,
    /// What was denied when it was signed.
    denials: u64,
    at: Timestamp,
    /// When its signing began, and when it was done.
    begun: Instant,
    signed: Instant,
}

/// The list of an issuer; of the one that signs now, if none is named. Within a time limit.
pub async fn list(app: &Arc<App>, issuer: Option<&IssuerId>) -> Result<SignedList, Failure> {
    tokio::time::timeout(WAIT, signed(app, issuer)).await.map_err(late)?
}

/// The lists of all trusted issuers, that of the one that signs for nodes now first, and then those of the roots: PEM, as verifiers that
/// check every certificate of a chain read it. Those of issuers that are retired or revoked are left out: without a list of theirs,
/// such a verifier refuses whatever they sign. Within a time limit.
pub async fn all(app: &Arc<App>) -> Result<Bytes, Failure> {
    tokio::time::timeout(WAIT, joined(app)).await.map_err(late)?
}

fn late(_: Elapsed) -> Failure {
    Failure::new(api::code::OVERLOADED, "the revocation list is not signed yet").retry_after(2)
}

async fn joined(app: &Arc<App>) -> Result<Bytes, Failure> {
    let view = app.view();
    let trusted = |issuer: &&Issuer| has_list(issuer) && issuer.state.is_trusted();
    let mut issuers: Vec<&Issuer> = view.state.issuers.values().filter(trusted).collect();
    let signs_now = view.state.client_issuer().map(|issuer| &issuer.id);
    issuers.sort_by_key(|issuer| Some(&issuer.id) != signs_now);
    let mut lists = Vec::new();
    for issuer in issuers {
        lists.push(signed(app, Some(&issuer.id)).await?.pem);
    }
    let mut all = app.ca.lists.all.lock().await;
    let bundle_version = view.state.bundle_version;
    if let Some(known) = all.as_ref().filter(|known| known.is_of(&lists, bundle_version)) {
        return Ok(known.text.clone());
    }
    let of_roots = view.state.root_lists().map(|list| Bytes::from(pki::pem::crl_pem(&list.der)));
    let parts: Vec<Bytes> = lists.iter().cloned().chain(of_roots).collect();
    let text = Bytes::from(parts.concat());
    *all = Some(AllLists { lists, bundle_version, text: text.clone() });
    Ok(text)
}

/// The text of all lists and what it was made of, for all who ask while that is the same.
struct AllLists {
    lists: Vec<Bytes>,
    bundle_version: u64,
    text: Bytes,
}

impl AllLists {
    /// The lists are kept here, so no other list has their place in memory.
    fn is_of(&self, lists: &[Bytes], bundle_version: u64) -> bool {
        let places = |lists: &[Bytes]| lists.iter().map(|list| list.as_ptr()).collect::<Vec<_>>();
        self.bundle_version == bundle_version && places(&self.lists) == places(lists)
    }
}

/// Whether the control plane signs a list for it.
fn has_list(issuer: &Issuer) -> bool {
    !issuer.sealed_key.is_empty() && issuer.is_of_domain()
}

async fn signed(app: &Arc<App>, issuer: Option<&IssuerId>) -> Result<SignedList, Failure> {
    let asked = Instant::now();
    let id = find(&app.view().state, issuer)?.id.clone();
    let mut signed = app.ca.lists.signed.lock().await;
    // One whose signing began after it was asked for holds all that was denied by then: whoever waited takes it, or a
    // denial a second would keep all of them waiting for a list of their own.
    let fresh = |list: &&SignedList| {
        list.begun >= asked || list.denials == app.view().state.denials && app.now().since(list.at) < KEPT
    };
    let known = signed.get(&id);
    if let Some(list) = known.filter(fresh) {
        return Ok(list.clone());
    }
    if let Some(list) = known {
        tokio::time::sleep_until(list.signed + PAUSE).await;
    }
    let signer = app.clone();
    let made = tokio::task::spawn_blocking(move || sign(&signer, &id)).await;
    let (id, list) =
        made.map_err(|error| Failure::internal("a revocation list was not signed", &error))??;
    signed.retain(|id, _| app.view().state.issuers.contains_key(id));
    signed.insert(id, list.clone());
    Ok(list)
}

fn find<'a>(state: &'a State, issuer: Option<&IssuerId>) -> Result<&'a Issuer, Failure> {
    match issuer {
        Some(id) if state.issuers.get(id).is_some_and(|issuer| !issuer.is_of_domain()) => {
            let kind = state.issuers.get(id).map(|issuer| issuer.kind.as_str()).unwrap_or_default();
            let message = format!(
                "issuer {id} is of the kind {kind}: the control plane signs no revocation list for it"
            );
            Err(Failure::new(api::code::NO_REVOCATION_LIST, message))
        }
        Some(id) => state
            .issuers
            .get(id)
            .filter(|issuer| !issuer.sealed_key.is_empty())
            .ok_or_else(|| Rejection::IssuerNotFound { issuer: id.clone() }.into()),
        // When none signs any more, the list of the last one is the one that matters.
        None => state
            .client_issuer()
            .or_else(|| {
                state.issuers.values().filter(|issuer| has_list(issuer)).max_by_key(|issuer| issuer.not_after)
            })
            .ok_or_else(|| {
                Failure::new(api::code::ISSUER_UNAVAILABLE, "no issuer can sign now").retry_after(5)
            }),
    }
}

fn sign(app: &App, id: &IssuerId) -> Result<(IssuerId, SignedList), Failure> {
    let begun = Instant::now();
    let (view, now) = (app.view(), app.now());
    let record = find(&view.state, Some(id))?;
    let contents = Contents {
        revoked: view.state.revocations(record, now).map(entry).collect(),
        // Time runs backwards by what is on record only, so a later list has a higher number.
        number: now.plus(view.state.set_back).millis(),
        this_update: now,
        next_update: now.plus(LIFETIME),
    };
    let issuer = app.ca.keys.open(record)?;
    hsm::ready(app, &issuer)?;
    let der = hsm::observed(app, &issuer, || sign_crl(&issuer, contents)).map_err(|error| {
        tracing::error!(%error, issuer = %id, "a revocation list could not be signed");
        let failure = Failure::new(api::code::ISSUER_UNAVAILABLE, error.to_string());
        hsm::failure_of(&error).unwrap_or(failure)
    })?;
    let list = SignedList {
        pem: pki::pem::crl_pem(&der).into(),
        der: der.into(),
        denials: view.state.denials,
        at: now,
        begun,
        signed: Instant::now(),
    };
    Ok((id.clone(), list))
}

/// The registry's reason, as a list writes it.
fn entry(revocation: Revocation) -> Revoked {
    let reason = match revocation.reason {
        RevocationReason::Unspecified => CrlReason::Unspecified,
        RevocationReason::Superseded => CrlReason::Superseded,
        RevocationReason::CessationOfOperation => CrlReason::CessationOfOperation,
    };
    Revoked { serial: revocation.serial, at: revocation.at, reason }
}
