//! Whether the last call of step-ca succeeded, and for how long a failure is believed.

use super::call::{StepCaFailure, StepCaFailureKind};
use std::time::Duration;
use tokio::time::Instant;

/// A refusal of what was asked (403), or a wrong answer, says nothing of the next request. Step-ca is taken to be well again after this
/// time if it takes the provisioner's word.
const REMEMBERED: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct StepCaHealth {
    failed: Option<(StepCaFailure, Instant)>,
    is_known: bool,
}

impl StepCaHealth {
    pub fn failure(&self) -> Option<&StepCaFailure> {
        self.failed.as_ref().map(|(failure, _)| failure)
    }

    pub fn note(&mut self, result: Result<(), &StepCaFailure>) {
        match result {
            Ok(()) => {
                if self.failed.take().is_some() || !self.is_known {
                    tracing::info!("step-ca answers");
                }
            }
            Err(failure) => {
                let kind = failure.kind;
                if self.failure().is_none_or(|before| before.kind != kind) {
                    let remedy = kind.remedy();
                    tracing::error!(code = kind.code().word, remedy, "step-ca: {}", failure.why);
                }
                self.failed = Some((failure.clone(), Instant::now()));
            }
        }
        self.is_known = true;
    }

    /// What a check that the provisioner is known says: it cannot tell whether the next request will be refused for what it asks.
    pub fn note_checked(&mut self) {
        let stays = self.failed.as_ref().is_some_and(|(failure, at)| match failure.kind {
            StepCaFailureKind::Unavailable | StepCaFailureKind::Refused { status: 401 | 404 } => false,
            StepCaFailureKind::Refused { .. } | StepCaFailureKind::Misbehaved => at.elapsed() < REMEMBERED,
        });
        if !stays {
            self.note(Ok(()));
        }
    }
}
