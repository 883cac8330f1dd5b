//! One kind of call: whether it is under way, and when it may be made again.

use super::Backoff;
use crate::names::Span;

/// Between two calls of a kind, whatever happens.
const GAP: Span = Span::from_secs(1);

#[derive(Debug, Clone)]
pub(super) struct Task {
    busy: bool,
    begun: Option<Span>,
    at: Span,
    pub(super) backoff: Backoff,
}

impl Task {
    pub(super) const fn new(cap: Span) -> Self {
        Self { busy: false, begun: None, at: Span::from_millis(0), backoff: Backoff::new(cap) }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.busy
    }

    /// When it may next be made; nothing while it is under way.
    pub(super) fn at(&self) -> Option<Span> {
        (!self.busy).then_some(self.at)
    }

    pub(super) fn is_due(&self, now: Span) -> bool {
        self.at().is_some_and(|at| now >= at)
    }

    pub(super) fn begin(&mut self, now: Span) {
        (self.busy, self.begun) = (true, Some(now));
        self.soon(now);
    }

    pub(super) fn ended(&mut self) {
        self.busy = false;
    }

    /// As soon as the gap allows.
    pub(super) fn soon(&mut self, now: Span) {
        self.at = now;
        self.keep_gap();
    }

    pub(super) fn after(&mut self, now: Span, pause: Span) {
        self.at = sum(now, pause);
        self.keep_gap();
    }

    fn keep_gap(&mut self) {
        if let Some(begun) = self.begun {
            self.at = self.at.max(sum(begun, GAP));
        }
    }
}

pub(super) fn sum(one: Span, other: Span) -> Span {
    Span::from_millis(one.millis().saturating_add(other.millis()))
}
