//! A connection that remembers what broke it.
//!
//! In TLS 1.3 a refused client certificate is the client's first read, after its handshake has succeeded. HTTP
//! libraries above turn that error into text, or meet the broken pipe first; what they hide is kept here.

use crate::unreachable::Unreachable;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The first thing that went wrong on a connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cause(Arc<OnceLock<Unreachable>>);

impl Cause {
    pub(crate) fn get(&self) -> Option<Unreachable> {
        self.0.get().cloned()
    }
}

#[derive(Debug)]
pub(crate) struct Watched<S> {
    inner: S,
    cause: Cause,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Watched<S> {
    pub(crate) fn new(inner: S) -> (Self, Cause) {
        let cause = Cause::default();
        (Self { inner, cause: cause.clone() }, cause)
    }

    fn record<T>(&self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = &result {
            // Only the first counts: what follows is its consequence.
            self.cause.0.get_or_init(|| Unreachable::from_io(error));
        }
        result
    }

    /// A failed write may be the consequence of an alert that lies unread: look before judging.
    fn keep_write<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if matches!(result, Poll::Ready(Err(_))) {
            let mut scratch = [0; 1];
            let read = Pin::new(&mut self.inner).poll_read(cx, &mut ReadBuf::new(&mut scratch));
            let _ = self.record(read);
        }
        self.record(result)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.inner).poll_read(cx, buffer);
        if matches!(result, Poll::Ready(Ok(()))) && buffer.filled().len() == before && buffer.remaining() > 0
        {
            // Nobody asks for the cause when the answer was complete.
            self.cause.0.get_or_init(|| Unreachable::Closed);
        }
        self.record(result)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.keep_write(cx, result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.inner).poll_flush(cx);
        self.keep_write(cx, result)
    }

    /// Its failure says nothing: the other side may close first.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
