//! How a host gets a certificate: enrollment, renewal, recovery, repair. The rules are asked, the leaf is signed in
//! memory, the command is committed, and only what the committed outcome granted is released.

pub mod enroll;
mod external;
mod issue;
pub mod mint;
pub mod probe;
pub mod recover;
pub mod renew;
pub mod repair;

pub use issue::{Released, at_now};

use crate::http::failure::Failure;
use api::code;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Requests for certificates in progress at once; the rest queues.
const IN_PROGRESS: usize = 512;
/// How long a request may queue before it is told to come back: as long as for a handshake, which it has paid for.
const QUEUE_LIMIT: Duration = Duration::from_secs(25);

/// Bounds on what issuing may cost at once.
pub struct IssuanceLimits {
    in_progress: Arc<Semaphore>,
    probes: Semaphore,
}

impl Default for IssuanceLimits {
    fn default() -> Self {
        Self { in_progress: Arc::new(Semaphore::new(IN_PROGRESS)), probes: Semaphore::new(probe::AT_ONCE) }
    }
}

impl IssuanceLimits {
    /// A place among the requests in progress.
    async fn place(&self) -> Result<OwnedSemaphorePermit, Failure> {
        match tokio::time::timeout(QUEUE_LIMIT, self.in_progress.clone().acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(Failure::new(code::OVERLOADED, "more requests than can be served now").retry_after(2)),
        }
    }
}
