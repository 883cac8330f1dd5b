//! Accepting callers for as long as the daemon lives.

use std::io;
use std::time::Duration;

use tokio::time::sleep;

/// Long enough for whoever holds what was missing to let go of it.
const PAUSE: Duration = Duration::from_millis(100);

/// The next caller. That one could not be accepted, for want of memory or of file descriptors, is no reason to
/// accept none from then on.
pub async fn next<T, F>(mut accept: impl FnMut() -> F) -> T
where
    F: Future<Output = io::Result<T>>,
{
    loop {
        match accept().await {
            Ok(caller) => return caller,
            Err(_) => sleep(PAUSE).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn callers_are_accepted_after_a_failure_too() {
        let mut answers = vec![Ok(7), Err(io::ErrorKind::OutOfMemory), Err(io::ErrorKind::Other)];
        let caller = next(|| std::future::ready(answers.pop().unwrap().map_err(io::Error::from))).await;
        assert_eq!(caller, 7);
    }
}
