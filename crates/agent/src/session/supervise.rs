//! The supervisor of a session: starts the command, passes signals on, ends what is to end, and reports how.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus};
use std::time::Duration;

use client::Exit;
use rustix::process::{Pid, Signal as Number, getpid, kill_process, kill_process_group, set_child_subreaper};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

use super::account::HostUser;
use super::link::AgentLink;
use super::principal;
use super::processes::{Process, SessionProcesses, descendants, reap_orphans};
use super::wire::GRACE_SECONDS;
use crate::code::AgentCode;
use crate::fault::Fault;
use crate::output;

const GRACE: Duration = Duration::from_secs(GRACE_SECONDS);
/// How long what is left may take to end before anybody is told of it.
const UNTOLD: Duration = Duration::from_millis(500);

pub async fn run(
    command: &[OsString],
    user: &HostUser,
    mut link: AgentLink,
    json: bool,
) -> Result<u8, Fault> {
    let unusable = |error: io::Error| {
        Fault::host(AgentCode::RuntimeFailed, error.to_string(), AgentCode::RuntimeFailed.remedy())
    };
    // What the command leaves behind becomes a child of this process, and not of another.
    set_child_subreaper(Some(getpid())).map_err(|error| unusable(error.into()))?;
    let mut exits = signal(SignalKind::child()).map_err(unusable)?;
    let mut passed = PassedSignals::listen().map_err(unusable)?;
    let terminal = io::stdin().is_terminal();
    let started = principal::start(command, user, &link.session.session_id.to_string(), !terminal);
    let mut child = match started {
        Ok(child) => Supervised { child, terminal },
        Err(error) => {
            let status = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
            link.close(status).await;
            output::error(&not_started(command, &error), json);
            return Ok(status);
        }
    };
    link.started(child.child.id());
    let mut terminating = false;
    let status = loop {
        if let Some(status) = child.ended().map_err(unusable)? {
            break status;
        }
        tokio::select! {
            _ = exits.recv() => {}
            number = passed.next() => child.forward(number),
            () = link.terminated(), if !terminating => {
                terminating = true;
                output::notice("the node was decommissioned or revoked: this session ends");
                end_all(&mut child).await;
            }
        }
    };
    // What is left in the background ends with the session.
    end_all(&mut child).await;
    let status = code(status);
    link.close(status).await;
    Ok(status)
}

/// Everything below this process: what the command has started, wherever it has hidden.
async fn end_all(child: &mut Supervised) {
    let own = getpid();
    let Some(root) = Process::look(own) else { return };
    let mut left = SessionProcesses::below(root);
    let except = child.pid();
    reap_orphans(own, except);
    if left.is_empty() {
        return;
    }
    let (begun, mut told) = (Instant::now(), false);
    left.end(GRACE, || {
        _ = child.ended();
        reap_orphans(own, except);
        if !told && begun.elapsed() > UNTOLD {
            told = true;
            let (count, rest) = (descendants(own).len(), GRACE.saturating_sub(begun.elapsed()).as_secs());
            output::notice(&format!(
                "waiting for {count} processes of this session; they are killed in {rest} s"
            ));
        }
    })
    .await;
}

fn code(status: ExitStatus) -> u8 {
    let signalled = status.signal().map(|number| 128 + number);
    status.code().or(signalled).and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

fn not_started(command: &[OsString], error: &io::Error) -> Fault {
    let program = command.first().map(|program| program.to_string_lossy().into_owned()).unwrap_or_default();
    let message = format!("{program}: {error}");
    Fault::new(Exit::Fault, AgentCode::CommandNotStarted, message, AgentCode::CommandNotStarted.remedy())
}

struct Supervised {
    child: Child,
    terminal: bool,
}

impl Supervised {
    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        let status = self.child.try_wait()?;
        reap_orphans(getpid(), self.pid());
        Ok(status)
    }

    /// What a terminal sends, it sends to the command as well.
    fn forward(&self, number: Number) {
        let Some(pid) = self.pid() else { return };
        // Not waited for yet, so the number is still this process's.
        _ = match (self.terminal, number) {
            (true, Number::INT | Number::QUIT) => Ok(()),
            (true, _) => kill_process(pid, number),
            (false, _) => kill_process_group(pid, number),
        };
    }
}

/// Signals that are the command's to hear.
struct PassedSignals(Vec<(Number, Signal)>);

impl PassedSignals {
    fn listen() -> io::Result<Self> {
        let passed = [
            (Number::HUP, SignalKind::hangup()),
            (Number::INT, SignalKind::interrupt()),
            (Number::QUIT, SignalKind::quit()),
            (Number::TERM, SignalKind::terminate()),
            (Number::USR1, SignalKind::user_defined1()),
            (Number::USR2, SignalKind::user_defined2()),
        ];
        let passed = passed.into_iter().map(|(number, kind)| Ok((number, signal(kind)?)));
        passed.collect::<io::Result<_>>().map(Self)
    }

    async fn next(&mut self) -> Number {
        std::future::poll_fn(|context| {
            for (number, signal) in &mut self.0 {
                if signal.poll_recv(context).is_ready() {
                    return std::task::Poll::Ready(*number);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }
}
