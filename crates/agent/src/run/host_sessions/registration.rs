//! One session on the agent's socket, from its registration to its end.
//!
//! Who registers is known by the credentials that the kernel vouches for (SO_PEERCRED): root for any user of this host, everybody
//! else for itself alone. What is to end is known by a process that was looked at when it was named, never by a number that
//! another process may have by now.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use lifecycle::names::{Label, SessionId, Ulid};
use lifecycle::registry::{CloseReason, Session, SessionKind};
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::HostSessions;
use super::register::NoPlace;
use crate::code::AgentCode;
use crate::session::account;
use crate::session::processes::{self, Process, SessionTree};
use crate::session::wire::{
    self, FromAgent, FromSession, GRACE_SECONDS, LINE, Lines, Registration, RegistrationRefused, Resumed,
};
use crate::{chance, clock};

const GRACE: Duration = Duration::from_secs(GRACE_SECONDS);
/// What a supervisor that has been told to end its session may take beyond the grace.
const SUPERVISOR: Duration = Duration::from_secs(3);
/// How long the user database may take.
const LOOKUP: Duration = Duration::from_secs(5);
const WRITE: Duration = Duration::from_secs(5);

/// Who is at the other end, by the kernel's word.
#[derive(Debug, Clone, Copy)]
struct SocketCaller {
    uid: u32,
    pid: u32,
}

type SessionRefusal = (AgentCode, String);

pub async fn serve(sessions: &HostSessions, mut stream: UnixStream, first: Vec<u8>) {
    let opened = open(sessions, &stream, &first).await;
    let (session, process) = match opened {
        Ok(opened) => opened,
        Err((code, message)) => {
            sessions.register().refused += 1;
            return refuse(stream, code, message).await;
        }
    };
    let id = session.id;
    tracing::info!(session_id = %id, kind = %session.kind, user = %session.user, "session opened");
    sessions.0.changed.notify_one();
    let registered = Resumed { session_id: id, opened_at: session.opened_at };
    let mut held = HeldSession { process, orphan: None, terminated: false };
    let end = match say(&mut stream, &FromAgent::Registered(registered)).await {
        Ok(()) => held.hear(sessions, &mut stream, first).await,
        Err(_) => SessionEnd::Vanished,
    };
    let (reason, exit_status) = match end {
        SessionEnd::Said(exit_status) if held.terminated => (CloseReason::Terminated, exit_status),
        SessionEnd::Said(exit_status) => (CloseReason::Ended, exit_status),
        SessionEnd::Vanished if held.terminated => (CloseReason::Terminated, None),
        SessionEnd::Vanished => (CloseReason::Lost, None),
    };
    sessions.register().close(id, reason, exit_status);
    sessions.0.changed.notify_one();
    tracing::info!(session_id = %id, %reason, "session closed");
    if let (SessionEnd::Vanished, EndingProcess::Supervisor(_)) = (end, held.process) {
        // Whoever stood for it is gone: nobody would know of what is left. What has another parent by now has its id still.
        for process in held.orphan.into_iter().chain(processes::of_session(&id.to_string())) {
            SessionTree::whole(process).end(GRACE, || ()).await;
        }
    }
}

pub async fn refuse(mut stream: UnixStream, code: AgentCode, message: String) {
    let (code, hint) = (code.word().to_owned(), code.remedy().to_owned());
    _ = say(&mut stream, &FromAgent::Error(RegistrationRefused { code, message, hint })).await;
}

/// How it ended.
#[derive(Debug, Clone, Copy)]
enum SessionEnd {
    Said(Option<u8>),
    /// Only the connection did.
    Vanished,
}

async fn open(
    sessions: &HostSessions,
    stream: &UnixStream,
    first: &[u8],
) -> Result<(Session, EndingProcess), SessionRefusal> {
    let invalid = |what: String| (AgentCode::SessionInvalid, what);
    let line = first.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let wanted = match serde_json::from_slice(line) {
        Ok(FromSession::Session(wanted)) => wanted,
        Ok(FromSession::Started { .. } | FromSession::Closed { .. }) => {
            return Err(invalid("the first line must register a session".to_owned()));
        }
        Err(error) => return Err(invalid(format!("the registration cannot be read: {error}"))),
    };
    let unknown =
        |error: io::Error| (AgentCode::SessionNotAllowed, format!("the caller is not known: {error}"));
    let credentials = stream.peer_cred().map_err(unknown)?;
    let pid = credentials.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0);
    let pid = pid.ok_or_else(|| invalid("the caller is a process that this host cannot see".to_owned()))?;
    let caller = SocketCaller { uid: credentials.uid(), pid };
    if *sessions.0.ending.borrow() {
        let what = "this host's identity is revoked: nobody may open a session on it".to_owned();
        return Err((AgentCode::IdentityRevokedOrFenced, what));
    }
    let kind =
        SessionKind::parse(&wanted.kind).ok_or_else(|| invalid("kind must be shell or exec".to_owned()))?;
    let user = Label::parse(&wanted.user).map_err(|_| invalid("user is no user's name".to_owned()))?;
    let process = ending_process(caller, &wanted)?;
    let session = Session {
        id: wanted.resume.map_or_else(drawn, |resumed| Ok(resumed.session_id))?,
        kind,
        user,
        opened_at: wanted.resume.map_or_else(clock::now, |resumed| resumed.opened_at.min(clock::now())),
    };
    let again = wanted.resume.is_some() && sessions.is_resuming();
    // A place before the user is looked up: that may cost a process.
    sessions.register().open(session.clone(), again, Instant::now()).map_err(no_place)?;
    if let Err(refusal) = may_register(caller, &wanted.user).await {
        sessions.register().withdraw(session.id);
        return Err(refusal);
    }
    Ok((session, process))
}

fn drawn() -> Result<SessionId, SessionRefusal> {
    let failed = |error: io::Error| (AgentCode::RuntimeFailed, error.to_string());
    let chance = chance::bytes().map_err(failed)?;
    Ok(SessionId(Ulid::new(clock::now(), chance)))
}

fn no_place(why: NoPlace) -> SessionRefusal {
    match why {
        NoPlace::Full => (AgentCode::TooManySessions, "256 sessions are open on this host".to_owned()),
        NoPlace::TooFast => {
            (AgentCode::TooManySessions, "too many sessions were registered in a short time".to_owned())
        }
        NoPlace::InUse => (AgentCode::SessionInUse, "the session is registered already".to_owned()),
    }
}

/// Root speaks for every user that there is, and everybody for itself.
async fn may_register(caller: SocketCaller, user: &str) -> Result<(), SessionRefusal> {
    let name = user.to_owned();
    let lookup = tokio::task::spawn_blocking(move || account::find(&name));
    let failed = |what: String| (AgentCode::SessionUserUnknown, what);
    let found = match timeout(LOOKUP, lookup).await {
        Ok(Ok(Ok(found))) => found,
        Ok(Ok(Err(error))) => return Err(failed(format!("the users of this host cannot be read: {error}"))),
        Ok(Err(_)) | Err(_) => return Err(failed("the users of this host cannot be read".to_owned())),
    };
    let found = found.ok_or_else(|| failed(format!("this host has no user {user:?}")))?;
    if caller.uid == 0 || found.uid.as_raw() == caller.uid {
        return Ok(());
    }
    let what = format!("user id {} may not register a session of {user}", caller.uid);
    Err((AgentCode::SessionNotAllowed, what))
}

/// What is ended when the session must end.
#[derive(Debug, Clone, Copy)]
enum EndingProcess {
    /// The caller ends the session, and is ended itself if it does not.
    Supervisor(Process),
    /// The process that is the session.
    Itself(Process),
}

fn ending_process(caller: SocketCaller, wanted: &Registration) -> Result<EndingProcess, SessionRefusal> {
    let gone = |_| (AgentCode::SessionInvalid, "there is no such process".to_owned());
    if wanted.supervised {
        return processes::process(caller.pid).map(EndingProcess::Supervisor).map_err(gone);
    }
    let pid = wanted.pid.unwrap_or(caller.pid);
    let process = processes::process(pid).map_err(gone)?;
    own(caller, pid)?;
    Ok(EndingProcess::Itself(process))
}

/// Nobody but root has the agent end processes of others.
fn own(caller: SocketCaller, pid: u32) -> Result<(), SessionRefusal> {
    let owner = std::fs::metadata(format!("/proc/{pid}")).map(|found| found.uid());
    if caller.uid == 0 || owner.is_ok_and(|owner| owner == caller.uid) {
        return Ok(());
    }
    Err((AgentCode::SessionNotAllowed, format!("process {pid} is not of user id {}", caller.uid)))
}

struct HeldSession {
    process: EndingProcess,
    /// The command of a supervised session: what is left when its supervisor is gone.
    orphan: Option<Process>,
    terminated: bool,
}

impl HeldSession {
    async fn hear(&mut self, sessions: &HostSessions, stream: &mut UnixStream, first: Vec<u8>) -> SessionEnd {
        let end = first.iter().position(|byte| *byte == b'\n').map_or(first.len(), |at| at + 1);
        let mut lines = Lines::after(first.get(end..).unwrap_or_default().to_vec());
        let mut ending = sessions.0.ending.subscribe();
        loop {
            tokio::select! {
                line = lines.next(stream) => match line.map(|line| line.map(|line| self.said(&line))) {
                    Ok(Some(None)) => {}
                    Ok(Some(Some(exit_status))) => return SessionEnd::Said(exit_status),
                    Ok(None) | Err(_) => return SessionEnd::Vanished,
                },
                () = identity_gone(&mut ending), if !self.terminated => {
                    self.terminated = true;
                    return self.terminate(stream, &mut lines).await;
                }
            }
        }
    }

    /// The exit status, if it has ended. What cannot be read says nothing.
    fn said(&mut self, line: &[u8]) -> Option<Option<u8>> {
        match serde_json::from_slice(line) {
            Ok(FromSession::Closed { exit_status }) => Some(exit_status),
            Ok(FromSession::Started { pid }) => {
                if let EndingProcess::Supervisor(supervisor) = self.process {
                    // Its own child, and nobody else's.
                    let below = processes::descendants(supervisor.pid);
                    let named = processes::process(pid).ok();
                    self.orphan = named.filter(|named| below.contains(named));
                }
                None
            }
            Ok(FromSession::Session(_)) | Err(_) => None,
        }
    }

    /// SIGHUP and SIGKILL, by the supervisor or by this agent. Ends with the session.
    async fn terminate(&mut self, stream: &mut UnixStream, lines: &mut Lines) -> SessionEnd {
        let told = say(stream, &FromAgent::Terminate { grace_seconds: GRACE_SECONDS }).await;
        match self.process {
            EndingProcess::Itself(process) => {
                SessionTree::whole(process).end(GRACE, || ()).await;
                SessionEnd::Vanished
            }
            EndingProcess::Supervisor(process) => {
                if told.is_ok()
                    && let Some(end) =
                        self.await_end(stream, lines, Instant::now() + GRACE + SUPERVISOR).await
                {
                    return end;
                }
                SessionTree::whole(process).kill(|| ()).await;
                SessionEnd::Vanished
            }
        }
    }

    async fn await_end(
        &mut self,
        stream: &mut UnixStream,
        lines: &mut Lines,
        until: Instant,
    ) -> Option<SessionEnd> {
        loop {
            tokio::select! {
                line = lines.next(stream) => match line.map(|line| line.map(|line| self.said(&line))) {
                    Ok(Some(None)) => {}
                    Ok(Some(Some(exit_status))) => return Some(SessionEnd::Said(exit_status)),
                    Ok(None) | Err(_) => return Some(SessionEnd::Vanished),
                },
                () = sleep_until(until) => return None,
            }
        }
    }
}

async fn identity_gone(ending: &mut watch::Receiver<bool>) {
    // The sender lives as long as the agent does.
    _ = ending.wait_for(|ending| *ending).await.is_ok();
}

async fn say(stream: &mut UnixStream, message: &FromAgent) -> io::Result<()> {
    let line = wire::line(message)?;
    debug_assert!(line.len() <= LINE, "an answer is short");
    timeout(WRITE, stream.write_all(&line)).await.map_err(|_| io::ErrorKind::TimedOut)?
}
