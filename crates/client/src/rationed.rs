//! A connection to a server that is somebody else's, of which so much is read and for so long.
//!
//! hyper reads the heads of informational answers (`100 Continue`) one after the other without giving the thread back, for as long
//! as the socket has any: a server that sends them without end would keep a thread from everything else, and from the timer that
//! ends the request.

use std::io::{Error, ErrorKind, Result};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// After so much, others get the thread.
const SLICE: usize = 64 * 1024;

pub(crate) struct RationedStream<S> {
    inner: S,
    /// Bytes that may still be read.
    left: usize,
    /// Bytes that were read since the thread was given back.
    slice: usize,
    deadline: Instant,
}

impl<S> RationedStream<S> {
    pub(crate) fn new(inner: S, bytes: usize, deadline: Instant) -> Self {
        Self { inner, left: bytes, slice: 0, deadline }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for RationedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        if Instant::now() >= self.deadline {
            return Poll::Ready(Err(ErrorKind::TimedOut.into()));
        }
        if self.left == 0 {
            return Poll::Ready(Err(Error::new(
                ErrorKind::InvalidData,
                "the server sends more than an answer",
            )));
        }
        if self.slice >= SLICE {
            self.slice = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let room = self.left.min(SLICE).min(buffer.remaining());
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(room));
        std::task::ready!(Pin::new(&mut self.inner).poll_read(cx, &mut part))?;
        let count = part.filled().len();
        buffer.advance(count);
        self.left = self.left.saturating_sub(count);
        self.slice = self.slice.saturating_add(count);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for RationedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt as _, repeat};

    fn endless(bytes: usize, deadline: Instant) -> RationedStream<tokio::io::Repeat> {
        RationedStream::new(repeat(b'x'), bytes, deadline)
    }

    #[tokio::test]
    async fn no_more_is_read_than_the_ration() {
        let mut read = Vec::new();
        let later = Instant::now() + Duration::from_secs(60);
        let ended = endless(3 * SLICE + 5, later).read_to_end(&mut read).await;
        assert_eq!(ended.map_err(|error| error.kind()), Err(ErrorKind::InvalidData));
        assert_eq!(read.len(), 3 * SLICE + 5);
    }

    #[tokio::test]
    async fn nothing_is_read_after_the_deadline() {
        let ended = endless(10, Instant::now()).read_u8().await;
        assert_eq!(ended.map_err(|error| error.kind()), Err(ErrorKind::TimedOut));
    }

    #[tokio::test]
    async fn whoever_waits_gets_a_turn_in_between() {
        let later = Instant::now() + Duration::from_secs(60);
        let mut stream = endless(usize::MAX, later);
        let endless = async { while stream.read_u8().await.is_ok() {} };
        tokio::select! {
            biased;
            () = endless => panic!("it has an end"),
            () = tokio::task::yield_now() => {}
        }
    }
}
