//! Reporting sessions: a host says which are open, and which have ended since its last report was recorded. Only what that
//! changes is a command, so that a host with many sessions makes no long entries.

use super::close::{CloseReason, SessionClosed};
use super::open::SessionOpened;
use super::{MOST_SESSIONS, Session, SessionMark};
use crate::names::{Label, NodeId, SessionId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditFields, Happened};
use crate::registry::node::living;
use crate::registry::{Envelope, Event, Node, State};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A session that is no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosedSession {
    pub session: Session,
    pub reason: CloseReason,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<u8>,
    /// Which of the host's changes it was; 0 if the host does not say that it has ended, and no longer names it.
    #[serde(default)]
    pub sequence: u64,
}

/// What a host says of its sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionReport {
    /// Counts the host's changes since the start of its agent.
    pub sequence: u64,
    /// Whether what is not named here is not open. Not so in the first moments of an agent, in which sessions of before
    /// announce themselves again.
    pub complete: bool,
    pub open: Vec<Session>,
    /// In the order in which they ended.
    pub ended: Vec<ClosedSession>,
}

/// What a report changes, or a part of that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportSessions {
    pub node: NodeId,
    /// Which start of the agent counts.
    pub instance: Label,
    /// Up to where the host's changes are on record by this.
    pub sequence: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub opened: Vec<Session>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub closed: Vec<ClosedSession>,
}

/// What is to be recorded of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionChanges {
    /// All of it is on record.
    None,
    /// This much now, and then there may be more.
    Some {
        change: ReportSessions,
        /// Lines of the audit trail that it makes.
        lines: u32,
        /// Whether nothing of the report is left then.
        whole: bool,
    },
}

impl SessionReport {
    /// What of it is not on record, with at most so many lines of the audit trail: what has ended first, so that there is
    /// room for what is open.
    pub fn changes(&self, node: &Node, instance: &Label, most: u32) -> SessionChanges {
        let known = &node.sessions;
        let recorded = known.recorded_of(instance);
        let mut change = ReportSessions {
            node: node.id.clone(),
            instance: instance.clone(),
            sequence: recorded,
            opened: Vec::new(),
            closed: Vec::new(),
        };
        if self.sequence < recorded {
            return SessionChanges::None;
        }
        let (mut lines, mut whole) = (0, true);
        for ended in &self.ended {
            let open = known.is_open(ended.session.id);
            if !open && ended.sequence <= recorded {
                continue;
            }
            let cost = if open { 1 } else { 2 };
            if lines + cost > most {
                whole = false;
                break;
            }
            lines += cost;
            change.sequence = change.sequence.max(ended.sequence.min(self.sequence));
            change.closed.push(ended.clone());
        }
        let named: BTreeSet<SessionId> = self.open.iter().map(|session| session.id).collect();
        let ended: BTreeSet<SessionId> = self.ended.iter().map(|ended| ended.session.id).collect();
        let gone = |session: &&Session| !named.contains(&session.id) && !ended.contains(&session.id);
        for session in known.open.iter().filter(gone).filter(|_| self.complete) {
            if lines == most {
                whole = false;
                break;
            }
            lines += 1;
            let (reason, exit_status) = (CloseReason::Lost, None);
            change.closed.push(ClosedSession { session: session.clone(), reason, exit_status, sequence: 0 });
        }
        let room = (MOST_SESSIONS + change.closed.len()).saturating_sub(known.open.len());
        for session in self.open.iter().filter(|session| !known.is_open(session.id)).take(room) {
            if lines == most {
                whole = false;
                break;
            }
            lines += 1;
            change.opened.push(session.clone());
        }
        if whole {
            change.sequence = self.sequence;
        }
        if lines == 0 && whole {
            return SessionChanges::None;
        }
        SessionChanges::Some { change, lines, whole }
    }
}

/// What was recorded meanwhile is left out; a report that is older than what is on record says nothing.
pub(in crate::registry) fn decide(state: &State, report: &ReportSessions) -> Decision {
    let node = match living(state, &report.node) {
        Ok(node) => node,
        Err(rejection) => return rejection.into(),
    };
    let recorded = node.sessions.recorded_of(&report.instance);
    if report.sequence < recorded {
        return Decision::granted(Vec::new());
    }
    let mut events = Vec::new();
    let mut open: BTreeSet<SessionId> = node.sessions.open.iter().map(|session| session.id).collect();
    for closed in &report.closed {
        let id = closed.session.id;
        let known = node.sessions.open.iter().find(|session| session.id == id);
        let session = match known {
            Some(session) if open.remove(&id) => session.clone(),
            // It was open for less time than it takes to say so.
            None if closed.sequence > recorded && open.len() < MOST_SESSIONS => {
                let session = believable(state, &closed.session);
                events.push(opened(node, session.clone()));
                session
            }
            _ => continue,
        };
        events.push(Event::SessionClosed(SessionClosed {
            node: node.id.clone(),
            session,
            reason: closed.reason,
            exit_status: closed.exit_status,
        }));
    }
    for session in &report.opened {
        if open.len() < MOST_SESSIONS && open.insert(session.id) {
            events.push(opened(node, believable(state, session)));
        }
    }
    if !events.is_empty() {
        let mark = SessionMark { instance: report.instance.clone(), sequence: report.sequence };
        events.push(Event::SessionsReported(SessionsReported { node: node.id.clone(), mark }));
    }
    Decision::granted(events)
}

fn opened(node: &Node, session: Session) -> Event {
    Event::SessionOpened(SessionOpened { node: node.id.clone(), session })
}

/// A host's clock may be ahead.
fn believable(state: &State, session: &Session) -> Session {
    Session { opened_at: session.opened_at.min(state.at), ..session.clone() }
}

/// How far a host's reports are on record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionsReported {
    pub node: NodeId,
    pub mark: SessionMark,
}

impl Happened for SessionsReported {
    const NAME: &'static str = "session.reported";
    const AUDITED: bool = false;

    fn fields(&self) -> AuditFields {
        Vec::new()
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.change_node(&self.node, |node| node.sessions.recorded = Some(self.mark.clone()));
    }
}
