//! The list of sessions, and of those that ended and of which the control plane has not said that it knows.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use api::agent::{EndedSession, Sessions};
use lifecycle::names::SessionId;
use lifecycle::registry::{CloseReason, MOST_SESSIONS, Session};
use tokio::time::Instant;

use super::sent;

/// Ended sessions in one message, and those that are remembered while there is no control plane to hear of them.
const IN_A_MESSAGE: usize = 64;
const REMEMBERED: usize = 1024;
/// How many of the places one user may have that is not root, and how many all of those.
const OF_A_USER: usize = 64;
const OF_OTHERS: usize = MOST_SESSIONS - OF_A_USER;
/// Registrations at once, and how long until there may be another: of root, and of all others together.
const BURST: u32 = 60;
const EVERY: Duration = Duration::from_secs(2);
/// Those of one user that is not root.
const USER_BURST: u32 = 20;
const USER_EVERY: Duration = Duration::from_secs(4);
/// Users whose registrations are counted, before those are forgotten that have registered nothing for long.
const USERS: usize = 1024;
const ROOT: u32 = 0;

/// An open session.
#[derive(Debug)]
pub struct RegisteredSession {
    pub session: Session,
    /// The user id of whoever registered it.
    pub owner: u32,
}

#[derive(Default)]
pub struct SessionRegister {
    pub open: BTreeMap<SessionId, RegisteredSession>,
    pub ended: VecDeque<EndedSession>,
    /// Counts changes.
    pub sequence: u64,
    /// Whether what is not open here is not open.
    pub complete: bool,
    pub refused: u64,
    root: RegistrationRate<BURST, { EVERY.as_secs() }>,
    others: RegistrationRate<BURST, { EVERY.as_secs() }>,
    users: BTreeMap<u32, UserShare>,
}

#[derive(Default)]
struct UserShare {
    rate: RegistrationRate<USER_BURST, { USER_EVERY.as_secs() }>,
    /// How many were registered again after the agent's start.
    again: usize,
}

/// Why there is no place for a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoPlace {
    Full,
    UserFull,
    ReservedForRoot,
    TooFast,
    InUse,
}

impl SessionRegister {
    /// `again`: it was open before, under an earlier agent, and took its place then.
    pub fn open(&mut self, session: Session, owner: u32, again: bool, now: Instant) -> Result<(), NoPlace> {
        if self.open.contains_key(&session.id) {
            return Err(NoPlace::InUse);
        }
        if self.open.len() >= MOST_SESSIONS {
            return Err(NoPlace::Full);
        }
        let count = |of: &dyn Fn(u32) -> bool| self.open.values().filter(|open| of(open.owner)).count();
        if owner != ROOT && count(&|other| other == owner) >= OF_A_USER {
            return Err(NoPlace::UserFull);
        }
        if owner != ROOT && count(&|other| other != ROOT) >= OF_OTHERS {
            return Err(NoPlace::ReservedForRoot);
        }
        if !self.take(owner, again, now) {
            return Err(NoPlace::TooFast);
        }
        self.sequence += 1;
        self.open.insert(session.id, RegisteredSession { session, owner });
        Ok(())
    }

    /// Nobody uses up what root may register, and no user that of another.
    fn take(&mut self, owner: u32, again: bool, now: Instant) -> bool {
        if owner == ROOT {
            return again || self.root.take(now);
        }
        if self.users.len() >= USERS {
            self.users.retain(|_, share| !share.rate.is_full(now));
        }
        let share = self.users.entry(owner).or_default();
        // Whoever is not root only says that it was open: not for more than it can have had.
        if again && share.again < OF_A_USER {
            share.again += 1;
            return true;
        }
        share.rate.take(now) && self.others.take(now)
    }

    /// It was not allowed after all, and nobody has heard of it.
    pub fn withdraw(&mut self, id: SessionId) {
        self.open.remove(&id);
    }

    pub fn close(&mut self, id: SessionId, reason: CloseReason, exit_status: Option<u8>) {
        let Some(RegisteredSession { session, .. }) = self.open.remove(&id) else { return };
        self.sequence += 1;
        self.ended.push_back(EndedSession {
            session: Some(sent(&session)),
            reason: reason.to_string(),
            exit_status: exit_status.map(u32::from),
            sequence: self.sequence,
        });
        while self.ended.len() > REMEMBERED {
            self.ended.pop_front();
        }
    }

    /// All that were to announce themselves again have had the time.
    pub fn resumed(&mut self) {
        if !std::mem::replace(&mut self.complete, true) {
            self.sequence += 1;
        }
    }

    /// While there are more ended ones than fit, this says no more than those that do: it counts as their change.
    pub fn message(&self) -> Sessions {
        let ended: Vec<EndedSession> = self.ended.iter().take(IN_A_MESSAGE).cloned().collect();
        let more = self.ended.len() > ended.len();
        Sessions {
            sequence: ended.last().filter(|_| more).map_or(self.sequence, |last| last.sequence),
            complete: self.complete && !more,
            open: self.open.values().map(|open| sent(&open.session)).collect(),
            ended,
        }
    }

    /// Whether there is more to say by that.
    pub fn recorded(&mut self, sequence: u64) -> bool {
        let before = self.ended.len();
        self.ended.retain(|ended| ended.sequence > sequence);
        let more = self.ended.len() != before && !self.ended.is_empty();
        // What is left is a message of its own.
        self.sequence += u64::from(more);
        more
    }
}

/// How many may be registered: `BURST` at once, and one more every `SECONDS`.
struct RegistrationRate<const BURST: u32, const SECONDS: u64> {
    left: u32,
    since: Option<Instant>,
}

impl<const BURST: u32, const SECONDS: u64> Default for RegistrationRate<BURST, SECONDS> {
    fn default() -> Self {
        Self { left: BURST, since: None }
    }
}

impl<const BURST: u32, const SECONDS: u64> RegistrationRate<BURST, SECONDS> {
    fn refill(&mut self, now: Instant) {
        let since = *self.since.get_or_insert(now);
        let more = now.saturating_duration_since(since).as_secs() / SECONDS;
        if more > 0 {
            self.left = self.left.saturating_add(u32::try_from(more).unwrap_or(BURST)).min(BURST);
            self.since = Some(now);
        }
    }

    fn is_full(&mut self, now: Instant) -> bool {
        self.refill(now);
        self.left == BURST
    }

    fn take(&mut self, now: Instant) -> bool {
        self.refill(now);
        let granted = self.left > 0;
        self.left = self.left.saturating_sub(1);
        granted
    }
}

#[cfg(test)]
mod tests {
    use lifecycle::names::{Label, Timestamp, Ulid};
    use lifecycle::registry::SessionKind;

    use super::*;

    fn session(number: u16) -> Session {
        let mut chance = [0; 10];
        chance[..2].copy_from_slice(&number.to_be_bytes());
        let opened_at = Timestamp::from_secs(1_000);
        Session {
            id: SessionId(Ulid::new(opened_at, chance)),
            kind: SessionKind::Shell,
            user: Label::parse("alice").unwrap(),
            opened_at,
        }
    }

    #[test]
    fn a_flood_is_refused_and_passes() {
        let (mut register, now) = (SessionRegister::default(), Instant::now());
        for number in 0..60 {
            register.open(session(number), ROOT, false, now).unwrap();
            register.close(session(number).id, CloseReason::Ended, Some(0));
        }
        assert_eq!(register.open(session(60), ROOT, false, now), Err(NoPlace::TooFast));
        assert_eq!(register.open(session(60), ROOT, true, now), Ok(()), "it was there before");
        assert_eq!(register.open(session(60), ROOT, true, now), Err(NoPlace::InUse));
        assert_eq!(register.open(session(61), ROOT, false, now + EVERY), Ok(()));
        assert_eq!(register.open(session(62), ROOT, false, now + EVERY), Err(NoPlace::TooFast));
        for number in 100..354 {
            register.open(session(number), ROOT, true, now).unwrap();
        }
        assert_eq!(register.open(session(400), ROOT, true, now), Err(NoPlace::Full));
    }

    #[test]
    fn a_user_takes_nothing_of_root_nor_of_another() {
        let (mut register, now) = (SessionRegister::default(), Instant::now());
        for number in 0..64 {
            register.open(session(number), 1_000, true, now).unwrap();
        }
        assert_eq!(register.open(session(64), 1_000, true, now), Err(NoPlace::UserFull));
        register.withdraw(session(0).id);
        for _ in 0..20 {
            register.open(session(0), 1_000, true, now).unwrap();
            register.withdraw(session(0).id);
        }
        assert_eq!(register.open(session(0), 1_000, true, now), Err(NoPlace::TooFast), "no more than it had");
        assert_eq!(register.open(session(0), 1_000, false, now), Err(NoPlace::TooFast));
        for number in 100..160 {
            register.open(session(number), ROOT, false, now).unwrap();
        }
        register.open(session(200), 1_001, false, now).unwrap();
        for number in 201..264 {
            register.open(session(number), 1_001, true, now).unwrap();
        }
        for number in 300..364 {
            register.open(session(number), 1_002, true, now).unwrap();
        }
        register.open(session(0), 1_002, true, now).unwrap_err();
        register.open(session(0), 1_003, true, now).unwrap();
        assert_eq!(register.open(session(64), 1_003, true, now), Err(NoPlace::ReservedForRoot));
        register.open(session(64), ROOT, true, now).unwrap();
    }

    #[test]
    fn what_has_ended_is_said_until_it_is_on_record() {
        let (mut register, now) = (SessionRegister::default(), Instant::now());
        for number in 0..70 {
            register.open(session(number), ROOT, true, now).unwrap();
            register.close(session(number).id, CloseReason::Ended, Some(0));
        }
        register.resumed();
        let first = register.message();
        assert!(first.ended.len() == 64 && !first.complete && first.sequence < register.sequence);
        assert!(register.recorded(first.sequence), "there is more");
        let rest = register.message();
        assert!(rest.ended.len() == 6 && rest.complete && rest.sequence == register.sequence);
        assert!(!register.recorded(rest.sequence) && register.ended.is_empty());
        assert!(!register.recorded(0));
    }
}
