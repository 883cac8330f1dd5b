//! The host's state machine: from what the daemon learns to what it does next and what is wrong.
//!
//! It never gives up and never spins. Whatever fails has a class before it is tried again, and everything from the
//! first failure until all is well has one correlation id.

mod recovering;

use super::adopts_candidate;
use super::input::{CallFailure, CandidateOrigin, Chance, Condition, FollowUp, HostAction, Input, Life, Now};
use super::task::{Task, sum};
use super::{Class, FailureKind, check_revoked_after, classify, discards_candidate, recovery, retry_within};
use crate::names::Span;

const OPEN_CAP: Span = Span::from_minutes(1);
/// With a certificate that has ended there is no hurry to be turned away again.
const EXPIRED_CAP: Span = Span::from_minutes(5);
/// Who is not trusted may be gone again any moment, such as a portal that wants somebody to log in.
const UNTRUSTED_CAP: Span = Span::from_secs(30);
const RENEW_CAP: Span = Span::from_minutes(5);
const RECOVER_CAP: Span = Span::from_minutes(5);
/// The clock may be set while we sleep: look at it at least this often.
const NAP: Span = Span::from_minutes(1);
/// How far the clocks may be apart until the control plane says otherwise.
pub const TOLERANCE: Span = Span::from_minutes(5);
/// How long a host may be silent until the control plane says otherwise.
pub const GRACE: Span = Span::from_minutes(5);
/// A measured offset that nobody has measured again is believed this long: the clock may have been set.
const BELIEVED: Span = Span::from_minutes(5);
/// A connection that stood this long counts as a success.
const STEADY: Span = Span::from_secs(30);

#[derive(Debug, Clone)]
pub struct HostMachine {
    life: Life,
    candidate: Option<CandidateOrigin>,
    connected: bool,
    /// Whether connecting has ended once, well or not: before that nothing is known of the clock.
    asked: bool,
    revoked: bool,
    full: bool,
    drift: bool,
    ready: bool,
    /// Whether it may be let in again by its hardware, where its certificate is lost and there is no recovery token.
    attested: bool,
    offset: Option<(i64, Span)>,
    tolerance: Span,
    grace: Span,
    /// When its addresses are taken for gone, on the steady clock, if nobody answers until then. Known once all were asked
    /// in vain.
    gone_at: Option<Span>,
    /// What keeps it from connecting, from renewing, from recovering.
    contact: Option<FailureKind>,
    renewal: Option<FailureKind>,
    /// Renewing is not allowed, as far as is known: it is asked for again on another connection, by order, or with another certificate.
    not_allowed: bool,
    recovery: Option<FailureKind>,
    open: Task,
    renew: Task,
    recover: Task,
    /// Whether connecting is under way as the certificate to be proven.
    proving: bool,
    /// Whether a recovery has ended well since that was begun, so that it was begun with what is no longer trusted.
    cured: bool,
    opened_at: Span,
    correlation_id: String,
    condition: Option<Condition>,
}

impl HostMachine {
    pub fn new(life: Life, correlation_id: String) -> Self {
        Self {
            life,
            candidate: None,
            connected: false,
            asked: false,
            revoked: false,
            full: false,
            drift: false,
            ready: false,
            attested: false,
            offset: None,
            tolerance: TOLERANCE,
            grace: GRACE,
            gone_at: None,
            contact: None,
            renewal: None,
            not_allowed: false,
            recovery: None,
            open: Task::new(OPEN_CAP),
            renew: Task::new(RENEW_CAP),
            recover: Task::new(RECOVER_CAP),
            proving: false,
            cured: false,
            opened_at: Span::from_millis(0),
            correlation_id,
            condition: None,
        }
    }

    pub fn condition(&self) -> Option<Condition> {
        self.condition
    }

    /// Whether it is kept from connecting because no control plane knows the issuer of its certificate.
    pub fn is_issuer_unknown(&self) -> bool {
        !self.connected && self.contact == Some(FailureKind::UnknownIssuer)
    }

    /// How long it waits before it takes the addresses, or the issuer, for gone and recovers, if it has what that takes.
    pub fn recovers_in(&self, now: Now) -> Option<Span> {
        let left = |at: Span| Span::from_millis(at.millis().saturating_sub(now.steady.millis()));
        self.gone_at.filter(|_| self.ready).map(left)
    }

    /// How long it waits before it connects, where it is to connect and is not about to already.
    pub fn opens_in(&self, now: Now) -> Option<Span> {
        self.opens_at().map(|at| Span::from_millis(at.millis().saturating_sub(now.steady.millis())))
    }

    /// The id that goes with every call, and finds them together in the control plane's records.
    pub fn correlation_id(&self) -> &str {
        &self.correlation_id
    }

    pub fn is_revoked(&self) -> bool {
        self.revoked
    }

    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// Whether a write failed for want of room and none has succeeded since.
    pub fn is_disk_full(&self) -> bool {
        self.full
    }

    pub fn offset(&self) -> Option<i64> {
        self.offset.map(|(offset, _)| offset)
    }

    pub fn tolerance(&self) -> Span {
        self.tolerance
    }

    pub fn is_skewed(&self) -> bool {
        self.offset.is_some_and(|(offset, _)| offset.unsigned_abs() > self.tolerance.millis())
    }

    /// What is to be done now. Each act is under way until its end is learned.
    pub fn due(&mut self, now: Now) -> Vec<HostAction> {
        self.settle(now);
        let mut acts = Vec::new();
        if let Some(class) = self.recovers(now)
            && self.recover.is_due(now.steady)
        {
            self.recover.begin(now.steady);
            acts.push(HostAction::Recover(class));
        }
        if self.renews(now) && self.renew.is_due(now.steady) && now.wall >= self.life.renew_at {
            self.renew.begin(now.steady);
            acts.push(HostAction::Renew);
        }
        if self.opens() && self.open.is_due(now.steady) {
            self.open.begin(now.steady);
            (self.proving, self.cured) = (self.candidate.is_some(), false);
            acts.push(HostAction::Open);
        }
        acts
    }

    /// When there may be something to do, on the steady clock.
    pub fn wake(&self, now: Now) -> Span {
        let renew = || {
            let left = self.life.renew_at.since(now.wall);
            self.renew.at().map(|at| at.max(sum(now.steady, left)))
        };
        let moments = [
            self.opens_at(),
            self.renews(now).then(renew).flatten(),
            self.recovers(now).and_then(|_| self.recover.at()),
            self.gone_at.filter(|at| *at > now.steady),
        ];
        moments.into_iter().flatten().fold(sum(now.steady, NAP), Span::min).max(now.steady)
    }

    fn opens_at(&self) -> Option<Span> {
        self.opens().then(|| self.open.at()).flatten()
    }

    fn opens(&self) -> bool {
        // Whether they are trusted again only connecting tells, however long a recovery takes.
        let waits = self.recover.is_busy() && self.contact != Some(FailureKind::Untrusted);
        (!self.connected || self.candidate.is_some()) && !waits
    }

    /// One renewal at a time, none while its fruit waits to be proven, and none by a wrong clock. A certificate
    /// that is not taken renews nothing; nor does one that has ended, unless it is only this clock that says so.
    fn renews(&self, now: Now) -> bool {
        let idle = self.candidate.is_none() && !self.recover.is_busy();
        let taken = self.contact.is_none_or(|kind| recovery::reason(kind, false).is_none());
        let useful = self.connected || (taken && !self.is_expired(now));
        idle && useful && self.asked && !self.not_allowed && !self.revoked && !self.is_skewed()
    }

    fn is_expired(&self, now: Now) -> bool {
        now.wall > self.life.not_after
    }

    pub fn learn(&mut self, input: Input, now: Now, chance: Chance) -> FollowUp {
        let then = self.take(input, now, chance.number);
        self.settle(now);
        let done = matches!(input, Input::Opened(Ok(())));
        if done && self.condition.is_none() {
            self.correlation_id = chance.id;
        }
        then
    }

    fn take(&mut self, input: Input, now: Now, chance: u32) -> FollowUp {
        match input {
            Input::Loaded(life) => {
                (self.life, self.candidate, self.renewal, self.recovery) = (life, None, None, None);
                self.not_allowed = false;
                self.renew.backoff.reset();
                // A pause after failures was for the certificate before, and may be longer than this one lives.
                self.renew.soon(now.steady);
                self.recover.backoff.reset();
            }
            Input::CandidateFound(origin) => {
                self.candidate = Some(origin);
                self.open.soon(now.steady);
            }
            Input::Opened(Ok(())) => self.opened(now),
            Input::Opened(Err(failure)) => return self.not_opened(failure, now, chance),
            Input::Disconnected(failure) => return self.lost(failure, now, chance),
            Input::Renewed(Ok(())) => {
                self.renew.ended();
                return self.take(Input::CandidateFound(CandidateOrigin::Renewal), now, chance);
            }
            Input::Renewed(Err(failure)) => return self.not_renewed(failure, now, chance),
            Input::RenewalNotAllowed => {
                self.renew.ended();
                self.renew.soon(now.steady);
                self.not_allowed = true;
            }
            Input::Recovered(Ok(how)) => self.recovered(how, now, chance),
            Input::Recovered(Err(failure)) => self.not_recovered(failure, now, chance),
            Input::Clock(offset) => self.offset = Some((offset, now.steady)),
            Input::Tolerance(tolerance) => self.tolerance = tolerance,
            Input::Grace(grace) => self.grace = grace,
            Input::DiskFull(full) => self.full = full,
            Input::Drift(drift) => self.drift = drift,
            Input::RecoveryReady(ready) => self.ready = ready,
            Input::HardwareReady(attested) => self.attested = attested,
            Input::RenewalOrdered => {
                (self.life.renew_at, self.not_allowed) = (self.life.renew_at.min(now.wall), false);
            }
            Input::Revoked => {
                self.revoked = true;
                self.recover.after(now.steady, check_revoked_after(chance));
            }
        }
        FollowUp::Nothing
    }

    fn opened(&mut self, now: Now) {
        self.open.ended();
        (self.connected, self.asked, self.revoked) = (true, true, false);
        self.not_allowed = false;
        (self.contact, self.recovery, self.gone_at) = (None, None, None);
        self.opened_at = now.steady;
        self.recover.backoff.reset();
    }

    fn not_opened(&mut self, failure: CallFailure, now: Now, chance: u32) -> FollowUp {
        self.open.ended();
        self.asked = true;
        self.measured(failure, now);
        self.away(now, chance);
        let kind = failure.kind;
        if self.proving && self.candidate.is_some() {
            if !discards_candidate(kind) {
                self.contact.get_or_insert(kind);
                self.stay_away(failure, now, chance);
                return FollowUp::Nothing;
            }
            self.drop_candidate(now, chance);
            return FollowUp::DropCandidate;
        }
        if std::mem::take(&mut self.cured) && kind == FailureKind::Untrusted {
            self.contact = Some(FailureKind::Transient);
            self.open.soon(now.steady);
            return FollowUp::Nothing;
        }
        self.cut_off(kind, now);
        if kind == FailureKind::Revoked {
            return self.now_revoked(now, chance);
        }
        self.stay_away(failure, now, chance);
        self.find_candidate(kind)
    }

    fn lost(&mut self, failure: CallFailure, now: Now, chance: u32) -> FollowUp {
        if std::mem::take(&mut self.connected) && now.steady >= sum(self.opened_at, STEADY) {
            self.open.backoff.reset();
        }
        self.measured(failure, now);
        self.cut_off(failure.kind, now);
        if failure.kind == FailureKind::Revoked {
            return self.now_revoked(now, chance);
        }
        if self.candidate.is_some() {
            return FollowUp::Nothing;
        }
        self.stay_away(failure, now, chance);
        self.find_candidate(failure.kind)
    }

    fn not_renewed(&mut self, failure: CallFailure, now: Now, chance: u32) -> FollowUp {
        self.renew.ended();
        self.measured(failure, now);
        self.renewal = Some(failure.kind);
        self.renew_later(failure.wait, now, chance);
        if failure.kind == FailureKind::Revoked {
            self.contact = Some(failure.kind);
            return self.now_revoked(now, chance);
        }
        if !self.connected && recovery::reason(failure.kind, false) == Some(Class::CertExpired) {
            self.cut_off(failure.kind, now);
        }
        self.find_candidate(failure.kind)
    }

    fn find_candidate(&self, kind: FailureKind) -> FollowUp {
        let look = adopts_candidate(kind) && self.candidate.is_none();
        if look { FollowUp::FindCandidate } else { FollowUp::Nothing }
    }

    /// The certificate in use, if it is still good for anything, stays.
    fn drop_candidate(&mut self, now: Now, chance: u32) {
        match self.candidate.take() {
            Some(CandidateOrigin::Recovery) => {
                self.recovery = Some(FailureKind::Refused);
                self.recover_later(Span::from_millis(0), now, chance);
            }
            Some(CandidateOrigin::Renewal) | None => {
                self.renewal = Some(FailureKind::Refused);
                self.renew_later(Span::from_millis(0), now, chance);
            }
        }
        self.open.soon(now.steady);
    }

    fn now_revoked(&mut self, now: Now, chance: u32) -> FollowUp {
        if !self.revoked {
            self.recover.after(now.steady, check_revoked_after(chance));
        }
        (self.revoked, self.connected) = (true, false);
        self.open.after(now.steady, check_revoked_after(chance));
        FollowUp::Nothing
    }

    fn measured(&mut self, failure: CallFailure, now: Now) {
        self.offset = failure.clock.map(|offset| (offset, now.steady)).or(self.offset);
    }

    fn stay_away(&mut self, failure: CallFailure, now: Now, chance: u32) {
        let cap = match failure.kind {
            FailureKind::Expired => EXPIRED_CAP,
            FailureKind::Untrusted => UNTRUSTED_CAP,
            FailureKind::Transient
            | FailureKind::WrongServer
            | FailureKind::ClockSkew
            | FailureKind::UnknownIssuer
            | FailureKind::Revoked
            | FailureKind::Unacceptable
            | FailureKind::Superseded
            | FailureKind::Refused
            | FailureKind::DiskFull => OPEN_CAP,
        };
        self.open.backoff.set_cap(cap);
        let pause = self.open.backoff.next(chance, None);
        self.open.after(now.steady, sum(pause, failure.wait.min(RENEW_CAP)));
    }

    fn renew_later(&mut self, wait: Span, now: Now, chance: u32) {
        let pause = self.renew.backoff.next(chance, retry_within(now.wall, self.life.not_after));
        self.renew.after(now.steady, sum(pause, wait.min(RENEW_CAP)));
    }

    /// The word for the whole, and since when.
    fn settle(&mut self, now: Now) {
        self.condition = self.class(now).map(|class| {
            let since = self.condition.map_or(now.wall, |condition| condition.since);
            Condition { class, since }
        });
    }

    fn class(&self, now: Now) -> Option<Class> {
        if self.revoked {
            return Some(Class::IdentityRevokedOrFenced);
        }
        if self.full {
            return Some(Class::DiskFull);
        }
        // A renewal that went wrong by a clock that was wrong is not due any more; and one that a control plane refuses
        // while it is there says nothing of the way to it.
        let due = now.wall >= self.life.renew_at;
        let renewal = self.renewal.filter(|kind| due && !(self.connected && *kind == FailureKind::Refused));
        let Some(kind) = self.contact.or(renewal) else {
            let drift = self.drift.then_some(Class::EndpointProfileDrift);
            return if self.is_skewed() { Some(Class::ClockSkew) } else { drift };
        };
        let class = classify(kind, self.is_expired(now), self.is_skewed());
        match (self.needs_recovery(now), self.recovery) {
            (None, _) => Some(class),
            // Whatever a recovery came to, what is wrong is that nobody answers.
            _ if recovery::is_away(kind) => Some(class),
            _ if class == Class::ClockSkew => Some(class),
            (Some(_), Some(kind)) => Some(recovery::classify(kind)),
            // Who is not trusted may still be an impostor; an ended certificate has no other way back.
            (Some(reason @ Class::CertExpired), None) if !self.has_means(reason) => {
                Some(Class::RecoveryEnrollmentBlocked)
            }
            (Some(_), None) => Some(class),
        }
    }
}
