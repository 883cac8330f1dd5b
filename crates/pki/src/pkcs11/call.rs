//! One request on its way through the pool.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::error::HsmError;
use super::key::FoundKey;
use super::pool::DEADLINE;

/// What a session is asked to do. Each may be asked again after a session was lost in the middle: only the last one
/// leaves something behind, and its label then says so.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum HsmRequest {
    /// ECDSA over a digest, as `r || s`.
    Sign {
        label: String,
        digest: Vec<u8>,
    },
    Find {
        label: String,
    },
    Generate {
        label: String,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum HsmAnswer {
    Signature(Vec<u8>),
    Key(Box<FoundKey>),
}

/// A request, when it must be answered, and its answer.
pub(super) struct HsmCall {
    pub request: HsmRequest,
    deadline: Instant,
    answer: Mutex<Option<Result<HsmAnswer, HsmError>>>,
    answered: Condvar,
}

impl HsmCall {
    pub fn new(request: HsmRequest, now: Instant) -> Self {
        let deadline = now.checked_add(DEADLINE).unwrap_or(now);
        Self { request, deadline, answer: Mutex::new(None), answered: Condvar::new() }
    }

    pub fn is_late(&self) -> bool {
        self.deadline <= Instant::now()
    }

    /// The first answer counts.
    pub fn answer(&self, answer: Result<HsmAnswer, HsmError>) {
        let mut slot = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.is_none() {
            *slot = Some(answer);
            self.answered.notify_all();
        }
    }

    /// Waits until the deadline at most.
    pub fn wait(&self) -> Result<HsmAnswer, HsmError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let slot = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.answered.wait_timeout_while(slot, left, |slot| slot.is_none());
        let (mut slot, _) = waited.unwrap_or_else(PoisonError::into_inner);
        slot.take().unwrap_or(Err(HsmError::Late(DEADLINE.as_secs())))
    }
}
