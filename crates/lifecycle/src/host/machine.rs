//! The host's state machine: from what the daemon learns to what it does next and what is wrong.
//!
//! It never gives up and never spins. Whatever fails has a class before it is tried again, and one undertaking, from
//! the first failure until all is well, has one id.

mod recovering;

use super::input::{Act, Chance, Failure, Ill, Input, Life, Now, Origin, Then};
use super::takes_up_candidate;
use super::task::{Task, sum};
use super::{Class, Trouble, check_revoked_after, classify, gives_up_candidate, recovery, retry_within};
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
/// A measured offset that nobody has measured again is believed this long: the clock may have been set.
const BELIEVED: Span = Span::from_minutes(5);
/// A connection that stood this long counts as a success.
const STEADY: Span = Span::from_secs(30);

#[derive(Debug, Clone)]
pub struct Host {
    life: Life,
    candidate: Option<Origin>,
    connected: bool,
    /// Whether connecting has ended once, well or not: before that nothing is known of the clock.
    asked: bool,
    revoked: bool,
    full: bool,
    drift: bool,
    ready: bool,
    offset: Option<(i64, Span)>,
    tolerance: Span,
    /// What keeps it from connecting, from renewing, from recovering.
    contact: Option<Trouble>,
    renewal: Option<Trouble>,
    recovery: Option<Trouble>,
    open: Task,
    renew: Task,
    recover: Task,
    /// Whether connecting is under way as the certificate to be proven.
    proving: bool,
    /// Whether a recovery has ended well since that was begun, so that it was begun with what is no longer trusted.
    cured: bool,
    opened_at: Span,
    undertaking: String,
    ill: Option<Ill>,
}

impl Host {
    pub fn new(life: Life, undertaking: String) -> Self {
        Self {
            life,
            candidate: None,
            connected: false,
            asked: false,
            revoked: false,
            full: false,
            drift: false,
            ready: false,
            offset: None,
            tolerance: TOLERANCE,
            contact: None,
            renewal: None,
            recovery: None,
            open: Task::new(OPEN_CAP),
            renew: Task::new(RENEW_CAP),
            recover: Task::new(RECOVER_CAP),
            proving: false,
            cured: false,
            opened_at: Span::from_millis(0),
            undertaking,
            ill: None,
        }
    }

    pub fn ill(&self) -> Option<Ill> {
        self.ill
    }

    /// The id of whatever is done next.
    pub fn undertaking(&self) -> &str {
        &self.undertaking
    }

    pub fn is_revoked(&self) -> bool {
        self.revoked
    }

    pub fn is_connected(&self) -> bool {
        self.connected
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
    pub fn due(&mut self, now: Now) -> Vec<Act> {
        self.settle(now);
        let mut acts = Vec::new();
        if let Some(class) = self.recovers(now)
            && self.recover.is_due(now.steady)
        {
            self.recover.begin(now.steady);
            acts.push(Act::Recover(class));
        }
        if self.renews(now) && self.renew.is_due(now.steady) && now.wall >= self.life.renew_at {
            self.renew.begin(now.steady);
            acts.push(Act::Renew);
        }
        if self.opens() && self.open.is_due(now.steady) {
            self.open.begin(now.steady);
            (self.proving, self.cured) = (self.candidate.is_some(), false);
            acts.push(Act::Open);
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
            self.opens().then(|| self.open.at()).flatten(),
            self.renews(now).then(renew).flatten(),
            self.recovers(now).and_then(|_| self.recover.at()),
        ];
        moments.into_iter().flatten().fold(sum(now.steady, NAP), Span::min).max(now.steady)
    }

    fn opens(&self) -> bool {
        // Whether they are trusted again only connecting tells, however long a recovery takes.
        let waits = self.recover.is_busy() && self.contact != Some(Trouble::Untrusted);
        (!self.connected || self.candidate.is_some()) && !waits
    }

    /// One renewal at a time, none while its fruit waits to be proven, and none by a wrong clock. A certificate
    /// that is not taken renews nothing; nor does one that has ended, unless it is only this clock that says so.
    fn renews(&self, now: Now) -> bool {
        let idle = self.candidate.is_none() && !self.recover.is_busy();
        let taken = self.contact.is_none_or(|trouble| recovery::reason(trouble, false).is_none());
        let useful = self.connected || (taken && !self.is_expired(now));
        idle && useful && self.asked && !self.revoked && !self.is_skewed()
    }

    fn is_expired(&self, now: Now) -> bool {
        now.wall > self.life.not_after
    }

    pub fn learn(&mut self, input: Input, now: Now, chance: Chance) -> Then {
        let then = self.take(input, now, chance.number);
        self.settle(now);
        let done = matches!(input, Input::Opened(Ok(())));
        if done && self.ill.is_none() {
            self.undertaking = chance.id;
        }
        then
    }

    fn take(&mut self, input: Input, now: Now, chance: u32) -> Then {
        match input {
            Input::Loaded(life) => {
                (self.life, self.candidate, self.renewal, self.recovery) = (life, None, None, None);
                self.renew.backoff.reset();
                self.recover.backoff.reset();
            }
            Input::Found(origin) => {
                self.candidate = Some(origin);
                self.open.soon(now.steady);
            }
            Input::Opened(Ok(())) => self.opened(now),
            Input::Opened(Err(failure)) => return self.not_opened(failure, now, chance),
            Input::Lost(failure) => return self.lost(failure, now, chance),
            Input::Renewed(Ok(())) => {
                self.renew.ended();
                return self.take(Input::Found(Origin::Renewal), now, chance);
            }
            Input::Renewed(Err(failure)) => return self.not_renewed(failure, now, chance),
            Input::Recovered(Ok(how)) => self.recovered(how, now, chance),
            Input::Recovered(Err(failure)) => self.not_recovered(failure, now, chance),
            Input::Clock(offset) => self.offset = Some((offset, now.steady)),
            Input::Tolerance(tolerance) => self.tolerance = tolerance,
            Input::Full(full) => self.full = full,
            Input::Drift(drift) => self.drift = drift,
            Input::Ready(ready) => self.ready = ready,
            Input::Ordered => self.life.renew_at = self.life.renew_at.min(now.wall),
            Input::Revoked => self.revoked = true,
            Input::Broken => self.broken(now, chance),
        }
        Then::Nothing
    }

    fn opened(&mut self, now: Now) {
        self.open.ended();
        (self.connected, self.asked, self.revoked) = (true, true, false);
        (self.contact, self.recovery) = (None, None);
        self.opened_at = now.steady;
        self.recover.backoff.reset();
    }

    fn not_opened(&mut self, failure: Failure, now: Now, chance: u32) -> Then {
        self.open.ended();
        self.asked = true;
        self.measured(failure, now);
        let trouble = failure.trouble;
        if self.proving && self.candidate.is_some() {
            if !gives_up_candidate(trouble) {
                self.contact.get_or_insert(trouble);
                self.stay_away(failure, now, chance);
                return Then::Nothing;
            }
            self.drop_candidate(now, chance);
            return Then::DropCandidate;
        }
        if std::mem::take(&mut self.cured) && trouble == Trouble::Untrusted {
            self.contact = Some(Trouble::Passing);
            self.open.soon(now.steady);
            return Then::Nothing;
        }
        self.cut_off(trouble, now);
        if trouble == Trouble::Revoked {
            return self.now_revoked(now, chance);
        }
        self.stay_away(failure, now, chance);
        self.find_candidate(trouble)
    }

    fn lost(&mut self, failure: Failure, now: Now, chance: u32) -> Then {
        if std::mem::take(&mut self.connected) && now.steady >= sum(self.opened_at, STEADY) {
            self.open.backoff.reset();
        }
        self.measured(failure, now);
        self.cut_off(failure.trouble, now);
        if failure.trouble == Trouble::Revoked {
            return self.now_revoked(now, chance);
        }
        if self.candidate.is_some() {
            return Then::Nothing;
        }
        self.stay_away(failure, now, chance);
        self.find_candidate(failure.trouble)
    }

    fn not_renewed(&mut self, failure: Failure, now: Now, chance: u32) -> Then {
        self.renew.ended();
        self.measured(failure, now);
        self.renewal = Some(failure.trouble);
        self.renew_later(failure.wait, now, chance);
        if failure.trouble == Trouble::Revoked {
            self.contact = Some(failure.trouble);
            return self.now_revoked(now, chance);
        }
        if !self.connected && recovery::reason(failure.trouble, false) == Some(Class::CertExpired) {
            self.cut_off(failure.trouble, now);
        }
        self.find_candidate(failure.trouble)
    }

    fn find_candidate(&self, trouble: Trouble) -> Then {
        let look = takes_up_candidate(trouble) && self.candidate.is_none();
        if look { Then::FindCandidate } else { Then::Nothing }
    }

    /// The certificate in use, if it is still good for anything, stays.
    fn drop_candidate(&mut self, now: Now, chance: u32) {
        match self.candidate.take() {
            Some(Origin::Recovery) => {
                self.recovery = Some(Trouble::Refused);
                self.recover_later(Span::from_millis(0), now, chance);
            }
            _ => {
                self.renewal = Some(Trouble::Refused);
                self.renew_later(Span::from_millis(0), now, chance);
            }
        }
        self.open.soon(now.steady);
    }

    fn now_revoked(&mut self, now: Now, chance: u32) -> Then {
        (self.revoked, self.connected) = (true, false);
        self.open.after(now.steady, check_revoked_after(chance));
        Then::Nothing
    }

    fn broken(&mut self, now: Now, chance: u32) {
        let failure = Failure::from(Trouble::Passing);
        if self.open.is_busy() {
            self.not_opened(failure, now, chance);
        }
        if self.renew.is_busy() {
            self.not_renewed(failure, now, chance);
        }
        if self.recover.is_busy() {
            self.not_recovered(failure, now, chance);
        }
    }

    fn measured(&mut self, failure: Failure, now: Now) {
        self.offset = failure.clock.map(|offset| (offset, now.steady)).or(self.offset);
    }

    fn stay_away(&mut self, failure: Failure, now: Now, chance: u32) {
        let cap = match failure.trouble {
            Trouble::Expired => EXPIRED_CAP,
            Trouble::Untrusted => UNTRUSTED_CAP,
            _ => OPEN_CAP,
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
        self.ill = self.class(now).map(|class| {
            let since = self.ill.map_or(now.wall, |ill| ill.since);
            Ill { class, since }
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
        let renewal = self.renewal.filter(|trouble| due && !(self.connected && *trouble == Trouble::Refused));
        let Some(trouble) = self.contact.or(renewal) else {
            let drift = self.drift.then_some(Class::EndpointProfileDrift);
            return if self.is_skewed() { Some(Class::ClockSkew) } else { drift };
        };
        let class = classify(trouble, self.is_expired(now), self.is_skewed());
        match (self.needs_recovery(now), self.recovery) {
            (None, _) => Some(class),
            _ if class == Class::ClockSkew => Some(class),
            (Some(_), Some(trouble)) => Some(recovery::classify(trouble)),
            // Who is not trusted may still be an impostor; an ended certificate has no other way back.
            (Some(Class::CertExpired), None) if !self.ready => Some(Class::RecoveryEnrollmentBlocked),
            (Some(_), None) => Some(class),
        }
    }
}
