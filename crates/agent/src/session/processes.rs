//! The processes of a session: those below one process, found in /proc. A signal goes through a pidfd, so that it never meets
//! another process that was given the same number since.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, getpid, pidfd_open, pidfd_send_signal, waitpid};
use tokio::time::{Instant, sleep};

const POLL: Duration = Duration::from_millis(50);
/// Where the environment of every process is read.
const POLL_MARKED: Duration = Duration::from_millis(500);
/// How long processes are stopped before they are killed, where they are made faster than they are found.
const STOPPING: Duration = Duration::from_secs(2);
/// How long killing goes on.
const KILLING: Duration = Duration::from_secs(5);

/// A process as it was when it was looked at.
#[derive(Debug, Clone, Copy)]
pub struct Process {
    pub pid: Pid,
    parent: i32,
    /// When it started: with the number, that is one process and no other.
    started: u64,
    dead: bool,
    /// By SIGSTOP or a debugger: it starts no other process.
    stopped: bool,
}

impl Process {
    pub fn look(pid: Pid) -> Option<Self> {
        let text = fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        Self::parse(pid, &String::from_utf8_lossy(&text))
    }

    /// The name of the program, in parentheses, can hold anything.
    fn parse(pid: Pid, stat: &str) -> Option<Self> {
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        let (dead, stopped) = (matches!(state, "Z" | "X"), matches!(state, "T" | "t"));
        let parent = fields.next()?.parse().ok()?;
        let started = fields.nth(17)?.parse().ok()?;
        Some(Self { pid, parent, started, dead, stopped })
    }

    fn number(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    pub fn is_same(&self, other: &Self) -> bool {
        self.pid == other.pid && self.started == other.started
    }

    /// A hold on it, if it is still the same.
    fn hold(&self) -> Option<OwnedFd> {
        let held = pidfd_open(self.pid, PidfdFlags::empty()).ok()?;
        Self::look(self.pid).filter(|now| now.is_same(self) && !now.dead).map(|_| held)
    }

    fn send(&self, signal: Signal, right: SignalRight) {
        let held = self.hold().filter(|_| self.pid != getpid() && right.covers(self.pid));
        if let Some(held) = held {
            // One that ended meanwhile needs none, and one of another user cannot be given any.
            _ = pidfd_send_signal(held, signal);
        }
    }
}

/// On whose behalf processes are ended: the agent may signal any process, and must not do so for somebody who may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalRight {
    Any,
    /// Those that this user could signal itself.
    User(u32),
}

impl SignalRight {
    pub fn of(uid: u32) -> Self {
        if uid == 0 { Self::Any } else { Self::User(uid) }
    }

    /// As kill(2) has it: by the real or the saved user id of the process.
    pub fn covers(self, pid: Pid) -> bool {
        let uid = match self {
            Self::Any => return true,
            Self::User(uid) => uid.to_string(),
        };
        let status = fs::read(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap_or_default();
        let status = String::from_utf8_lossy(&status);
        let ids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
        let mut ids = ids.split_whitespace();
        ids.next() == Some(uid.as_str()) || ids.nth(1) == Some(uid.as_str())
    }
}

fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(Pid::from_raw).filter_map(Process::look).collect()
}

/// The numbers of those below any of `roots`, at any depth, and of the roots.
fn with_descendants(all: &[Process], roots: impl Iterator<Item = i32>) -> BTreeSet<i32> {
    let mut known: BTreeSet<i32> = roots.collect();
    // A parent may have a higher number than its child, so until nobody is added.
    loop {
        let before = known.len();
        let children = all.iter().filter(|process| known.contains(&process.parent));
        let found: Vec<i32> = children.map(Process::number).collect();
        known.extend(found);
        if known.len() == before {
            return known;
        }
    }
}

/// Those below a process that are alive, at any depth. With `dead` those too that have ended and were not waited for.
fn below(root: Pid, dead: bool) -> Vec<Process> {
    let all = all();
    let known = with_descendants(&all, std::iter::once(root.as_raw_nonzero().get()));
    let inside = |process: &&Process| process.pid != root && known.contains(&process.number());
    all.iter().filter(inside).filter(|process| dead || !process.dead).copied().collect()
}

pub fn descendants(root: Pid) -> Vec<Process> {
    below(root, false)
}

/// Waits for children of this process that are not waited for otherwise: those whose own parent has ended.
pub fn reap_orphans(own: Pid, except: Option<Pid>) {
    let parent = own.as_raw_nonzero().get();
    let orphan = |process: &Process| process.dead && process.parent == parent && Some(process.pid) != except;
    for process in below(own, true).into_iter().filter(orphan) {
        _ = waitpid(Some(process.pid), WaitOptions::NOHANG);
    }
}

/// The processes of a session that are to end. One that was found once is known until it has ended, whoever is its parent by then.
#[derive(Debug)]
pub struct SessionProcesses {
    /// All below this one belong to it, and that one does not.
    below: Option<Process>,
    /// All whose environment has this entry belong to it.
    mark: Option<String>,
    right: SignalRight,
    known: BTreeMap<i32, Process>,
}

impl SessionProcesses {
    /// One, and all below it.
    pub fn whole(root: Process, right: SignalRight) -> Self {
        let known = BTreeMap::from([(root.number(), root)]);
        Self { below: None, mark: None, right, known }
    }

    /// All below one.
    pub fn below(root: Process) -> Self {
        Self { below: Some(root), mark: None, right: SignalRight::Any, known: BTreeMap::new() }
    }

    /// Those that were started in a session, as far as their environment still says so, and all below them.
    pub fn marked(id: &str, right: SignalRight) -> Self {
        Self { below: None, mark: Some(mark(id)), right, known: BTreeMap::new() }
    }

    /// Another one with all below it.
    pub fn with(mut self, process: Option<Process>) -> Self {
        self.known.extend(process.map(|process| (process.number(), process)));
        self
    }

    /// Those that are alive, and may be signalled.
    fn alive(&mut self) -> Vec<Process> {
        let all = all();
        let is_there = |one: &Process| all.iter().any(|now| now.is_same(one));
        self.known.retain(|_, known| is_there(known));
        let above = self.below.filter(is_there).map(|root| root.number());
        let marked = all.iter().filter(|process| self.mark.as_ref().is_some_and(|mark| has(process, mark)));
        let roots = self.known.keys().copied().chain(above).chain(marked.map(Process::number));
        let inside = with_descendants(&all, roots.collect::<Vec<i32>>().into_iter());
        let own = getpid();
        let found = all.iter().filter(|process| inside.contains(&process.number()) && !process.dead);
        let found = found.filter(|process| Some(process.number()) != above && process.pid != own);
        let found: Vec<Process> = found.filter(|process| self.right.covers(process.pid)).copied().collect();
        self.known = found.iter().map(|process| (process.number(), *process)).collect();
        found
    }

    /// Looked at twice: one whose parent ended while /proc was read is below nobody the first time.
    pub fn is_empty(&mut self) -> bool {
        self.alive().is_empty() && self.alive().is_empty()
    }

    /// How many are alive.
    pub fn count(&mut self) -> usize {
        self.alive().len()
    }

    fn poll(&self) -> Duration {
        if self.mark.is_some() { POLL_MARKED } else { POLL }
    }

    /// SIGHUP to all, and SIGKILL for what is left after the grace. True once nothing is left.
    pub async fn end(&mut self, grace: Duration, mut seen: impl FnMut()) -> bool {
        let until = Instant::now() + grace;
        let all = self.alive();
        // What is stopped cannot end by itself.
        for signal in [Signal::HUP, Signal::CONT] {
            all.iter().for_each(|process| process.send(signal, self.right));
        }
        while Instant::now() < until {
            seen();
            if self.is_empty() {
                return true;
            }
            sleep(self.poll()).await;
        }
        self.kill(seen).await
    }

    /// SIGSTOP to all until nobody is left who could start another, then SIGKILL to all until nobody is left.
    pub async fn kill(&mut self, mut seen: impl FnMut()) -> bool {
        let until = Instant::now() + STOPPING;
        while Instant::now() < until {
            let running: Vec<Process> = self.alive().into_iter().filter(|process| !process.stopped).collect();
            if running.is_empty() {
                break;
            }
            running.iter().for_each(|process| process.send(Signal::STOP, self.right));
            sleep(POLL / 10).await;
        }
        let until = Instant::now() + KILLING;
        while Instant::now() < until {
            if self.is_empty() {
                return true;
            }
            let left = self.alive();
            left.iter().for_each(|process| process.send(Signal::KILL, self.right));
            seen();
            // Without a pause while there are many: they must not be made faster than they end.
            if left.len() < 64 {
                sleep(POLL / 5).await;
            }
        }
        self.is_empty()
    }
}

fn mark(id: &str) -> String {
    format!("ENLIST_SESSION_ID={id}")
}

fn has(process: &Process, mark: &str) -> bool {
    let environment = fs::read(format!("/proc/{}/environ", process.pid.as_raw_nonzero()));
    environment.is_ok_and(|text| text.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes()))
}

/// Whether a process of this session runs that this user could not signal; those below `caller` aside.
pub fn is_of_another(id: &str, right: SignalRight, caller: Pid) -> bool {
    let (mark, all) = (mark(id), all());
    let own = with_descendants(&all, std::iter::once(caller.as_raw_nonzero().get()));
    let mut others = all.iter().filter(|process| !process.dead && !own.contains(&process.number()));
    others.any(|process| has(process, &mark) && !right.covers(process.pid))
}

/// The process with this number.
pub fn process(pid: u32) -> io::Result<Process> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.and_then(Process::look).filter(|process| !process.dead).ok_or_else(|| io::ErrorKind::NotFound.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_is_no_field() {
        let stat = "7 (a) b (c)) S 5 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 8 9";
        let process = Process::parse(Pid::from_raw(7).unwrap(), stat).unwrap();
        assert_eq!((process.parent, process.started, process.dead), (5, 4711, false));
    }

    fn started(script: &str) -> (std::process::Child, Process) {
        let child = std::process::Command::new("sh").args(["-c", script]).spawn().unwrap();
        let root = process(child.id()).unwrap();
        (child, root)
    }

    #[tokio::test]
    async fn what_ignores_sighup_is_killed_with_all_that_is_below() {
        let (mut child, root) = started("trap '' HUP; sh -c 'trap \"\" HUP; sleep 1000' & wait");
        while descendants(root.pid).len() < 2 {
            sleep(POLL).await;
        }
        let mut session = SessionProcesses::whole(root, SignalRight::Any);
        let all: Vec<Process> = session.alive();
        assert!(session.end(Duration::from_millis(200), || ()).await);
        assert!(all.iter().all(|process| process.hold().is_none()));
        child.wait().unwrap();
        assert!(process(child.id()).is_err());
    }

    #[tokio::test]
    async fn what_always_has_a_child_is_killed() {
        let (mut child, root) = started("trap '' HUP; while :; do sleep 0.01; done");
        assert!(SessionProcesses::whole(root, SignalRight::Any).end(POLL, || ()).await);
        child.wait().unwrap();
        assert!(process(child.id()).is_err());
    }

    #[tokio::test]
    async fn what_lost_its_parent_meanwhile_is_killed() {
        let (mut child, root) = started("sh -c 'trap \"\" HUP; sleep 1000; true' & exec sleep 1000");
        while descendants(root.pid).len() < 2 {
            sleep(POLL).await;
        }
        let all = descendants(root.pid);
        let mut session = SessionProcesses::whole(root, SignalRight::Any);
        let (ended, _) = tokio::join!(session.end(Duration::from_secs(1), || ()), async {
            sleep(Duration::from_millis(300)).await;
            // It may ignore SIGHUP, as whoever started this did: nothing here may stand still meanwhile.
            while child.try_wait().unwrap().is_none() {
                sleep(POLL).await;
            }
        });
        assert!(ended && all.iter().all(|process| process.hold().is_none()));
    }

    #[test]
    fn nobody_but_root_has_a_process_of_another_user_signalled() {
        let own = getpid();
        let uid = rustix::process::getuid().as_raw();
        assert!(SignalRight::of(0).covers(own) && SignalRight::User(uid).covers(own));
        assert!(!SignalRight::of(uid + 1).covers(own));
    }
}
