//! Of the machine: whether it recovers, and what follows from that.

use super::super::input::{CallFailure, CandidateOrigin, Now, RecoveryResult};
use super::super::task::sum;
use super::super::{Class, FailureKind, check_revoked_after, recovery, share};
use super::{BELIEVED, HostMachine, RECOVER_CAP};
use crate::names::Span;

/// One part in this many of the grace period is the most that jitter adds to it.
const SPREAD: u64 = 5;

impl HostMachine {
    pub(super) fn recovers(&self, now: Now) -> Option<Class> {
        let fresh = self.offset.is_some_and(|(_, measured)| now.steady < sum(measured, BELIEVED));
        let skewed = self.is_skewed() && (self.connected || fresh);
        let free = !skewed && !self.renew.is_busy() && !self.open.is_busy();
        self.needs_recovery(now).filter(|reason| free && self.has_means(*reason))
    }

    /// Whether there is what such a recovery takes. Hardware brings another certificate, but neither other trust nor other
    /// addresses: where the certificate is good, the machine counts as there, and is refused.
    pub(super) fn has_means(&self, reason: Class) -> bool {
        match reason {
            Class::IdentityRevokedOrFenced => self.attested,
            Class::CertExpired => self.ready || self.attested,
            Class::EndpointUnreachable
            | Class::ServerTlsUntrusted
            | Class::EndpointProfileDrift
            | Class::RecoveryEnrollmentBlocked
            | Class::DiskFull
            | Class::ClockSkew => self.ready,
        }
    }

    /// Why nothing but a recovery leads back.
    pub(super) fn needs_recovery(&self, now: Now) -> Option<Class> {
        if self.candidate.is_some() {
            return None;
        }
        // What is denied stays denied, and no recovery token changes that. A machine may be registered anew.
        if self.revoked {
            return self.attested.then_some(Class::IdentityRevokedOrFenced);
        }
        let failing = match (self.connected, self.renewal) {
            // The connection outlives the certificate that opened it.
            (true, Some(FailureKind::Expired)) => Some(FailureKind::Expired),
            (true, _) => None,
            (false, _) => self.contact,
        };
        let expired = self.is_expired(now);
        let gone = |gone_at: Span| now.steady >= gone_at;
        failing.and_then(|kind| match self.gone_at.map(gone) {
            Some(gone) if recovery::is_away(kind) => recovery::unanswered(expired, gone),
            Some(gone) if kind == FailureKind::UnknownIssuer => {
                recovery::unknown_issuer(expired, gone, self.ready)
            }
            Some(_) | None => recovery::reason(kind, expired),
        })
    }

    /// Every address was asked in vain: the grace period begins, unless it has begun. Hosts that lost the same address
    /// together do not turn to the recovery endpoint together.
    pub(super) fn away(&mut self, now: Now, chance: u32) {
        if self.connected {
            return;
        }
        let jitter = share(Span::from_millis(self.grace.millis() / SPREAD), chance);
        self.gone_at.get_or_insert(sum(now.steady, sum(self.grace, jitter)));
    }

    /// This keeps it from connecting now. Where a recovery is wanted for another reason than before, or failed because nobody
    /// answered and now somebody does, what the last one failed of says nothing about the next, which is tried soon: no
    /// sooner than somebody was asked again.
    pub(super) fn cut_off(&mut self, kind: FailureKind, now: Now) {
        let before = self.needs_recovery(now);
        let unanswered = [self.contact, self.recovery].iter().all(|kind| kind.is_some_and(recovery::is_away));
        self.contact = Some(kind);
        let reason = self.needs_recovery(now);
        let is_new = reason != before || (unanswered && !recovery::is_away(kind));
        if reason.is_some() && is_new {
            self.recovery = None;
            self.recover.backoff.reset();
            self.recover.soon(now.steady);
        }
    }

    pub(super) fn recovered(&mut self, how: RecoveryResult, now: Now, chance: u32) {
        self.recover.ended();
        self.recovery = None;
        self.cured = self.open.is_busy();
        match how {
            RecoveryResult::Issued => self.candidate = Some(CandidateOrigin::Recovery),
            // Should it turn out to be no cure, there is a pause before the next.
            RecoveryResult::Refreshed => self.recover_later(Span::from_millis(0), now, chance),
        }
        self.open.soon(now.steady);
    }

    pub(super) fn not_recovered(&mut self, failure: CallFailure, now: Now, chance: u32) {
        self.recover.ended();
        self.measured(failure, now);
        // It may have connected meanwhile.
        self.recovery = self.needs_recovery(now).map(|_| failure.kind);
        self.recover_later(failure.wait, now, chance);
        if failure.kind == FailureKind::Revoked {
            self.now_revoked(now, chance);
        }
        if self.revoked {
            self.recover.after(now.steady, check_revoked_after(chance));
        }
    }

    pub(super) fn recover_later(&mut self, wait: Span, now: Now, chance: u32) {
        let pause = self.recover.backoff.next(chance, None);
        self.recover.after(now.steady, sum(pause, wait.min(RECOVER_CAP)));
    }
}
