//! One session on the agent's socket, from its registration to its end.
//!
//! Who registers is known by the credentials that the kernel vouches for (SO_PEERCRED): root for any user of this host, everybody
//! else for itself alone. What is to end is known by a process that was looked at when it was named, never by a number that
//! another process may have by now.

use std::io;
use std::time::Duration;

use lifecycle::names::{Label, SessionId, Ulid};
use lifecycle::registry::{CloseReason, Session, SessionKind};
use rustix::process::Pid;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::HostSessions;
use super::register::NoPlace;
use crate::code::AgentCode;
use crate::session::account;
use crate::session::processes::{self, Process, SessionProcesses, SignalRight};
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
/// Until processes that SIGKILL has not ended are killed again.
const KILL_AGAIN: Duration = Duration::from_secs(10);

/// Who is at the other end, by the kernel's word.
#[derive(Debug, Clone, Copy)]
struct SocketCaller {
    uid: u32,
    pid: u32,
}

type SessionRefusal = (AgentCode, String);

pub async fn serve(sessions: &HostSessions, mut stream: UnixStream, first: Vec<u8>) {
    let opened = open(sessions, &stream, &first).await;
    let (session, process, right) = match opened {
        Ok(opened) => opened,
        Err((code, message)) => {
            sessions.register().refused += 1;
            return refuse(stream, code, message, code.remedy().to_owned()).await;
        }
    };
    let id = session.id;
    tracing::info!(session_id = %id, kind = %session.kind, user = %session.user, "session opened");
    sessions.0.changed.notify_one();
    let registered = Resumed { session_id: id, opened_at: session.opened_at };
    let mut held = HeldSession { id, process, right, orphan: None, terminated: false };
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
    if held.terminated || matches!(end, SessionEnd::Vanished) {
        held.end_rest().await;
    }
    sessions.register().close(id, reason, exit_status);
    sessions.0.changed.notify_one();
    tracing::info!(session_id = %id, %reason, "session closed");
}

pub async fn refuse(mut stream: UnixStream, code: AgentCode, message: String, hint: String) {
    let code = code.word().to_owned();
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
) -> Result<(Session, EndingProcess, SignalRight), SessionRefusal> {
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
    sessions.register().open(session.clone(), caller.uid, again, Instant::now()).map_err(no_place)?;
    let allowed = match may_register(caller, &wanted.user).await {
        Ok(()) if wanted.resume.is_some() => may_resume(caller, session.id).await,
        checked => checked,
    };
    if let Err(refusal) = allowed {
        sessions.register().withdraw(session.id);
        return Err(refusal);
    }
    Ok((session, process, SignalRight::of(caller.uid)))
}

/// A session of another user goes on as that user's alone.
async fn may_resume(caller: SocketCaller, id: SessionId) -> Result<(), SessionRefusal> {
    let right = SignalRight::of(caller.uid);
    let Some(pid) = i32::try_from(caller.pid).ok().and_then(Pid::from_raw) else { return Ok(()) };
    if right == SignalRight::Any {
        return Ok(());
    }
    let text = id.to_string();
    let look = tokio::task::spawn_blocking(move || processes::is_of_another(&text, right, pid));
    if matches!(look.await, Ok(false)) {
        return Ok(());
    }
    let what = format!("session {id} has processes that are not of user id {}", caller.uid);
    Err((AgentCode::SessionNotAllowed, what))
}

fn drawn() -> Result<SessionId, SessionRefusal> {
    let failed = |error: io::Error| (AgentCode::RuntimeFailed, error.to_string());
    let chance = chance::bytes().map_err(failed)?;
    Ok(SessionId(Ulid::new(clock::now(), chance)))
}

fn no_place(why: NoPlace) -> SessionRefusal {
    match why {
        NoPlace::Full => (AgentCode::TooManySessions, "256 sessions are open on this host".to_owned()),
        NoPlace::UserFull => {
            (AgentCode::TooManySessions, "64 sessions are open that this user has registered".to_owned())
        }
        NoPlace::ReservedForRoot => {
            let what =
                "192 sessions are open that others than root have registered, and the rest is for root";
            (AgentCode::TooManySessions, what.to_owned())
        }
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
    let pid = wanted.pid.filter(|_| !wanted.supervised).unwrap_or(caller.pid);
    let process = processes::process(pid).map_err(gone)?;
    // The caller too may be gone by now, and another process have its number.
    own(caller, process)?;
    Ok(if wanted.supervised { EndingProcess::Supervisor(process) } else { EndingProcess::Itself(process) })
}

/// Nobody but root has the agent end processes of others.
fn own(caller: SocketCaller, process: Process) -> Result<(), SessionRefusal> {
    if SignalRight::of(caller.uid).covers(process.pid) {
        return Ok(());
    }
    let (pid, uid) = (process.pid, caller.uid);
    Err((AgentCode::SessionNotAllowed, format!("process {pid} is not of user id {uid}")))
}

struct HeldSession {
    id: SessionId,
    process: EndingProcess,
    /// That of whoever registered it.
    right: SignalRight,
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
                    self.orphan = named.filter(|named| below.iter().any(|one| one.is_same(named)));
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
                let session = SessionProcesses::whole(process, self.right);
                self.end(session).await;
                SessionEnd::Vanished
            }
            EndingProcess::Supervisor(process) => {
                if told.is_ok()
                    && let Some(end) =
                        self.await_end(stream, lines, Instant::now() + GRACE + SUPERVISOR).await
                {
                    return end;
                }
                let mut supervisor = SessionProcesses::whole(process, self.right);
                if !supervisor.kill(|| ()).await {
                    self.kill_on(supervisor).await;
                }
                SessionEnd::Vanished
            }
        }
    }

    /// Whoever stood for it is gone, or was to end it: nobody would know of what is left. What has another parent by now
    /// has the session's id still.
    async fn end_rest(&self) {
        match self.process {
            EndingProcess::Supervisor(_) => {
                let id = self.id.to_string();
                self.end(SessionProcesses::marked(&id, self.right).with(self.orphan)).await;
            }
            EndingProcess::Itself(_) => {}
        }
    }

    async fn end(&self, mut processes: SessionProcesses) {
        if !processes.end(GRACE, || ()).await {
            self.kill_on(processes).await;
        }
    }

    /// A session has not ended while a process of it is left.
    async fn kill_on(&self, mut processes: SessionProcesses) {
        loop {
            let (session_id, left) = (self.id, processes.count());
            tracing::error!(%session_id, left, "processes of a session that must end are left after SIGKILL");
            sleep(KILL_AGAIN).await;
            if processes.kill(|| ()).await {
                return;
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
