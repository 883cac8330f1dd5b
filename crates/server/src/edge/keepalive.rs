//! Whether the peer of an HTTP/2 connection is still there, although it says nothing: it answers PINGs, and a stopped process
//! does not, while its kernel goes on acknowledging TCP.
//!
//! hyper sends a PING when no frame of a request has come in for the interval, and ends the connection when the answer
//! does not come. The sign of life is the last time that bytes were read, so neither a PING nor its answer is seen here.

use lifecycle::names::{Span, Timestamp};
use lifecycle::registry::Policy;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// The longest time without a PING on a connection where nothing is read.
pub const LONGEST: Duration = Duration::from_secs(30);
/// How long the answer to a PING may take.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// The PINGs of one connection, and when something was last read from it.
#[derive(Debug)]
pub struct Keepalive {
    /// Settled when the connection begins: a policy that changes later holds for the next one.
    interval: Duration,
    begun: Instant,
    /// In milliseconds since it began.
    last_read: AtomicU64,
    /// Its peer answers PINGs and reads nothing of a stream: it is closed at the next one.
    given_up: AtomicBool,
}

impl Keepalive {
    pub fn new(policy: &Policy) -> Arc<Self> {
        let interval = LONGEST.min(Duration::from_millis(policy.heartbeat_interval().millis()));
        Arc::new(Self {
            interval,
            begun: Instant::now(),
            last_read: AtomicU64::new(0),
            given_up: AtomicBool::new(false),
        })
    }

    /// After how long without a request's frame a PING is sent.
    pub fn pings(&self) -> Duration {
        self.interval
    }

    /// How long a living peer may be silent at most, by the PINGs that it gets. Longer than the grace period only if
    /// that was shortened after the connection began.
    pub fn longest_silence(&self) -> Span {
        Span::from_millis(millis(self.interval).saturating_mul(2))
    }

    /// When something was last read.
    pub fn last_read(&self, now: Timestamp) -> Timestamp {
        let silent = self.passed().saturating_sub(self.last_read.load(Ordering::Relaxed));
        Timestamp::from_millis(now.millis().saturating_sub(silent))
    }

    /// Ends the connection: what its peer does not read cannot be taken back from HTTP/2 otherwise.
    pub fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }

    fn passed(&self) -> u64 {
        millis(self.begun.elapsed())
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// A stream that notes when something is read from it.
pub struct Heard<T> {
    inner: T,
    keepalive: Option<Arc<Keepalive>>,
}

impl<T> Heard<T> {
    pub fn new(inner: T, keepalive: Option<Arc<Keepalive>>) -> Self {
        Self { inner, keepalive }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Heard<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.keepalive.as_ref().is_some_and(|keepalive| keepalive.given_up.load(Ordering::Relaxed)) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let before = buf.filled().len();
        let poll = Pin::new(&mut self.inner).poll_read(cx, buf);
        if let Some(keepalive) = &self.keepalive
            && buf.filled().len() > before
        {
            keepalive.last_read.store(keepalive.passed(), Ordering::Relaxed);
        }
        poll
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Heard<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
