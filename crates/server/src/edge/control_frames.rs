//! HTTP/2 frames that belong to no request: PING, SETTINGS, PRIORITY, WINDOW_UPDATE and whatever is unknown. Each costs its sender a
//! few bytes, and the control plane an answer or a look at every stream; hyper and h2 bound only resets, CONTINUATION and empty
//! or tiny DATA. So they are counted where the decrypted bytes come in, by the nine bytes that begin every frame, and a
//! connection with more of them than its requests and answers explain is ended.

use crate::edge::phase::ConnectionWatch;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// What a client says before its first frame.
const PREFACE: u32 = 24;
const HEADER: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
/// What a stranger and a peer that is known may send at once, and how much more each second.
const STRANGER: FrameAllowance = FrameAllowance { most: 200, a_second: 10 };
const KNOWN: FrameAllowance = FrameAllowance { most: 4000, a_second: 200 };
/// What each request and each part of an answer allows: a client may give back room, ask how long the way is, and change priorities.
const EARNED: u32 = 4;
/// Bytes of payload that cost as much as a frame.
const PAYLOAD: u32 = 1024;
/// New settings are a look at every stream.
const SETTINGS_COST: u32 = 4;

struct FrameAllowance {
    most: u32,
    a_second: u32,
}

fn allowance(watch: &ConnectionWatch) -> FrameAllowance {
    if watch.known.load(Ordering::Relaxed) { KNOWN } else { STRANGER }
}

/// Where one direction of a connection is: within a frame's header, or within what follows it.
struct Frames {
    header: [u8; HEADER],
    known: u8,
    skip: u32,
}

impl Frames {
    fn after(skip: u32) -> Self {
        Self { header: [0; HEADER], known: 0, skip }
    }

    /// Goes on by these bytes; each frame's kind and length is told as soon as its header is complete.
    fn see(&mut self, mut bytes: &[u8], mut told: impl FnMut(u8, u32)) {
        while !bytes.is_empty() {
            let skipped = bytes.len().min(self.skip as usize);
            // Not more than `skip` is.
            self.skip -= u32::try_from(skipped).unwrap_or(self.skip);
            bytes = bytes.get(skipped..).unwrap_or_default();
            let have = usize::from(self.known);
            let more = bytes.len().min(HEADER - have);
            if let (Some(to), Some(from)) = (self.header.get_mut(have..have + more), bytes.get(..more)) {
                to.copy_from_slice(from);
            }
            bytes = bytes.get(more..).unwrap_or_default();
            self.known += u8::try_from(more).unwrap_or(0);
            if usize::from(self.known) == HEADER {
                let [high, middle, low, kind, ..] = self.header;
                self.skip = u32::from_be_bytes([0, high, middle, low]);
                self.known = 0;
                told(kind, self.skip);
            }
        }
    }
}

/// What a frame of the client costs; none if it is part of a request.
fn cost(kind: u8, length: u32) -> Option<u32> {
    match kind {
        DATA if length > 0 => None,
        HEADERS => None,
        SETTINGS => Some(SETTINGS_COST + length / PAYLOAD),
        _ => Some(1 + length / PAYLOAD),
    }
}

/// A connection whose control frames are counted.
pub struct ControlFrames<T> {
    inner: T,
    watch: Arc<ConnectionWatch>,
    received: Frames,
    sent: Frames,
    /// What may still come.
    left: u32,
    /// When the passing of time was last counted.
    since: Instant,
}

impl<T> ControlFrames<T> {
    pub fn new(inner: T, watch: Arc<ConnectionWatch>) -> Self {
        let left = allowance(&watch).most;
        let (received, sent) = (Frames::after(PREFACE), Frames::after(0));
        Self { inner, watch, received, sent, left, since: Instant::now() }
    }

    /// Whether what has come is within what may.
    fn receive(&mut self, bytes: &[u8]) -> bool {
        let (mut spent, mut earned) = (0u32, 0u32);
        self.received.see(bytes, |kind, length| match cost(kind, length) {
            Some(cost) => spent = spent.saturating_add(cost),
            None if kind == HEADERS => earned = earned.saturating_add(EARNED),
            None => {}
        });
        self.earn(earned);
        if spent > self.left {
            self.count_time();
        }
        let within = spent <= self.left;
        self.left = self.left.saturating_sub(spent);
        within
    }

    fn send(&mut self, bytes: &[u8]) {
        let mut earned = 0u32;
        self.sent.see(bytes, |kind, length| {
            if kind == DATA || kind == HEADERS {
                earned = earned.saturating_add(EARNED + length / PAYLOAD);
            }
        });
        self.earn(earned);
    }

    fn earn(&mut self, more: u32) {
        if more > 0 {
            self.left = self.left.saturating_add(more).min(allowance(&self.watch).most.max(self.left));
        }
    }

    /// Only looked at when it matters: an idle connection asks no clock.
    fn count_time(&mut self) {
        let allowance = allowance(&self.watch);
        let millis = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let more = millis.saturating_mul(allowance.a_second.into()) / 1000;
        if more > 0 {
            let more = u32::try_from(more).unwrap_or(u32::MAX);
            self.left = self.left.saturating_add(more).min(allowance.most);
            self.since += Duration::from_millis(millis);
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for ControlFrames<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let poll = Pin::new(&mut self.inner).poll_read(cx, buf);
        let new = buf.filled().get(before..).unwrap_or_default();
        if !new.is_empty() && !self.receive(new) {
            // What came is not looked at any more.
            buf.set_filled(before);
            let why = "more HTTP/2 control frames than its requests explain";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, why)));
        }
        poll
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for ControlFrames<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.inner).poll_write(cx, buf);
        if let Poll::Ready(Ok(written)) = &poll {
            self.send(buf.get(..*written).unwrap_or_default());
        }
        poll
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        if let Poll::Ready(Ok(written)) = &poll {
            let mut left = *written;
            for buf in bufs {
                let part = left.min(buf.len());
                self.send(buf.get(..part).unwrap_or_default());
                left -= part;
            }
        }
        poll
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

#[cfg(test)]
mod tests {
    use super::*;

    const PING: u8 = 6;
    const WINDOW_UPDATE: u8 = 8;

    fn frame(kind: u8, length: usize) -> Vec<u8> {
        let [_, _, _, _, _, high, middle, low] = (length as u64).to_be_bytes();
        let mut bytes = vec![high, middle, low, kind, 0, 0, 0, 0, 0];
        bytes.resize(HEADER + length, 7);
        bytes
    }

    fn connection(known: bool) -> ControlFrames<()> {
        let watch = ConnectionWatch::new(None);
        watch.known.store(known, Ordering::Relaxed);
        let mut frames = ControlFrames::new((), watch);
        assert!(frames.receive(&[b'P'; PREFACE as usize]));
        frames
    }

    #[test]
    fn frames_are_told_whatever_the_pieces_they_come_in() {
        let frames =
            [(SETTINGS, 18), (PING, 8), (HEADERS, 300), (DATA, 0), (200, 16_384), (WINDOW_UPDATE, 4)];
        let mut bytes = vec![b'P'; PREFACE as usize];
        frames.iter().for_each(|(kind, length)| bytes.extend(frame(*kind, *length)));
        for size in [1, 2, 3, 8, 9, 10, 25, 1000, bytes.len()] {
            let (mut seen, mut told) = (Frames::after(PREFACE), Vec::new());
            bytes
                .chunks(size)
                .for_each(|piece| seen.see(piece, |kind, length| told.push((kind, length as usize))));
            assert_eq!(told, frames, "{size} bytes at a time");
        }
    }

    #[tokio::test]
    async fn a_flood_of_any_control_frame_ends_a_strangers_connection_soon() {
        for (kind, length) in
            [(PING, 8), (SETTINGS, 0), (2, 5), (WINDOW_UPDATE, 4), (DATA, 0), (9, 0), (200, 16_384)]
        {
            let mut frames = connection(false);
            let piece = frame(kind, length);
            let accepted = (0..1000).take_while(|_| frames.receive(&piece)).count();
            assert!(accepted <= 201, "{accepted} of kind {kind}");
            let mut frames = connection(true);
            let accepted = (0..100_000).take_while(|_| frames.receive(&piece)).count();
            assert!(accepted < 20_000, "{accepted} of kind {kind} from one who is known");
        }
    }

    #[tokio::test]
    async fn what_belongs_to_requests_and_answers_is_never_too_much() {
        let mut frames = connection(false);
        for _ in 0..10_000 {
            assert!(frames.receive(&frame(HEADERS, 40)) && frames.receive(&frame(PING, 8)));
            frames.send(&frame(HEADERS, 30));
            // A client that gives back the room of every frame, twice, and measures the way each time.
            for _ in 0..3 {
                frames.send(&frame(DATA, 50));
                let back = [frame(WINDOW_UPDATE, 4), frame(WINDOW_UPDATE, 4), frame(PING, 8)].concat();
                assert!(frames.receive(&back));
            }
        }
        // An upload of any length, and the answers to the control plane's own PINGs for a day.
        for _ in 0..10_000 {
            assert!(frames.receive(&frame(DATA, 1000)));
        }
    }

    #[tokio::test]
    async fn an_idle_stream_lasts() {
        let mut frames = connection(false);
        for _ in 0..10_000 {
            frames.since = Instant::now().checked_sub(Duration::from_secs(10)).expect("a time of before");
            assert!(frames.receive(&[frame(PING, 8), frame(PING, 8), frame(WINDOW_UPDATE, 4)].concat()));
        }
    }
}
