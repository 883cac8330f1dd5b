//! The replicas of `enlist dev --replicas`: each is `enlist server run` in a process of its own, so that it can be killed alone.

use super::directory::DevDirectory;
use crate::error::{CommandError, Exit};
use crate::logs;
use crate::server::serving::StopSignals;
use crate::shell;
use ::server::datadir::DataDir;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::mpsc;

/// How long a replica may take until it serves: it may have to wait for an election.
const READY: Duration = Duration::from_secs(60);
/// What replicas are given of the environment. `ENLIST_SERVER` and the like are meant for other commands.
const PASSED_ON: [&str; 5] = ["PATH", "ENLIST_LOG", "ENLIST_LOG_FORMAT", "NO_COLOR", "TERM"];
/// So much of the end of a log is shown.
const LAST_LINES: usize = 3;

/// One that was started here.
pub struct ReplicaProcess {
    pub number: u8,
    pub dir: DataDir,
    pub pid: Pid,
    pub is_running: bool,
}

/// One that is not running any more.
pub struct ReplicaEnded {
    pub number: u8,
    pub pid: Pid,
    pub how: String,
}

/// A replica that has been started and does not serve yet.
pub struct Starting {
    number: u8,
    stdout: Lines<BufReader<ChildStdout>>,
    log: ReplicaLog,
}

/// What a replica logs from its start on: lines of an earlier run explain nothing.
struct ReplicaLog {
    path: PathBuf,
    from: usize,
}

/// All of them.
pub struct ReplicaProcesses {
    pub all: Vec<ReplicaProcess>,
    tell: mpsc::UnboundedSender<(Pid, std::io::Result<ExitStatus>)>,
    ended: mpsc::UnboundedReceiver<(Pid, std::io::Result<ExitStatus>)>,
}

impl ReplicaProcesses {
    pub fn new() -> Self {
        let (tell, ended) = mpsc::unbounded_channel();
        Self { all: Vec::new(), tell, ended }
    }

    /// Starts a replica that has a data directory.
    pub fn start(&mut self, directory: &DevDirectory, number: u8) -> Result<Starting, CommandError> {
        let (dir, log) = (directory.replica(number), directory.replica_log(Some(number)));
        let from = std::fs::metadata(&log).ok().and_then(|found| usize::try_from(found.len()).ok());
        let mut child = spawn(dir.path(), &log)?;
        let log = ReplicaLog { path: log, from: from.unwrap_or(0) };
        let gone = || failed(number, "it ended at once", &log);
        let stdout = child.stdout.take().ok_or_else(gone)?;
        let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)).ok_or_else(gone)?;
        self.all.push(ReplicaProcess { number, dir, pid, is_running: true });
        let tell = self.tell.clone();
        tokio::spawn(async move {
            // Nobody listens any more when this program ends.
            let _ = tell.send((pid, child.wait().await));
        });
        Ok(Starting { number, stdout: BufReader::new(stdout).lines(), log })
    }

    /// The next one that ends.
    pub async fn next_end(&mut self) -> ReplicaEnded {
        loop {
            let Some((pid, status)) = self.ended.recv().await else { return std::future::pending().await };
            let Some(process) = self.all.iter_mut().find(|process| process.pid == pid) else { continue };
            process.is_running = false;
            return ReplicaEnded { number: process.number, pid, how: how(status) };
        }
    }

    fn running(&self) -> impl Iterator<Item = &ReplicaProcess> {
        self.all.iter().filter(|process| process.is_running)
    }

    fn signal(&self, signal: Signal) {
        for process in self.running() {
            // It may have ended in this moment.
            let _ = kill_process(process.pid, signal);
        }
    }

    /// Stops all of them in good order, or at once when asked a second time. Waits for their end.
    pub async fn stop(&mut self, signals: &mut StopSignals) {
        self.signal(Signal::TERM);
        while self.running().next().is_some() {
            tokio::select! {
                _ = self.next_end() => {}
                () = signals.next() => self.signal(Signal::KILL),
            }
        }
    }
}

impl Starting {
    /// Waits until it serves; the URL is where.
    pub async fn ready(mut self) -> Result<String, CommandError> {
        let wait = async {
            while let Ok(Some(line)) = self.stdout.next_line().await {
                if let Some(url) = line.strip_prefix("ready ") {
                    return Some(url.to_owned());
                }
            }
            None
        };
        match tokio::time::timeout(READY, wait).await {
            Ok(Some(url)) => Ok(url),
            Ok(None) => Err(failed(self.number, "it ended", &self.log)),
            Err(_) => Err(failed(self.number, "it was not ready in time", &self.log)),
        }
    }
}

/// In a process group of its own: Ctrl-C is for this program, which then stops the replicas.
fn spawn(dir: &Path, log: &Path) -> Result<Child, CommandError> {
    let stderr = match logs::is_asked_for() {
        true => Stdio::inherit(),
        false => {
            let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(log);
            opened.map_err(|error| CommandError::file(log, &error))?.into()
        }
    };
    let mut command = Command::new(shell::executable()?);
    // A replica that outlives this program would keep its addresses and its directory, unseen.
    command.args(["server", "run", "--dir"]).arg(dir).arg("--stop-with-parent");
    let passed = PASSED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    command.env_clear().envs(passed).process_group(0).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
    command.spawn().map_err(|error| {
        CommandError::fault("replica_not_started", format!("a replica did not start: {error}"))
    })
}

fn how(status: std::io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => match status.signal() {
            Some(signal) => format!("was killed by signal {signal}"),
            None => format!("ended with {}", status.code().unwrap_or_default()),
        },
        Err(error) => format!("cannot be waited for: {error}"),
    }
}

fn failed(number: u8, what: &str, log: &ReplicaLog) -> CommandError {
    let text = std::fs::read(&log.path).unwrap_or_default();
    let text = String::from_utf8_lossy(text.get(log.from..).unwrap_or_default());
    let lines: Vec<&str> = text.lines().collect();
    let last = lines.get(lines.len().saturating_sub(LAST_LINES)..).unwrap_or_default().join("\n");
    let message = format!("replica {number} did not start: {what}\n{last}");
    let hint = "see the end of its log above; stop what uses its directory or its addresses, or choose another --dir";
    CommandError::new(Exit::Fault, "replica_not_started", message.trim_end().to_owned(), hint)
}
