//! The way of one stream through a feed. It keeps where the host is, and no messages: the next one is taken from the feed when
//! the connection has room for it, so a host that reads slowly costs nothing but the time it takes.

use super::feed::{Feed, NextFrame};
use super::frames::WholeSet;
use bytes::Bytes;
use futures::task::AtomicWaker;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long a host may take for the next message.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// What all streams have sent, for the metrics.
#[derive(Default)]
pub struct OverlayTraffic {
    pub frames: AtomicU64,
    pub bytes: AtomicU64,
}

pub struct OverlayTap {
    place: Mutex<TapPlace>,
    waker: AtomicWaker,
    traffic: Arc<OverlayTraffic>,
    /// Told when the host does not read.
    pub stalled: Notify,
}

#[derive(Default)]
struct TapPlace {
    /// None before the host's claim is on record, and of a host without peers.
    feed: Option<Arc<Feed>>,
    /// The revision that it knows when it has read what was sent.
    known: u64,
    /// The whole set that is being sent, and which piece of it is next.
    whole: Option<(Arc<WholeSet>, usize)>,
    /// Since when something waits that it has not taken.
    waiting: Option<Instant>,
}

impl OverlayTap {
    pub fn new(traffic: Arc<OverlayTraffic>) -> Arc<Self> {
        Arc::new(Self { place: Mutex::default(), waker: AtomicWaker::new(), traffic, stalled: Notify::new() })
    }

    fn place(&self) -> MutexGuard<'_, TapPlace> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn wake(&self) {
        self.waker.wake();
    }

    /// From now on the host follows this feed: from what it knows, or from the whole set.
    pub fn follow(self: &Arc<Self>, feed: &Arc<Feed>, known: Option<u64>) {
        let whole = match (known, feed.now().whole()) {
            (None, NextFrame::Whole(whole)) => Some((whole, 0)),
            _ => None,
        };
        let known = known.unwrap_or_default();
        *self.place() = TapPlace { feed: Some(feed.clone()), known, whole, waiting: None };
        feed.attach(self);
        self.wake();
    }

    /// From now on the host has no peers.
    pub fn empty(&self) {
        let whole = Some((Arc::new(WholeSet::none()), 0));
        *self.place() = TapPlace { feed: None, known: 0, whole, waiting: None };
        self.wake();
    }

    pub fn follows(&self, feed: &Feed) -> bool {
        self.place().feed.as_ref().is_some_and(|own| std::ptr::eq(own.as_ref(), feed))
    }

    /// Whether it has been sent everything.
    pub fn is_current(&self) -> bool {
        self.place().next().is_none()
    }

    /// The revision that was sent last, and to how many peers that comes.
    pub fn told(&self) -> Option<(u64, u64)> {
        let place = self.place();
        let feed = place.feed.clone()?;
        let known = place.known;
        drop(place);
        let members = feed.now().members(&feed.group) as u64;
        // The host itself is among them.
        Some((known, members.saturating_sub(1)))
    }

    /// Ends the stream of a host that has let something wait for too long.
    pub fn look(&self, now: Instant) {
        let mut place = self.place();
        if place.next().is_none() {
            place.waiting = None;
            return;
        }
        let since = *place.waiting.get_or_insert(now);
        drop(place);
        if since + PATIENCE <= now {
            self.stalled.notify_one();
        }
    }

    /// The next message, once the connection has room for it.
    pub fn poll_frame(&self, cx: &mut Context<'_>) -> Poll<Bytes> {
        // Before the look, so that nothing falls in between.
        self.waker.register(cx.waker());
        match self.place().take() {
            Some(bytes) => {
                self.traffic.frames.fetch_add(1, Ordering::Relaxed);
                self.traffic.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                Poll::Ready(bytes)
            }
            None => Poll::Pending,
        }
    }
}

impl TapPlace {
    fn next(&self) -> Option<NextFrame> {
        if let Some((whole, _)) = &self.whole {
            return Some(NextFrame::Whole(whole.clone()));
        }
        self.feed.as_ref()?.now().behind(self.known)
    }

    fn take(&mut self) -> Option<Bytes> {
        let next = self.next()?;
        self.waiting = None;
        match next {
            NextFrame::Change { revision, bytes } => {
                self.known = revision;
                Some(bytes)
            }
            NextFrame::Whole(whole) => {
                let piece = self.whole.as_ref().map_or(0, |(_, piece)| *piece);
                let bytes = whole.pieces.get(piece)?.clone();
                let more = piece + 1 < whole.pieces.len();
                if !more {
                    self.known = whole.revision;
                }
                self.whole = more.then_some((whole, piece + 1));
                Some(bytes)
            }
        }
    }
}
