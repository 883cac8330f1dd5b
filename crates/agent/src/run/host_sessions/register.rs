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
/// Registrations at once, and how long until there may be another.
const BURST: u32 = 60;
const EVERY: Duration = Duration::from_secs(2);

#[derive(Default)]
pub struct SessionRegister {
    pub open: BTreeMap<SessionId, Session>,
    pub ended: VecDeque<EndedSession>,
    /// Counts changes.
    pub sequence: u64,
    /// Whether what is not open here is not open.
    pub complete: bool,
    pub refused: u64,
    rate: RegistrationRate,
}

/// Why there is no place for a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoPlace {
    Full,
    TooFast,
    InUse,
}

impl SessionRegister {
    /// `again`: it was open before, under an earlier agent, and took its place then.
    pub fn open(&mut self, session: Session, again: bool, now: Instant) -> Result<(), NoPlace> {
        if self.open.contains_key(&session.id) {
            return Err(NoPlace::InUse);
        }
        if self.open.len() >= MOST_SESSIONS {
            return Err(NoPlace::Full);
        }
        if !again && !self.rate.take(now) {
            return Err(NoPlace::TooFast);
        }
        self.sequence += 1;
        self.open.insert(session.id, session);
        Ok(())
    }

    /// It was not allowed after all, and nobody has heard of it.
    pub fn withdraw(&mut self, id: SessionId) {
        self.open.remove(&id);
    }

    pub fn close(&mut self, id: SessionId, reason: CloseReason, exit_status: Option<u8>) {
        let Some(session) = self.open.remove(&id) else { return };
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
            open: self.open.values().map(sent).collect(),
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

/// How many may be registered.
struct RegistrationRate {
    left: u32,
    since: Option<Instant>,
}

impl Default for RegistrationRate {
    fn default() -> Self {
        Self { left: BURST, since: None }
    }
}

impl RegistrationRate {
    fn take(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let more = now.saturating_duration_since(since).as_secs() / EVERY.as_secs();
        if more > 0 {
            self.left = self.left.saturating_add(u32::try_from(more).unwrap_or(BURST)).min(BURST);
            self.since = Some(now);
        }
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
            register.open(session(number), false, now).unwrap();
            register.close(session(number).id, CloseReason::Ended, Some(0));
        }
        assert_eq!(register.open(session(60), false, now), Err(NoPlace::TooFast));
        assert_eq!(register.open(session(60), true, now), Ok(()), "it was there before");
        assert_eq!(register.open(session(60), true, now), Err(NoPlace::InUse));
        assert_eq!(register.open(session(61), false, now + EVERY), Ok(()));
        assert_eq!(register.open(session(62), false, now + EVERY), Err(NoPlace::TooFast));
        for number in 100..354 {
            register.open(session(number), true, now).unwrap();
        }
        assert_eq!(register.open(session(400), true, now), Err(NoPlace::Full));
    }

    #[test]
    fn what_has_ended_is_said_until_it_is_on_record() {
        let (mut register, now) = (SessionRegister::default(), Instant::now());
        for number in 0..70 {
            register.open(session(number), true, now).unwrap();
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
