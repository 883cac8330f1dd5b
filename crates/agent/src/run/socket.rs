//! `DIR/agent.sock`, or where else the daemon answers: whoever may enter the directory can ask the daemon how it is, and register
//! sessions. One line `status` in, one line of JSON out; a line of JSON is a session's (see `session::wire`).

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lifecycle::registry::MOST_SESSIONS;
use rustix::process::geteuid;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::accept;
use super::host_sessions::{self, HostSessions};
use crate::config::{AgentConfig, KeyStorage};
use crate::session::wire::LINE;
use crate::status::Status;
use crate::store::dir::is_writable;
use crate::store::disk;

const NAME: &str = "agent.sock";
const PATIENCE: Duration = Duration::from_secs(2);
/// A longer question is none of ours.
const QUESTION: usize = 64;
/// Open connections: one for each session, and some who ask.
const CONNECTIONS: usize = MOST_SESSIONS + 64;
/// More than any status: two merged configuration documents, and the rest.
const ANSWER: u64 = 2 * 1024 * 1024;

/// Where an agent answers that keeps nothing in its directory, and cannot write there either.
const WITHOUT_DIR: &str = "/run/enlist-agent/agent.sock";

pub fn path(dir: &Path) -> PathBuf {
    dir.join(NAME)
}

/// Where the daemon is to answer.
pub fn place(dir: &Path, config: &AgentConfig) -> PathBuf {
    match (&config.socket, config.storage) {
        (Some(path), KeyStorage::Disk | KeyStorage::Memory) => path.clone(),
        (None, KeyStorage::Memory) if !is_writable(dir) => PathBuf::from(WITHOUT_DIR),
        (None, KeyStorage::Disk | KeyStorage::Memory) => path(dir),
    }
}

/// Answers in the background, until that is aborted. The place is held, so a socket that lies there is a dead daemon's.
/// Without `sessions`, because the host is not enrolled yet, only the status is told.
pub fn serve(
    path: &Path,
    status: watch::Receiver<Status>,
    sessions: Option<HostSessions>,
) -> io::Result<AbortHandle> {
    disk::remove(path)?;
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(disk::SECRET))?;
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let serving = tokio::spawn(async move {
        loop {
            // Those beyond wait in the listener's own queue.
            let Ok(place) = places.clone().acquire_owned().await else { return };
            let (stream, _) = accept::next(|| listener.accept()).await;
            let (status, sessions) = (status.clone(), sessions.clone());
            // Whoever is slow only keeps itself waiting.
            tokio::spawn(async move {
                answer(stream, status, sessions).await;
                drop(place);
            });
        }
    });
    Ok(serving.abort_handle())
}

async fn answer(mut stream: UnixStream, status: watch::Receiver<Status>, sessions: Option<HostSessions>) {
    let Ok(Ok(question)) = timeout(PATIENCE, question(&mut stream)).await else { return };
    match sessions {
        Some(sessions) if question.starts_with(b"{") => sessions.serve(stream, question).await,
        None if question.starts_with(b"{") => {
            let waiting = status.borrow().waiting.clone();
            _ = timeout(PATIENCE, host_sessions::refuse(stream, waiting)).await;
        }
        Some(_) | None => _ = timeout(PATIENCE, tell(stream, &question, status)).await,
    }
}

/// The first line, and what came with it.
async fn question(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let mut question = Vec::new();
    loop {
        let most = if question.starts_with(b"{") { LINE } else { QUESTION };
        if question.len() >= most || question.contains(&b'\n') || stream.read_buf(&mut question).await? == 0 {
            return Ok(question);
        }
    }
}

async fn tell(mut stream: UnixStream, question: &[u8], status: watch::Receiver<Status>) -> io::Result<()> {
    let mut line = match question.trim_ascii() {
        b"status" | b"" => {
            let asking = stream.peer_cred()?.uid();
            let is_ours = asking == 0 || asking == geteuid().as_raw();
            let mut status = status.borrow().clone();
            // Whoever has the id of a session can ask to go on with it.
            status.sessions.retain(|session| is_ours || session.owner == asking);
            serde_json::to_vec(&status)?
        }
        _ => br#"{"error":"unknown question, expected status"}"#.to_vec(),
    };
    line.push(b'\n');
    stream.write_all(&line).await?;
    stream.shutdown().await
}

/// What the daemon of this directory says; nothing if there is none that answers. What the daemon may write, whoever asks
/// cannot know, so both places are asked where none was named.
pub fn ask(dir: &Path, config: Option<&AgentConfig>) -> Option<Status> {
    if let Some(named) = config.and_then(|config| config.socket.as_deref()) {
        return ask_at(named);
    }
    ask_at(&path(dir)).or_else(|| ask_at(Path::new(WITHOUT_DIR)).filter(|status| is_of(status, dir)))
}

/// The socket that this user may not open, if there is one where the daemon of this directory would answer.
pub fn denied(dir: &Path, config: Option<&AgentConfig>) -> Option<PathBuf> {
    let named = config.and_then(|config| config.socket.clone());
    let usual = || vec![path(dir), PathBuf::from(WITHOUT_DIR)];
    let is_denied = |path: &PathBuf| {
        StdUnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    };
    named.map_or_else(usual, |named| vec![named]).into_iter().find(is_denied)
}

/// Where the daemon of this directory answers, as far as whoever asks can tell.
pub fn found(dir: &Path, config: Option<&AgentConfig>) -> PathBuf {
    if let Some(named) = config.and_then(|config| config.socket.clone()) {
        return named;
    }
    let elsewhere = || ask_at(Path::new(WITHOUT_DIR)).is_some_and(|status| is_of(&status, dir));
    if !path(dir).exists() && elsewhere() { PathBuf::from(WITHOUT_DIR) } else { path(dir) }
}

fn is_of(status: &Status, dir: &Path) -> bool {
    status.disk.path == dir.display().to_string()
}

fn ask_at(path: &Path) -> Option<Status> {
    let mut stream = StdUnixStream::connect(path).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    stream.write_all(b"status\n").ok()?;
    let mut line = String::new();
    stream.take(ANSWER).read_to_string(&mut line).ok()?;
    serde_json::from_str(&line).ok()
}
