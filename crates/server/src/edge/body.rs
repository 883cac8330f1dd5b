//! Request bodies, bounded in size and time.

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Sleep, sleep};

pub const BODY_LIMIT: u64 = 64 * 1024;
const TIME_LIMIT: Duration = Duration::from_secs(30);

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
pub struct Bounded<B> {
    inner: B,
    left: u64,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<B: Body> Bounded<B> {
    pub fn new(inner: B) -> Self {
        Self { inner, left: BODY_LIMIT, deadline: None }
    }
}

impl<B> Body for Bounded<B>
where
    B: Body<Data = Bytes, Error = hyper::Error> + Unpin,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match Pin::new(&mut self.inner).poll_frame(cx) {
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
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
