//! The connection of a session to the agent, for as long as the session lives. One that is lost is made again: an agent
//! that was away learns of the session as soon as it is back.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use client::Exit;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::wire::{self, FromAgent, FromSession, Lines, Registration, RegistrationRefused, Resumed};
use crate::chance;
use crate::code::{AgentCode, SOCKET_DENIED};
use crate::fault::Fault;

const PATIENCE: Duration = Duration::from_secs(10);
/// Between two attempts to reach an agent that is away, and as much again by chance.
const PAUSE: Duration = Duration::from_millis(500);

/// What the session says of itself, whichever connection hears it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Said {
    pid: Option<u32>,
    closed: Option<Option<u8>>,
}

/// The node is gone, and the session is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terminate;

pub struct AgentLink {
    pub session: Resumed,
    said: watch::Sender<Said>,
    orders: mpsc::Receiver<Terminate>,
    task: JoinHandle<()>,
}

impl AgentLink {
    /// Registers the session. Without the agent's word there is none.
    pub async fn open(path: PathBuf, registration: Registration) -> Result<Self, Fault> {
        let (connection, session) = match timeout(PATIENCE, register(&path, &registration)).await {
            Ok(Ok(Ok(registered))) => registered,
            Ok(Ok(Err(refused))) => return Err(fault(&refused)),
            Ok(Err(error)) => return Err(unreachable(&path, &error)),
            Err(_) => {
                return Err(unavailable(
                    &path,
                    "no answer within 10 s",
                    AgentCode::AgentUnavailable.remedy(),
                ));
            }
        };
        let (said, heard) = watch::channel(Said::default());
        let (order, orders) = mpsc::channel(1);
        let upheld = Upheld { path, registration, session, heard, order };
        Ok(Self { session, said, orders, task: tokio::spawn(upheld.run(connection)) })
    }

    pub fn started(&self, pid: u32) {
        self.said.send_modify(|said| said.pid = Some(pid));
    }

    /// Waits for ever if the session is never to be ended.
    pub async fn terminated(&mut self) {
        if self.orders.recv().await.is_none() {
            std::future::pending().await
        }
    }

    /// The session has ended: the agent hears how, if it is there.
    pub async fn close(self, exit_status: u8) {
        self.said.send_modify(|said| said.closed = Some(Some(exit_status)));
        _ = timeout(Duration::from_secs(2), self.task).await;
    }
}

struct AgentConnection {
    stream: UnixStream,
    lines: Lines,
}

type Registered = Result<(AgentConnection, Resumed), RegistrationRefused>;

async fn register(path: &Path, registration: &Registration) -> io::Result<Registered> {
    let mut stream = UnixStream::connect(path).await?;
    stream.write_all(&wire::line(&FromSession::Session(registration.clone()))?).await?;
    let mut lines = Lines::default();
    let answer = lines.next(&mut stream).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
    match serde_json::from_slice(&answer) {
        Ok(FromAgent::Registered(session)) => Ok(Ok((AgentConnection { stream, lines }, session))),
        Ok(FromAgent::Error(refused)) => Ok(Err(refused)),
        Ok(FromAgent::Terminate { .. }) | Err(_) => {
            Err(io::Error::other("the agent is older than this program and knows no sessions"))
        }
    }
}

/// Why a connection ended.
enum Parted {
    /// The session has, and the agent knows.
    Done,
    Lost,
}

/// Upholds the registration.
struct Upheld {
    path: PathBuf,
    registration: Registration,
    session: Resumed,
    heard: watch::Receiver<Said>,
    order: mpsc::Sender<Terminate>,
}

impl Upheld {
    async fn run(mut self, mut connection: AgentConnection) {
        loop {
            match self.converse(&mut connection).await {
                Ok(Parted::Done) => return,
                Ok(Parted::Lost) | Err(_) => {}
            }
            drop(connection);
            connection = match self.again().await {
                Some(connection) => connection,
                None => return,
            };
        }
    }

    async fn converse(&mut self, connection: &mut AgentConnection) -> io::Result<Parted> {
        let mut sent = Said::default();
        loop {
            let said = *self.heard.borrow_and_update();
            if let Some(pid) = said.pid.filter(|_| sent.pid != said.pid) {
                connection.stream.write_all(&wire::line(&FromSession::Started { pid })?).await?;
            }
            if let Some(exit_status) = said.closed {
                connection.stream.write_all(&wire::line(&FromSession::Closed { exit_status })?).await?;
                connection.stream.shutdown().await?;
                return Ok(Parted::Done);
            }
            sent = said;
            let AgentConnection { stream, lines } = &mut *connection;
            tokio::select! {
                changed = self.heard.changed() => if changed.is_err() { return Ok(Parted::Done) },
                line = lines.next(stream) => match line? {
                    None => return Ok(Parted::Lost),
                    Some(line) => self.ordered(&line),
                },
            }
        }
    }

    fn ordered(&self, line: &[u8]) {
        if let Ok(FromAgent::Terminate { .. }) = serde_json::from_slice(line) {
            // One that is not read yet says the same.
            _ = self.order.try_send(Terminate);
        }
    }

    /// The session goes on, whatever has become of the agent. None once it has ended.
    async fn again(&mut self) -> Option<AgentConnection> {
        loop {
            let jitter = PAUSE.mul_f64(f64::from(chance::number()) / f64::from(u32::MAX));
            tokio::select! {
                () = sleep(PAUSE + jitter) => {}
                changed = self.heard.changed() => {
                    let ended = self.heard.borrow_and_update().closed.is_some();
                    if changed.is_err() || ended {
                        return None;
                    }
                }
            }
            let resumed = Registration { resume: Some(self.session), ..self.registration.clone() };
            match timeout(PATIENCE, register(&self.path, &resumed)).await {
                Ok(Ok(Ok((connection, session)))) => {
                    self.session = session;
                    return Some(connection);
                }
                // The identity is gone: nobody may work here any more.
                Ok(Ok(Err(refused))) if refused.code == AgentCode::IdentityRevokedOrFenced.word() => {
                    _ = self.order.try_send(Terminate);
                }
                // Somebody else has taken the id: a new one, rather than none.
                Ok(Ok(Err(refused))) if is_taken(&refused) => {
                    if let Ok(Ok(Ok((connection, session)))) =
                        timeout(PATIENCE, register(&self.path, &self.registration)).await
                    {
                        self.session = session;
                        return Some(connection);
                    }
                }
                Ok(Ok(Err(_)) | Err(_)) | Err(_) => {}
            }
        }
    }
}

fn is_taken(refused: &RegistrationRefused) -> bool {
    [AgentCode::SessionInUse, AgentCode::SessionNotAllowed].iter().any(|code| code.word() == refused.code)
}

fn unreachable(path: &Path, error: &io::Error) -> Fault {
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied => SOCKET_DENIED,
        _ => AgentCode::AgentUnavailable.remedy(),
    };
    unavailable(path, &error.to_string(), remedy)
}

fn unavailable(path: &Path, what: &str, remedy: &'static str) -> Fault {
    let message =
        format!("the session cannot be registered: {}: {what}; nothing was started", path.display());
    Fault::new(Exit::Unreachable, AgentCode::AgentUnavailable, message, remedy)
}

fn fault(refused: &RegistrationRefused) -> Fault {
    let known = AgentCode::ALL.iter().find(|code| code.word() == refused.code);
    let code = known.copied().unwrap_or(AgentCode::SessionInvalid);
    let message = format!("{}; nothing was started", refused.message);
    Fault::new(Exit::Refused, code, message, refused.hint.clone())
}
