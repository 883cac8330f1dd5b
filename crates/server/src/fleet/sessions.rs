//! What a host says of its sessions, on its way into the registry: bounded, only in words that are known, and no faster than its
//! share of the audit trail allows. What the share does not cover waits on its stream and is recorded by and by.

use crate::fleet::live::{LivePeer, living};
use crate::fleet::presence::Stream;
use crate::http::failure::Failure;
use crate::process::app::App;
use api::agent::{self, SessionsRecorded};
use api::code;
use lifecycle::names::{Label, SessionId, Timestamp};
use lifecycle::registry::{
    CloseReason, ClosedSession, Command, MOST_SESSIONS, Session, SessionChanges, SessionKind, SessionReport,
};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// Ended sessions in one report.
const ENDED: usize = 64;
/// Lines of the audit trail that the sessions of one node may make at once, and how many more every second.
const LINES: u32 = 600;
const LINES_PER_SECOND: u32 = 1;
/// Until what was left is tried again: for want of lines, or because it could not be recorded.
const PAUSE: Duration = Duration::from_secs(1);
const AFTER_FAILURE: Duration = Duration::from_secs(5);

/// How many lines the sessions of a node may still make.
#[derive(Debug, Clone, Copy)]
pub struct SessionLines {
    left: u32,
    since: Timestamp,
}

impl SessionLines {
    pub fn new(now: Timestamp) -> Self {
        Self { left: LINES, since: now }
    }

    pub fn left(&mut self, now: Timestamp) -> u32 {
        let seconds = u32::try_from(now.since(self.since).secs()).unwrap_or(u32::MAX);
        if seconds > 0 {
            self.left = self.left.saturating_add(seconds.saturating_mul(LINES_PER_SECOND)).min(LINES);
            self.since = now;
        }
        self.left
    }

    pub fn spend(&mut self, lines: u32) {
        self.left = self.left.saturating_sub(lines);
    }

    /// Whether there is nothing to remember of it.
    pub fn is_full(&mut self, now: Timestamp) -> bool {
        self.left(now) == LINES
    }
}

/// The sessions of the node on one stream.
pub struct SessionRecorder {
    /// Which start of the agent speaks.
    instance: Label,
    /// The latest report, until all of it is on record, and when to look at it next.
    waiting: Option<(SessionReport, Instant)>,
}

impl SessionRecorder {
    pub fn new(instance: Label) -> Self {
        Self { instance, waiting: None }
    }

    /// A newer report says all that an older one said.
    pub fn hear(&mut self, said: agent::Sessions) -> Result<(), Failure> {
        self.waiting = Some((report(said)?, Instant::now()));
        Ok(())
    }

    pub fn wake(&self) -> Option<Instant> {
        self.waiting.as_ref().map(|(_, at)| *at)
    }

    /// Puts the report on record, or as much of it as there are lines for. The answer, once nothing of it is left.
    pub async fn record(
        &mut self,
        app: &App,
        peer: &LivePeer,
        stream: &Stream,
    ) -> Result<Option<SessionsRecorded>, Failure> {
        let now = Instant::now();
        let Some((report, at)) = self.waiting.as_mut().filter(|(_, at)| *at <= now) else { return Ok(None) };
        if !app.fleet.presence.is_newest(&peer.id, stream) {
            // The host has another connection, and says it there.
            self.waiting = None;
            return Ok(None);
        }
        let node = living(&app.view().state, &peer.id)?;
        let most = app.fleet.presence.session_lines(&peer.id, app.now());
        let done = SessionsRecorded { sequence: report.sequence };
        match report.changes(&node, &self.instance, most) {
            SessionChanges::None => {}
            SessionChanges::Some { lines: 0, .. } => {
                *at = now + PAUSE;
                return Ok(None);
            }
            SessionChanges::Some { change, lines, whole } => {
                app.fleet.presence.spend_session_lines(&peer.id, lines);
                let actor = peer.shown.actor(&peer.id);
                let command = Command::ReportSessions(Box::new(change));
                if let Err(failure) = app.commit(actor, &peer.origin, command).await {
                    tracing::debug!(node = %peer.id, code = failure.code.word, "sessions are not on record yet");
                    *at = now + AFTER_FAILURE;
                    return Ok(None);
                }
                if !whole {
                    *at = now + PAUSE;
                    return Ok(None);
                }
            }
        }
        self.waiting = None;
        Ok(Some(done))
    }
}

fn report(said: agent::Sessions) -> Result<SessionReport, Failure> {
    if said.open.len() > MOST_SESSIONS || said.ended.len() > ENDED {
        let what = format!("at most {MOST_SESSIONS} open and {ENDED} ended sessions in a message");
        return Err(Failure::new(code::BAD_REQUEST, what));
    }
    let open: Vec<Session> = said.open.iter().map(session).collect::<Result<_, _>>()?;
    let ended: Vec<ClosedSession> = said.ended.iter().map(closed).collect::<Result<_, _>>()?;
    let mut ids = BTreeSet::new();
    if !open.iter().chain(ended.iter().map(|ended| &ended.session)).all(|session| ids.insert(session.id)) {
        return Err(Failure::new(code::BAD_REQUEST, "a session is named twice"));
    }
    Ok(SessionReport { sequence: said.sequence, complete: said.complete, open, ended })
}

fn bad(what: &str) -> Failure {
    Failure::new(code::BAD_REQUEST, format!("sessions: {what}"))
}

fn session(said: &agent::OpenSession) -> Result<Session, Failure> {
    Ok(Session {
        id: SessionId::parse(&said.session_id).map_err(|_| bad("session_id must be a ULID"))?,
        kind: SessionKind::parse(&said.kind).ok_or_else(|| bad("kind must be shell or exec"))?,
        user: Label::parse(&said.user).map_err(|_| bad("user must be 1 to 128 visible characters"))?,
        opened_at: Timestamp::from_millis(said.opened_at_ms),
    })
}

fn closed(said: &agent::EndedSession) -> Result<ClosedSession, Failure> {
    let named = said.session.as_ref().ok_or_else(|| bad("an end without a session"))?;
    let status = said.exit_status.map(u8::try_from).transpose();
    Ok(ClosedSession {
        session: session(named)?,
        reason: CloseReason::of_host(&said.reason)
            .ok_or_else(|| bad("reason must be ended, lost or terminated"))?,
        exit_status: status.map_err(|_| bad("exit_status must be 0 to 255"))?,
        sequence: said.sequence,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(id: &str) -> agent::OpenSession {
        agent::OpenSession {
            session_id: id.to_owned(),
            kind: "shell".to_owned(),
            user: "alice".to_owned(),
            opened_at_ms: 1,
        }
    }

    const ONE: &str = "01ARYZ6S41TSV4RRFFQ69G5FAV";

    #[test]
    fn what_is_malformed_or_too_much_is_refused_and_not_cut() {
        let said = |open: Vec<agent::OpenSession>| agent::Sessions { open, ..agent::Sessions::default() };
        assert!(report(said(vec![open(ONE)])).is_ok());
        for wrong in [
            agent::OpenSession { session_id: "1".to_owned(), ..open(ONE) },
            agent::OpenSession { kind: "door".to_owned(), ..open(ONE) },
            agent::OpenSession { user: "two words".to_owned(), ..open(ONE) },
        ] {
            assert!(report(said(vec![wrong])).is_err());
        }
        assert!(report(said(vec![open(ONE), open(ONE)])).is_err(), "named twice");
        assert!(report(said(vec![open(ONE); MOST_SESSIONS + 1])).is_err());
        let ended = |reason: &str, exit_status| agent::EndedSession {
            session: Some(open(ONE)),
            reason: reason.to_owned(),
            exit_status,
            sequence: 1,
        };
        let said = |ended| report(agent::Sessions { ended, ..agent::Sessions::default() });
        assert!(said(vec![ended("ended", Some(255))]).is_ok());
        assert!(said(vec![ended("ended", Some(256))]).is_err());
        assert!(said(vec![ended("revoked", None)]).is_err(), "not a host's to say");
    }

    #[test]
    fn lines_come_back_with_time() {
        let at = |seconds: u64| Timestamp::from_secs(1000 + seconds);
        let mut lines = SessionLines::new(at(0));
        lines.spend(LINES);
        assert_eq!((lines.left(at(0)), lines.left(at(5))), (0, 5));
        assert!(!lines.is_full(at(500)) && lines.is_full(at(5000)));
    }
}
