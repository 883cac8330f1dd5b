//! The sessions that run on this host: who may register one, which are open, and what the control plane has yet to hear of them.

mod register;
mod registration;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::agent::{OpenSession, Sessions};
use tokio::net::UnixStream;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};

use crate::code::AgentCode;
use crate::status::{SessionStatus, Status, WaitingFor};
use register::SessionRegister;

/// After a start, sessions that have outlived the agent before announce themselves again: until then nobody knows which are
/// gone.
const RESUMING: Duration = Duration::from_secs(10);
/// A session whose agent was away asks for it at least every second.
const ANNOUNCED: Duration = Duration::from_secs(4);
/// How long an agent that is about to end waits for sessions that are to end.
const ENDING: Duration = Duration::from_secs(20);

#[derive(Clone)]
pub struct HostSessions(Arc<SharedSessions>);

struct SharedSessions {
    register: Mutex<SessionRegister>,
    /// Something is new for the control plane.
    changed: Notify,
    /// Whether this host's identity is gone, so that nobody may work here.
    ending: watch::Sender<bool>,
    started: Instant,
}

impl HostSessions {
    pub fn new() -> Self {
        Self(Arc::new(SharedSessions {
            register: Mutex::default(),
            changed: Notify::new(),
            ending: watch::Sender::new(false),
            started: Instant::now(),
        }))
    }

    fn register(&self) -> MutexGuard<'_, SessionRegister> {
        self.0.register.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves one connection whose first line asks for a session, until that has ended.
    pub async fn serve(&self, stream: UnixStream, first: Vec<u8>) {
        registration::serve(self, stream, first).await;
    }

    pub async fn changed(&self) {
        self.0.changed.notified().await;
    }

    /// When all that have outlived an earlier agent must have announced themselves; nothing once that is over.
    pub fn wake(&self) -> Option<Instant> {
        (!self.register().complete).then(|| self.0.started + RESUMING)
    }

    pub fn tick(&self) {
        if Instant::now() >= self.0.started + RESUMING {
            self.register().resumed();
        }
    }

    fn is_resuming(&self) -> bool {
        Instant::now() < self.0.started + RESUMING
    }

    /// Whether the control plane says that this identity is gone. Open sessions end, and no new ones begin.
    pub fn identity_gone(&self, gone: bool) {
        self.0.ending.send_if_modified(|ending| std::mem::replace(ending, gone) != gone);
    }

    /// Waits until they have ended, for as long as that may take; those too that have outlived an earlier agent and have yet
    /// to hear of it.
    pub async fn ended(&self) {
        let none_left = async {
            sleep_until(self.0.started + ANNOUNCED).await;
            while !self.register().open.is_empty() {
                self.changed().await;
            }
        };
        _ = timeout(ENDING, none_left).await;
    }

    /// The latest change, by which a connection tells whether it has sent it.
    pub fn sequence(&self) -> u64 {
        self.register().sequence
    }

    /// Whether there is anything to say of sessions.
    pub fn is_blank(&self) -> bool {
        let register = self.register();
        register.open.is_empty() && register.ended.is_empty()
    }

    pub fn message(&self) -> Sessions {
        self.register().message()
    }

    /// The control plane has everything up to here on record.
    pub fn recorded(&self, sequence: u64) {
        if self.register().recorded(sequence) {
            self.0.changed.notify_one();
        }
    }

    pub fn status(&self, status: &mut Status) {
        let register = self.register();
        let told = register.open.values().map(|open| SessionStatus::of(&open.session, open.owner));
        status.sessions = told.collect();
    }

    /// How many are open, and how many registrations were refused.
    pub fn counts(&self) -> (u64, u64) {
        let register = self.register();
        (register.open.len() as u64, register.refused)
    }
}

/// A host that is not enrolled has no sessions: nobody would know of them.
pub async fn refuse(stream: UnixStream, waiting: Option<WaitingFor>) {
    let code = AgentCode::NotEnrolled;
    let (message, hint) = match waiting {
        Some(WaitingFor { code, message, remedy }) => {
            (format!("this host is not enrolled yet: {code}: {message}"), remedy)
        }
        None => ("this host is not enrolled yet".to_owned(), code.remedy().to_owned()),
    };
    registration::refuse(stream, code, message, hint).await;
}

fn sent(session: &lifecycle::registry::Session) -> OpenSession {
    OpenSession {
        session_id: session.id.to_string(),
        kind: session.kind.to_string(),
        user: session.user.to_string(),
        opened_at_ms: session.opened_at.millis(),
    }
}
