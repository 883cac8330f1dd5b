//! The process of a session: it loads the module, does what it is asked on its standard input, and ends with that.

use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, sync_channel};

use rustix::process::{
    DumpableBehavior, Resource, Rlimit, Signal, getpid, kill_process, set_dumpable_behavior, setrlimit,
};
use zeroize::Zeroizing;

use super::error::HsmError;
use super::message::{self, SessionReply, SessionRequest};
use super::module::OpenedToken;
use super::process::GRACE;
use super::session::{FaultCause, SessionFault, TokenSession};

/// Serves the session that is asked for on standard input, and does not return; returns at once if that is not a socket.
pub fn serve_session() {
    let Some(socket) = socket() else { return };
    // The PIN is in its memory.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    if let Some(requests) = watched(&socket) {
        serve(&socket, &requests);
    }
    end();
}

/// Standard input, which becomes `/dev/null`: neither the module nor a program that it starts reads from the socket, or keeps it.
fn socket() -> Option<UnixStream> {
    let socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().ok()?);
    socket.peer_addr().ok()?;
    let nothing = std::fs::File::options().read(true).write(true).open("/dev/null").ok()?;
    rustix::stdio::dup2_stdin(nothing).ok()?;
    Some(socket)
}

/// What is asked, read by a thread of its own: when the other side is gone it ends this process, also one whose module does
/// not return.
fn watched(socket: &UnixStream) -> Option<Receiver<Zeroizing<Vec<u8>>>> {
    let socket = socket.try_clone().ok()?;
    let (sender, requests) = sync_channel(1);
    let watch = move || {
        while let Ok(Some(frame)) = message::read_frame(&socket) {
            if sender.send(frame).is_err() {
                break;
            }
        }
        drop(sender);
        std::thread::sleep(GRACE);
        end();
    };
    std::thread::Builder::new().name("watch".to_owned()).spawn(watch).ok()?;
    Some(requests)
}

/// Without the exit handlers of the module: finalized it is by then, or of no use any more.
fn end() -> ! {
    let _ = kill_process(getpid(), Signal::KILL);
    std::process::abort()
}

/// How far this session has come.
enum Stage {
    New,
    Opened(OpenedToken),
    LoggedIn(TokenSession),
}

fn serve(socket: &UnixStream, requests: &Receiver<Zeroizing<Vec<u8>>>) {
    let mut stage = Stage::New;
    while let Ok(frame) = requests.recv() {
        let Ok(request) = message::parse(&frame) else { break };
        drop(frame);
        let reply;
        (stage, reply) = step(stage, request);
        if message::write(socket, &reply).is_err() {
            break;
        }
    }
    match stage {
        Stage::New => {}
        Stage::Opened(opened) => opened.close(),
        Stage::LoggedIn(session) => session.close(),
    }
}

fn step(stage: Stage, request: SessionRequest) -> (Stage, SessionReply) {
    match (stage, request) {
        (Stage::New, SessionRequest::Open { module, token }) => match OpenedToken::open(&module, token) {
            Ok((opened, status)) if status.needs_login => {
                (Stage::Opened(opened), SessionReply::Opened(status))
            }
            Ok((opened, status)) => (logged_in(opened), SessionReply::Opened(status)),
            Err(fault) => (Stage::New, SessionReply::Failed(fault)),
        },
        (Stage::Opened(opened), SessionRequest::Login { pin }) => match opened.log_in(&pin.0) {
            SessionReply::LoggedIn => (logged_in(opened), SessionReply::LoggedIn),
            other => (Stage::Opened(opened), other),
        },
        (Stage::LoggedIn(mut session), SessionRequest::Perform(request)) => {
            let reply = session.perform(&request).map_or_else(SessionReply::Failed, SessionReply::Done);
            (Stage::LoggedIn(session), reply)
        }
        (stage, _) => {
            let cause = FaultCause::Error(HsmError::Unusable("the session was asked out of turn".to_owned()));
            (stage, SessionReply::Failed(SessionFault::Lost(cause)))
        }
    }
}

fn logged_in(opened: OpenedToken) -> Stage {
    Stage::LoggedIn(TokenSession::new(opened))
}
