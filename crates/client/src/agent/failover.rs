//! Fail-over and retry. A refusal that no repetition changes ends it at once; everything else leads to the next
//! server, and after the last one to a pause.

use super::{OnRetry, Reply};
use crate::backoff::RetryPauses;
use crate::error::Error;
use crate::unreachable::{TlsAlert, Unreachable};
use crate::url::ServerUrl;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// The longest one try may take: connecting, and then the call.
const TRY_TIMEOUT: Duration = Duration::from_secs(40);

pub(super) async fn call<T, F>(
    servers: &[ServerUrl],
    deadline: Option<Instant>,
    on_retry: &OnRetry,
    ask: impl Fn(ServerUrl, Instant) -> F,
) -> Result<Reply<T>, Error>
where
    F: Future<Output = Result<Reply<T>, Error>>,
{
    let mut pauses = RetryPauses::default();
    loop {
        let mut round = Round::default();
        for server in servers {
            let until = Instant::now() + TRY_TIMEOUT;
            let until = deadline.map_or(until, |deadline| deadline.min(until));
            let answer = timeout_at(until, ask(server.clone(), until)).await;
            match answer.unwrap_or_else(|_| Err(too_late(server))) {
                Ok(reply) => return Ok(reply),
                Err(error) if is_final(&error) => return Err(error),
                Err(error) => round.note(error),
            }
        }
        let pause = pauses.next(round.retry_after);
        let time_left = deadline.is_some_and(|deadline| Instant::now() + pause < deadline);
        if !(round.again && time_left) {
            return Err(round.into_error());
        }
        if let Some(error) = &round.error {
            on_retry(error, pause);
        }
        sleep(pause).await;
    }
}

fn too_late(server: &ServerUrl) -> Error {
    Error::unreachable(server.to_string(), Unreachable::TimedOut("answer"))
}

/// Whether no other server and no later time would say otherwise. An unknown issuer or a strange certificate may
/// be one replica's trouble; a revocation is everybody's.
fn is_final(error: &Error) -> bool {
    match error {
        Error::Refused(refusal) => !refusal.detail.retryable,
        Error::Unreachable { cause, .. } => *cause == Unreachable::Alert(TlsAlert::Revoked),
        Error::Usage(_) | Error::Fault(_) => true,
    }
}

/// What came of asking every server once.
#[derive(Debug, Default)]
struct Round {
    again: bool,
    retry_after: Option<Duration>,
    /// The one that says most.
    error: Option<Error>,
}

impl Round {
    fn note(&mut self, new: Error) {
        self.again |= new.is_retryable();
        if let Error::Refused(refusal) = &new {
            self.retry_after = self.retry_after.max(refusal.retry_after);
        }
        if self.error.as_ref().is_none_or(|known| weight(&new) > weight(known)) {
            self.error = Some(new);
        }
    }

    fn into_error(self) -> Error {
        self.error.unwrap_or_else(|| Error::Usage("no server is configured".to_owned()))
    }
}

/// Which of several failures is reported: the nearer it came to an answer, the more it says.
fn weight(error: &Error) -> u8 {
    match error {
        Error::Refused(_) => 4,
        Error::Unreachable { cause: Unreachable::Alert(_), .. } => 3,
        Error::Unreachable { cause: Unreachable::Untrusted(_), .. } => 2,
        Error::Unreachable { cause: Unreachable::Garbage(_) | Unreachable::BrokenOff(_), .. } => 1,
        Error::Unreachable { .. } | Error::Usage(_) | Error::Fault(_) => 0,
    }
}
