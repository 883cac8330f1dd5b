//! Request bodies, bounded in size and time.

use crate::edge::capacity::SMALL_BODY;
use crate::edge::phase::RequestPhase;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

pub const BODY_LIMIT: u64 = 64 * 1024;
/// What a configuration document and its escapes take.
const DOCUMENT_LIMIT: u64 = 512 * 1024;
pub const BATCH_LIMIT: u64 = 4 * 1024 * 1024;
const TIME_LIMIT: Duration = Duration::from_secs(30);
/// A stranger's body has this long, and then only as long as it comes at this rate: a few bytes now and then hold no place.
const STRANGER_TIME: Duration = Duration::from_secs(5);
const STRANGER_BYTES_PER_SECOND: u64 = 1024;
const DRAIN_TIME: Duration = Duration::from_secs(2);
/// Generous: a client notices the answer only between two writes, and the time is the bound.
const DRAIN_LIMIT: u64 = 32 * 1024 * 1024;

/// How long a body may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    Known,
    Stranger,
}

impl Pace {
    /// Since the first wait for it, when so many bytes of it have come.
    fn limit(self, received: u64) -> Duration {
        match self {
            Pace::Known => TIME_LIMIT,
            Pace::Stranger => {
                let earned = Duration::from_secs(received / STRANGER_BYTES_PER_SECOND);
                (STRANGER_TIME + earned).min(TIME_LIMIT)
            }
        }
    }
}

/// How large the body of a request to this path may be. What is larger than elsewhere is for platform-admins alone, who may do
/// what it is for: nobody else may make the server hold it.
pub fn limit(path: &str, is_platform_admin: impl FnOnce() -> bool) -> u64 {
    let larger = match path.split('/').collect::<Vec<_>>().as_slice() {
        ["", "v1", "nodes", "batch"] | ["", "pact.enrollment.EnrollmentService", "BatchRegisterNodes"] => {
            BATCH_LIMIT
        }
        ["", "v1", "vclusters" | "nodes", _, "config"] | ["", "v1", "vcluster-defaults"] => DOCUMENT_LIMIT,
        _ => BODY_LIMIT,
    };
    if larger > BODY_LIMIT && is_platform_admin() { larger } else { BODY_LIMIT }
}

/// What is said of a body that is larger.
pub fn too_large(limit: u64) -> String {
    format!("the body is larger than {} KiB", limit / 1024)
}

#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("{}", too_large(*.0))]
    TooLarge(u64),
    #[error("the body came too slowly")]
    TooSlow,
    #[error(transparent)]
    Broken(#[from] hyper::Error),
}

/// A body that ends with an error when it gets too long or too slow. The clock starts at the first wait.
pub struct Bounded {
    inner: Option<Incoming>,
    limit: u64,
    left: u64,
    pace: Pace,
    deadline: Option<(Instant, Pin<Box<Sleep>>)>,
    /// Told when all of it is there.
    phase: Option<Arc<RequestPhase>>,
}

impl Bounded {
    pub fn new(inner: Incoming, limit: u64, pace: Pace, phase: Arc<RequestPhase>) -> Self {
        Self { inner: Some(inner), limit, left: limit, pace, deadline: None, phase: Some(phase) }
    }

    /// One that nobody will read.
    pub fn unread(inner: Incoming) -> Self {
        let (limit, pace) = (BODY_LIMIT, Pace::Stranger);
        Self { inner: Some(inner), limit, left: limit, pace, deadline: None, phase: None }
    }

    fn complete(&mut self) {
        if let Some(phase) = self.phase.take() {
            phase.received();
        }
    }

    fn is_too_slow(&mut self, cx: &mut Context<'_>) -> bool {
        let received = self.limit - self.left;
        let (began, sleep) =
            self.deadline.get_or_insert_with(|| (Instant::now(), Box::pin(sleep(Duration::ZERO))));
        let due = *began + self.pace.limit(received);
        if sleep.deadline() != due {
            sleep.as_mut().reset(due);
        }
        sleep.as_mut().poll(cx).is_ready()
    }
}

/// A request answered before its body was read: the rest is read for a moment and thrown away, so that a
/// client that is still sending finds the answer and not a closed connection, or on HTTP/2 a reset stream, which
/// curl takes for a failure whatever its code.
impl Drop for Bounded {
    fn drop(&mut self) {
        let Some(inner) = self.inner.take().filter(|inner| !inner.is_end_stream()) else {
            return;
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(tokio::time::timeout(DRAIN_TIME, drain(inner)));
        }
    }
}

async fn drain(mut body: Incoming) {
    let mut left = DRAIN_LIMIT;
    while let Some(Ok(frame)) = body.frame().await {
        let length = frame.data_ref().map_or(0, |data| data.len() as u64);
        match left.checked_sub(length) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}

impl Body for Bounded {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(inner) = &mut self.inner else { return Poll::Ready(None) };
        match Pin::new(inner).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let length = frame.data_ref().map_or(0, |data| data.len() as u64);
                let before = self.limit - self.left;
                match self.left.checked_sub(length) {
                    Some(left) => self.left = left,
                    None => return Poll::Ready(Some(Err(BodyError::TooLarge(self.limit)))),
                }
                if before <= SMALL_BODY
                    && before + length > SMALL_BODY
                    && let Some(phase) = &self.phase
                {
                    phase.larger();
                }
                if self.is_end_stream() {
                    self.complete();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error.into()))),
            Poll::Ready(None) => {
                self.complete();
                Poll::Ready(None)
            }
            Poll::Pending if self.is_too_slow(cx) => {
                if let Some(phase) = &self.phase {
                    phase.too_slow.store(true, Ordering::Relaxed);
                }
                Poll::Ready(Some(Err(BodyError::TooSlow)))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map(Body::size_hint).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_operators_may_send_more_and_only_where_more_is_needed() {
        let batches = ["/v1/nodes/batch", "/pact.enrollment.EnrollmentService/BatchRegisterNodes"];
        let documents = ["/v1/nodes/n1/config", "/v1/vclusters/ml/config", "/v1/vcluster-defaults"];
        let others =
            ["/v1/nodes", "/v1/nodes/batch/config/x", "/v1/tokens", "/v1/enroll", "//v1/nodes/batch", ""];
        for (paths, most) in
            [(&batches[..], BATCH_LIMIT), (&documents[..], DOCUMENT_LIMIT), (&others[..], BODY_LIMIT)]
        {
            for path in paths {
                assert_eq!(limit(path, || true), most, "{path}");
                assert_eq!(limit(path, || false), BODY_LIMIT, "{path}");
            }
        }
    }
}
