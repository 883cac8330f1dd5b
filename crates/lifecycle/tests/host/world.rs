//! A control plane, a disk and two clocks, as far as a host can tell.

use lifecycle::host::{
    CallFailure, CandidateOrigin, Chance, Class, FailureKind, FollowUp, HostAction, HostMachine, Input, Life,
    Now, RecoveryResult, TOLERANCE,
};
use lifecycle::names::{Span, Timestamp};

/// True time begins here; the steady clock at nothing.
const EPOCH: u64 = 1_800_000_000_000;
const SECOND: u64 = 1000;
pub const MINUTE: u64 = 60 * SECOND;
const LIFE: u64 = 60 * MINUTE;
/// How often a connected host hears the time.
const BEAT: u64 = 30 * SECOND;
/// By a clock that is further off than this no chain is in date.
const CHAIN: u64 = 6 * 60 * MINUTE;
/// Whoever was seen within this is not in need of recovery.
const GRACE: u64 = 5 * MINUTE;

/// Everything that can be wrong.
#[derive(Debug, Clone, Copy)]
pub struct Faults {
    pub down: bool,
    pub recovery_down: bool,
    /// The runtime bundle, or the recovery bundle, does not vouch for the control plane.
    pub stale: bool,
    pub recovery_stale: bool,
    pub revoked: bool,
    pub full: bool,
    /// How far the host's clock is ahead.
    pub ahead: i64,
    pub superseded: bool,
    /// The issuer of the certificate in use was retired, by force.
    pub retired: bool,
    pub no_token: bool,
}

impl Faults {
    pub const NONE: Self = Self {
        down: false,
        recovery_down: false,
        stale: false,
        recovery_stale: false,
        revoked: false,
        full: false,
        ahead: 0,
        superseded: false,
        retired: false,
        no_token: false,
    };
}

/// After which a host may recover.
const LOST: [FailureKind; 3] = [FailureKind::Expired, FailureKind::Superseded, FailureKind::Untrusted];

pub struct World {
    pub host: HostMachine,
    pub faults: Faults,
    pub at: u64,
    /// When the certificate in use ends, and the one to be proven.
    ends: u64,
    candidate: Option<u64>,
    token: bool,
    /// Whether the token went for a certificate that nobody has seen: it leads to another once that has ended.
    unseen: bool,
    /// What the control plane last said of the certificate.
    told: Option<FailureKind>,
    seen: u64,
    beat: u64,
    connected: bool,
    under_way: Vec<(u64, HostAction)>,
    pub acts: Vec<(u64, HostAction)>,
    unwell_since: Option<u64>,
    idle_since: u64,
    /// The correlation_id of the kind at hand.
    correlation_id: Option<String>,
    seed: u32,
    pub recoveries: usize,
}

impl World {
    pub fn new(seed: u32) -> Self {
        let ends = EPOCH + LIFE;
        Self {
            host: HostMachine::new(life(ends), "u0".to_owned()),
            faults: Faults::NONE,
            at: EPOCH,
            ends,
            candidate: None,
            token: true,
            unseen: false,
            told: None,
            seen: 0,
            beat: u64::MAX,
            connected: false,
            under_way: Vec::new(),
            acts: Vec::new(),
            unwell_since: None,
            idle_since: EPOCH,
            correlation_id: None,
            seed,
            recoveries: 0,
        }
    }

    pub fn is_well(&self) -> bool {
        self.connected && self.host.condition().is_none()
    }

    /// Nothing is left to come back with: the certificate has ended, and the host was told that it is revoked, or its
    /// token went for a certificate that ended before anybody saw it.
    pub fn is_given_up(&self) -> bool {
        self.at >= self.ends && (self.host.is_revoked() || !(self.token || self.unseen))
    }

    pub fn minutes(&mut self, minutes: u64) {
        self.until(self.at + minutes * MINUTE);
    }

    /// Lets time pass, with everything that is due in it.
    pub fn until(&mut self, end: u64) {
        while self.at < end {
            let ready = (self.token || self.unseen) && !self.faults.no_token;
            self.learn(Input::RecoveryReady(ready));
            if !self.faults.full {
                self.learn(Input::DiskFull(false));
            }
            if self.connected && self.cut_off() {
                (self.connected, self.beat) = (false, u64::MAX);
                let kind = if self.faults.revoked { FailureKind::Revoked } else { FailureKind::Transient };
                self.learn(Input::Disconnected(kind.into()));
            }
            let now = self.now();
            for act in self.host.due(now) {
                self.watch(act);
                let takes = u64::from(self.draw() % 5) * SECOND + 10;
                self.under_way.push((self.at + takes, act));
                self.acts.push((self.at, act));
            }
            self.check();
            let wake = self.host.wake(now).millis() + EPOCH;
            let first = self.under_way.iter().map(|(at, _)| *at).min().unwrap_or(u64::MAX);
            self.at = wake.min(first).min(self.beat).max(self.at + 1).min(end);
            self.finish();
        }
    }

    fn now(&self) -> Now {
        let wall = Timestamp::from_millis(self.at.saturating_add_signed(self.faults.ahead));
        Now { wall, steady: Span::from_millis(self.at - EPOCH) }
    }

    fn draw(&mut self) -> u32 {
        self.seed = self.seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.seed >> 3
    }

    fn learn(&mut self, input: Input) {
        let number = self.draw().wrapping_mul(8);
        let chance = Chance { number, id: format!("u{number}") };
        match self.host.learn(input, self.now(), chance) {
            FollowUp::Nothing => {}
            FollowUp::DropCandidate => self.candidate = None,
            FollowUp::FindCandidate if self.candidate.is_some() => {
                self.learn(Input::CandidateFound(CandidateOrigin::Renewal))
            }
            FollowUp::FindCandidate => {}
        }
    }

    fn is_skewed(&self) -> bool {
        self.faults.ahead.unsigned_abs() > TOLERANCE.millis()
    }

    fn cut_off(&self) -> bool {
        self.faults.down || self.faults.revoked || self.faults.retired
    }

    /// What must not be begun.
    fn watch(&mut self, act: HostAction) {
        assert!(!(self.host.is_revoked() && act != HostAction::Open), "{act:?} by a revoked host");
        assert!(!(self.host.is_skewed() && act == HostAction::Renew), "a renewal by a wrong clock");
        if let HostAction::Recover(class) = act {
            let ended = self.now().wall.millis() >= self.ends;
            let gone = class == Class::EndpointUnreachable && self.at >= self.seen.max(EPOCH) + GRACE;
            let cut_off = [Some(FailureKind::Transient), Some(FailureKind::UnknownIssuer)];
            let silent = cut_off.contains(&self.told) && (ended || gone);
            let told = self.told.is_some_and(|told| LOST.contains(&told));
            assert!(told || silent, "recovers for nothing: {class}");
        }
    }

    /// What must hold at every moment.
    fn check(&mut self) {
        if self.connected || !self.under_way.is_empty() {
            self.idle_since = self.at;
        }
        if self.is_well() {
            (self.unwell_since, self.correlation_id) = (None, None);
            return;
        }
        let since = *self.unwell_since.get_or_insert(self.at);
        if self.at > since + MINUTE {
            assert!(self.host.condition().is_some(), "unwell for a minute without a word for it");
            assert!(self.at <= self.idle_since + 10 * MINUTE, "has given up: {:?}", self.host);
        }
        if self.host.condition().is_some() {
            let id = self.host.correlation_id().to_owned();
            let first = self.correlation_id.get_or_insert_with(|| id.clone());
            assert_eq!(*first, id, "one kind, one correlation_id");
        }
    }

    fn finish(&mut self) {
        if self.connected && self.at >= self.beat {
            self.seen = self.at;
            self.beat = self.at + BEAT;
            self.learn(Input::Clock(self.faults.ahead));
        }
        while let Some(place) = self.under_way.iter().position(|(at, _)| *at <= self.at) {
            match self.under_way.remove(place).1 {
                HostAction::Open => self.open(),
                HostAction::Renew => self.renew(),
                HostAction::Recover(class) => self.recover(class),
            }
        }
    }

    /// Why the control plane does not take a certificate, if it does not.
    fn turned_away(&self, ends: u64, stale: bool, retired: bool) -> Option<CallFailure> {
        let far = self.faults.ahead.unsigned_abs() > CHAIN;
        let kind = match () {
            () if self.faults.down => FailureKind::Transient,
            () if stale || far => FailureKind::Untrusted,
            () if self.faults.revoked => FailureKind::Revoked,
            () if retired => FailureKind::UnknownIssuer,
            () if self.at >= ends => FailureKind::Expired,
            () => return None,
        };
        let clock = (kind == FailureKind::Untrusted && !stale).then_some(self.faults.ahead);
        Some(CallFailure { clock, ..kind.into() })
    }

    fn open(&mut self) {
        let mut failure = match self.candidate {
            // What came with it vouches for the control plane.
            Some(ends) => self.turned_away(ends, false, false),
            None => self.turned_away(self.ends, self.faults.stale, self.faults.retired),
        };
        if self.faults.superseded && self.candidate.is_none() {
            failure = failure.or(Some(FailureKind::Superseded.into()));
        }
        let kind = failure.map(|failure| failure.kind);
        // That a candidate was denied, or that nobody answered, says nothing of the certificate in use.
        if self.candidate.is_none() || kind.is_none_or(|kind| LOST.contains(&kind)) {
            self.told = kind;
        }
        if let Some(failure) = failure {
            return self.learn(Input::Opened(Err(failure)));
        }
        if let Some(ends) = self.candidate {
            if self.faults.full {
                self.learn(Input::DiskFull(true));
                return self.learn(Input::Opened(Err(FailureKind::DiskFull.into())));
            }
            (self.candidate, self.ends) = (None, ends);
            (self.faults.stale, self.faults.superseded, self.faults.retired) = (false, false, false);
            self.learn(Input::Loaded(life(ends)));
        }
        (self.connected, self.token, self.unseen) = (true, true, false);
        (self.beat, self.seen) = (self.at + BEAT, self.at);
        // The first word on the connection.
        self.learn(Input::Clock(self.faults.ahead));
        self.learn(Input::Opened(Ok(())));
    }

    fn renew(&mut self) {
        self.learn(Input::DiskFull(self.faults.full));
        let failure = match self.faults.full {
            true => Some(FailureKind::DiskFull.into()),
            false => self.turned_away(self.ends, self.faults.stale, self.faults.retired),
        };
        if let Some(failure) = failure {
            self.told = Some(failure.kind).filter(|told| *told == FailureKind::Expired).or(self.told);
            return self.learn(Input::Renewed(Err(failure)));
        }
        self.candidate = Some(self.at + LIFE);
        self.learn(Input::Renewed(Ok(())));
    }

    fn recover(&mut self, class: Class) {
        self.learn(Input::DiskFull(self.faults.full));
        let good = self.at < self.ends && !self.faults.retired;
        let kind = match () {
            () if self.faults.full => FailureKind::DiskFull,
            () if self.faults.recovery_down => FailureKind::Transient,
            () if self.faults.recovery_stale => FailureKind::Untrusted,
            () if self.is_skewed() => FailureKind::ClockSkew,
            () if self.faults.revoked => FailureKind::Revoked,
            () if !self.token && !self.unseen => FailureKind::Refused,
            // It is told where the control plane is, and knows that already.
            () if good && class == Class::EndpointUnreachable => FailureKind::Refused,
            () if good && self.at < self.seen + GRACE && !self.faults.superseded => {
                self.faults.stale = false;
                return self.learn(Input::Recovered(Ok(RecoveryResult::Refreshed)));
            }
            () => {
                self.recoveries += 1;
                (self.token, self.unseen) = (false, true);
                self.candidate = Some(self.at + LIFE);
                return self.learn(Input::Recovered(Ok(RecoveryResult::Issued)));
            }
        };
        let clock = (kind == FailureKind::ClockSkew).then_some(self.faults.ahead);
        self.learn(Input::Recovered(Err(CallFailure { clock, ..kind.into() })));
    }
}

fn life(ends: u64) -> Life {
    let at = Timestamp::from_millis;
    Life { not_after: at(ends), renew_at: at(ends - LIFE / 3) }
}
