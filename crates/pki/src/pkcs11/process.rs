//! One session: a process of its own, at the other end of a socket.

use std::io::{ErrorKind, Read};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::TokenSettings;
use super::error::HsmError;
use super::message::{self, SessionReply, SessionRequest};
use super::pool::DEADLINE;
use super::program::SessionProgram;

/// How long a session that is told to end may take to close itself in its token.
pub(super) const GRACE: Duration = Duration::from_secs(1);

pub(super) struct SessionProcess {
    child: Child,
    socket: Arc<UnixStream>,
    module: String,
    is_reaped: bool,
}

impl SessionProcess {
    pub fn start(program: &SessionProgram, settings: &TokenSettings) -> Result<Self, HsmError> {
        let module = settings.module_name();
        let failed = |error: std::io::Error| HsmError::Session {
            module: module.clone(),
            why: format!("could not be started: {error}"),
        };
        let (socket, other) = UnixStream::pair().map_err(failed)?;
        let child = program.command().stdin(OwnedFd::from(other)).spawn().map_err(failed)?;
        Ok(Self { child, socket: Arc::new(socket), module, is_reaped: false })
    }

    /// Asks, and waits for the answer. A session that gives none is killed.
    pub fn ask(
        &mut self,
        request: &SessionRequest,
        by: Instant,
        exchanges: &Exchanges,
    ) -> Result<SessionReply, HsmError> {
        let Some(_exchange) = exchanges.begin(&self.socket) else { return Err(HsmError::Closed) };
        let answered = self.exchange(request, by);
        answered.map_err(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                self.kill();
                HsmError::Late(DEADLINE.as_secs())
            }
            _ => self.failure(&error),
        })
    }

    fn exchange(&self, request: &SessionRequest, by: Instant) -> std::io::Result<SessionReply> {
        let left = by.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        self.socket.set_write_timeout(Some(left))?;
        message::write(&*self.socket, request)?;
        let frame = message::read_frame(Timed { socket: &self.socket, by })?;
        message::parse(&frame.ok_or(ErrorKind::UnexpectedEof)?)
    }

    /// Of a session that answers no more, or something else than an answer.
    fn failure(&mut self, error: &std::io::Error) -> HsmError {
        let why = match (self.kill(), error.kind()) {
            (Some(status), ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                format!("ended ({status})")
            }
            _ => format!("gave no answer that can be read: {error}"),
        };
        HsmError::Session { module: self.module.clone(), why }
    }

    /// Whether the process has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        let ended = self.child.try_wait().is_ok_and(|status| status.is_some());
        self.is_reaped |= ended;
        ended
    }

    /// At once, whatever its module is at.
    pub fn kill(&mut self) -> Option<std::process::ExitStatus> {
        // Of a process that has ended, the status is how it did.
        let _ = self.child.kill();
        let status = self.child.wait().ok();
        self.is_reaped = true;
        status
    }
}

impl Drop for SessionProcess {
    /// Tells it to end, and kills it if it does not soon.
    fn drop(&mut self) {
        if self.is_reaped {
            return;
        }
        let told = self.socket.shutdown(Shutdown::Write);
        if told.and_then(|()| self.socket.set_read_timeout(Some(GRACE))).is_ok() {
            // Its end of the socket is closed when it ends.
            let _ = (&*self.socket).read(&mut [0]);
        }
        self.kill();
    }
}

/// Reads until a time: a timeout of the socket is for each read.
struct Timed<'a> {
    socket: &'a UnixStream,
    by: Instant,
}

impl Read for Timed<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let left = self.by.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.socket.set_read_timeout(Some(left))?;
        let mut socket = self.socket;
        socket.read(into)
    }
}

/// The sockets on which an answer is awaited, so that [`Exchanges::close`] tells these sessions to end too.
#[derive(Default)]
pub(super) struct Exchanges(Mutex<AwaitedSockets>);

#[derive(Default)]
struct AwaitedSockets {
    is_closed: bool,
    sockets: Vec<Arc<UnixStream>>,
}

pub(super) struct Exchange<'a> {
    exchanges: &'a Exchanges,
    socket: Arc<UnixStream>,
}

impl Exchanges {
    fn lock(&self) -> MutexGuard<'_, AwaitedSockets> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// None when it is over.
    fn begin(&self, socket: &Arc<UnixStream>) -> Option<Exchange<'_>> {
        let mut awaited = self.lock();
        if awaited.is_closed {
            return None;
        }
        awaited.sockets.push(socket.clone());
        Some(Exchange { exchanges: self, socket: socket.clone() })
    }

    /// Nobody waits for what they are at, but they are not killed in the middle of it: a token that keeps its state in files
    /// may be left with half of one.
    pub fn close(&self) {
        let mut awaited = self.lock();
        awaited.is_closed = true;
        for socket in &awaited.sockets {
            let _ = socket.shutdown(Shutdown::Write);
        }
    }

    pub fn is_closed(&self) -> bool {
        self.lock().is_closed
    }
}

impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        self.exchanges.lock().sockets.retain(|socket| !Arc::ptr_eq(socket, &self.socket));
    }
}
