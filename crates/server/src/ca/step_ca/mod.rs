//! step-ca behind the control plane: whether it answers, how many ask it at once, and with what.
//!
//! Only replicas talk to it. Its address, root and provisioner are in the registry, and so is the provisioner's sealed key, so that
//! every replica can ask.

mod access;
mod call;
mod health;
mod revoke;
mod settings;
mod sign;
mod turns;
mod watch;

pub use access::UnsealedAccess;
pub use call::{StepCaFailure, StepCaFailureKind};
pub use revoke::revoke;
pub use settings::{CheckedStepCa, change};
pub use sign::{LeafOrder, SignFailure, intermediates, sign};
pub use turns::{Applicant, ApplicantShare};
pub use watch::{check, watch};

use crate::http::failure::Failure;
use crate::process::app::App;
use api::code;
use health::StepCaHealth;
use lifecycle::names::Source;
use lifecycle::registry::{Issuer, IssuerState};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;
use turns::{TakenTurn, Turns};

/// How long one issuance may take, from waiting for a turn to the last byte of the answer.
pub const ISSUANCE_LIMIT: Duration = Duration::from_secs(10);
/// While step-ca itself refuses or answers wrongly, one request in so long is tried: each is an intent, and a line of the audit trail.
const SPACING: Duration = Duration::from_millis(300);

pub struct StepCaClient {
    /// What is needed to ask, unsealed by whoever asks first.
    access: RwLock<Option<Arc<UnsealedAccess>>>,
    health: RwLock<StepCaHealth>,
    turns: Arc<Turns>,
    /// When the next request may be tried, while the last one was answered wrongly.
    next: Mutex<Option<Instant>>,
}

impl Default for StepCaClient {
    fn default() -> Self {
        Self {
            access: RwLock::new(None),
            health: RwLock::new(StepCaHealth::default()),
            turns: Arc::default(),
            next: Mutex::new(None),
        }
    }
}

impl StepCaClient {
    /// What to ask the step-ca with that signs for nodes now.
    pub fn access(&self, app: &App) -> Result<Arc<UnsealedAccess>, Failure> {
        let view = app.view();
        let signs = view.state.step_ca_issuer().map(|(issuer, _)| issuer);
        let issuer = signs.filter(|issuer| app.now() < issuer.not_after).ok_or_else(|| {
            Failure::new(code::ISSUER_UNAVAILABLE, "no issuer can sign for nodes now").retry_after(5)
        })?;
        self.access_to(app, issuer)
    }

    /// What to ask a step-ca with that has signed.
    pub fn access_to(&self, app: &App, issuer: &Issuer) -> Result<Arc<UnsealedAccess>, Failure> {
        let known = self.access.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(known) = known.filter(|known| known.is_of(issuer)) {
            return Ok(known);
        }
        let access = Arc::new(UnsealedAccess::open(&app.ca.keys.kek(), issuer)?);
        *self.access.write().unwrap_or_else(PoisonError::into_inner) = Some(access.clone());
        Ok(access)
    }

    /// Whether the last call succeeded, as far as one was made.
    pub fn is_available(&self) -> bool {
        self.failure().is_none()
    }

    fn failure(&self) -> Option<StepCaFailure> {
        self.health.read().unwrap_or_else(PoisonError::into_inner).failure().cloned()
    }

    /// Remembers how a call went; a change has one line in the log.
    fn note(&self, result: Result<(), &StepCaFailure>) {
        let mut health = self.health.write().unwrap_or_else(PoisonError::into_inner);
        health.note(result);
    }

    /// Remembers that it knows the provisioner.
    fn note_checked(&self) {
        self.health.write().unwrap_or_else(PoisonError::into_inner).note_checked();
    }

    /// Refuses at once while it is known not to answer: asking would only make intents that lapse.
    pub fn ready(&self) -> Result<(), Failure> {
        match self.failure() {
            Some(failure) if failure.kind == StepCaFailureKind::Unavailable => Err(failure.into()),
            _ => Ok(()),
        }
    }

    /// One of the few requests that a credential may have at once.
    pub fn share(&self, applicant: Applicant) -> Result<ApplicantShare, Failure> {
        self.turns.share(applicant).ok_or_else(|| {
            let message = "the issuer of nodes is asked for two certificates with this credential already";
            Failure::new(code::OVERLOADED, message).retry_after(2)
        })
    }

    /// A turn to ask, until the deadline.
    pub async fn turn(
        &self,
        share: &ApplicantShare,
        network: Source,
        deadline: Instant,
    ) -> Result<TakenTurn, Failure> {
        let waited = async {
            if let Some(at) = share.rests_until() {
                tokio::time::sleep_until(at).await;
            }
            let turn = self.turns.take(network).await;
            if self.failure().is_some() {
                let mut next = self.next.lock().await;
                if let Some(at) = *next {
                    tokio::time::sleep_until(at).await;
                }
                *next = Some(Instant::now() + SPACING);
            }
            turn
        };
        match tokio::time::timeout_at(deadline, waited).await {
            Ok(Some(turn)) => self.ready().map(|()| turn),
            Ok(None) | Err(_) => {
                let message = "more certificates are being asked of the issuer than it signs";
                Err(Failure::new(code::ISSUER_UNAVAILABLE, message).retry_after(5))
            }
        }
    }
}

/// Why the step-ca of a record does not sign, for those who may know.
pub fn failure(app: &App, issuer: &Issuer) -> Option<String> {
    let signs = issuer.step_ca.is_some() && issuer.state == IssuerState::Active;
    app.ca.step_ca.failure().filter(|_| signs).map(|failure| failure.to_string())
}
