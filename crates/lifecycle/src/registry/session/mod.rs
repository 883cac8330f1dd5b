//! Sessions: shells and commands that somebody runs on a node. A host says which are open; nobody starts one from here.

pub(super) mod close;
pub(super) mod open;
pub(super) mod report;

use super::Node;
use crate::names::{Label, SessionId, Timestamp};
use serde::{Deserialize, Serialize};

/// Sessions that may be open on one node.
pub const MOST_SESSIONS: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionKind {
    Shell,
    Exec,
}

impl SessionKind {
    pub const ALL: [SessionKind; 2] = [SessionKind::Shell, SessionKind::Exec];

    pub fn as_str(self) -> &'static str {
        match self {
            SessionKind::Shell => "shell",
            SessionKind::Exec => "exec",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

impl std::fmt::Display for SessionKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A host's own word; nobody has checked it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    pub id: SessionId,
    pub kind: SessionKind,
    /// Whom it runs for, on the host.
    pub user: Label,
    pub opened_at: Timestamp,
}

/// What is known of the sessions of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSessions {
    /// In the order in which they came on record.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<Session>,
    /// Up to where the host's reports are on record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<SessionMark>,
    /// How many ended with the node.
    #[serde(default, skip_serializing_if = "is_none")]
    pub terminated: u32,
}

/// A host counts its changes anew with every start of its agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionMark {
    pub instance: Label,
    pub sequence: u64,
}

fn is_none(count: &u32) -> bool {
    *count == 0
}

impl NodeSessions {
    pub fn is_blank(&self) -> bool {
        *self == Self::default()
    }

    pub fn is_open(&self, id: SessionId) -> bool {
        self.open.iter().any(|session| session.id == id)
    }

    pub fn count(&self) -> u32 {
        u32::try_from(self.open.len()).unwrap_or(u32::MAX)
    }

    /// How far the reports of this start of its agent are on record.
    fn recorded_of(&self, instance: &Label) -> u64 {
        self.recorded.as_ref().filter(|mark| mark.instance == *instance).map_or(0, |mark| mark.sequence)
    }
}

impl Node {
    /// Every open session ends.
    pub(super) fn closing_all(&self, reason: close::CloseReason) -> impl Iterator<Item = super::Event> + '_ {
        self.sessions.open.iter().map(move |session| {
            super::Event::SessionClosed(close::SessionClosed {
                node: self.id.clone(),
                session: session.clone(),
                reason,
                exit_status: None,
            })
        })
    }
}
