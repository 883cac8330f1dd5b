//! Request bodies, bounded in size and time.

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Sleep, sleep};

pub const BODY_LIMIT: u64 = 64 * 1024;
const TIME_LIMIT: Duration = Duration::from_secs(30);
const DRAIN_TIME: Duration = Duration::from_secs(2);
const DRAIN_LIMIT: u64 = 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("the body is larger than 64 KiB")]
    TooLarge,
    #[error("the body took longer than 30 s")]
    TooSlow,
    #[error(transparent)]
    Broken(#[from] hyper::Error),
}

/// A body that ends with an error when it gets too long or too slow. The clock starts at the first wait.
pub struct Bounded {
    inner: Option<Incoming>,
    left: u64,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl Bounded {
    pub fn new(inner: Incoming) -> Self {
        Self { inner: Some(inner), left: BODY_LIMIT, deadline: None }
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
                match self.left.checked_sub(length) {
                    Some(left) => self.left = left,
                    None => return Poll::Ready(Some(Err(BodyError::TooLarge))),
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error.into()))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => {
                let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(TIME_LIMIT)));
                match deadline.as_mut().poll(cx) {
                    Poll::Ready(()) => Poll::Ready(Some(Err(BodyError::TooSlow))),
                    Poll::Pending => Poll::Pending,
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map(Body::size_hint).unwrap_or_default()
    }
}
