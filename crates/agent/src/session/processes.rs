//! The processes of a session: those below one process, found in /proc. A signal goes through a pidfd, so that it never meets
//! another process that was given the same number since.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal, waitpid};
use tokio::time::{Instant, sleep};

const POLL: Duration = Duration::from_millis(50);
/// How long killing goes on where processes are made faster than they are found.
const KILLING: Duration = Duration::from_secs(5);

/// A process as it was when it was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    pub pid: Pid,
    parent: i32,
    /// When it started: with the number, that is one process and no other.
    started: u64,
    dead: bool,
}

impl Process {
    pub fn look(pid: Pid) -> Option<Self> {
        let text = fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        Self::parse(pid, &String::from_utf8_lossy(&text))
    }

    /// The name of the program, in parentheses, can hold anything.
    fn parse(pid: Pid, stat: &str) -> Option<Self> {
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let dead = matches!(fields.next()?, "Z" | "X");
        let parent = fields.next()?.parse().ok()?;
        let started = fields.nth(17)?.parse().ok()?;
        Some(Self { pid, parent, started, dead })
    }

    /// A hold on it, if it is still the same.
    fn hold(&self) -> Option<OwnedFd> {
        let held = pidfd_open(self.pid, PidfdFlags::empty()).ok()?;
        Self::look(self.pid).filter(|now| now.started == self.started && !now.dead).map(|_| held)
    }

    fn send(&self, signal: Signal) {
        if let Some(held) = self.hold() {
            // One that ended meanwhile needs none, and one of another user cannot be given any.
            _ = pidfd_send_signal(held, signal);
        }
    }
}

fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(Pid::from_raw).filter_map(Process::look).collect()
}

/// Those below a process that are alive, at any depth. With `dead` those too that have ended and were not waited for.
fn below(root: Pid, dead: bool) -> Vec<Process> {
    let all = all();
    let mut known = BTreeSet::from([root.as_raw_nonzero().get()]);
    // A parent may have a higher number than its child, so until nobody is added.
    loop {
        let before = known.len();
        let children = all.iter().filter(|process| known.contains(&process.parent));
        let found: Vec<i32> = children.map(|process| process.pid.as_raw_nonzero().get()).collect();
        known.extend(found);
        if known.len() == before {
            break;
        }
    }
    let inside =
        |process: &&Process| process.pid != root && known.contains(&process.pid.as_raw_nonzero().get());
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

/// Which processes are to end: all below one, and that one itself or not.
#[derive(Debug, Clone, Copy)]
pub struct SessionTree {
    root: Process,
    /// Whether the root is part of it.
    with_root: bool,
}

impl SessionTree {
    pub fn whole(root: Process) -> Self {
        Self { root, with_root: true }
    }

    pub fn below(root: Process) -> Self {
        Self { root, with_root: false }
    }

    /// Those that are alive, the root last: whatever loses its parent is found no more.
    fn alive(&self) -> Vec<Process> {
        let Some(root) = Process::look(self.root.pid).filter(|now| now.started == self.root.started) else {
            return Vec::new();
        };
        let own = (self.with_root && !root.dead).then_some(root);
        descendants(root.pid).into_iter().chain(own).collect()
    }

    /// Looked at twice: one whose parent ended while /proc was read is below nobody the first time.
    pub fn is_empty(&self) -> bool {
        self.alive().is_empty() && self.alive().is_empty()
    }

    pub fn send(&self, signal: Signal) {
        for process in self.alive() {
            process.send(signal);
        }
    }

    /// SIGHUP, and SIGKILL for what is left after the grace. True once nothing is left.
    pub async fn end(&self, grace: Duration, mut seen: impl FnMut()) -> bool {
        self.send(Signal::HUP);
        // What is stopped cannot end by itself.
        self.send(Signal::CONT);
        let until = Instant::now() + grace;
        while Instant::now() < until {
            seen();
            if self.is_empty() {
                return true;
            }
            sleep(POLL).await;
        }
        self.kill(seen).await
    }

    /// First those below, then the root: it would lose its children to another parent.
    pub async fn kill(&self, mut seen: impl FnMut()) -> bool {
        let until = Instant::now() + KILLING;
        while Instant::now() < until {
            if self.is_empty() {
                return true;
            }
            let (roots, others): (Vec<_>, Vec<_>) =
                self.alive().into_iter().partition(|process| process.pid == self.root.pid);
            let last = if others.is_empty() { roots } else { others };
            for process in &last {
                process.send(Signal::KILL);
            }
            seen();
            // Without a pause while there are many: they must not be made faster than they end.
            if last.len() < 64 {
                sleep(POLL / 5).await;
            }
        }
        self.is_empty()
    }
}

/// Those that were started in a session, as far as their environment still says so.
pub fn of_session(id: &str) -> Vec<Process> {
    let mark = format!("ENLIST_SESSION_ID={id}");
    let marked = |process: &Process| {
        let environment = fs::read(format!("/proc/{}/environ", process.pid.as_raw_nonzero()));
        environment.is_ok_and(|text| text.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes()))
    };
    all().into_iter().filter(marked).collect()
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

    #[tokio::test]
    async fn what_ignores_sighup_is_killed_with_all_that_is_below() {
        let script = "trap '' HUP; sh -c 'trap \"\" HUP; sleep 1000' & wait";
        let mut child = std::process::Command::new("sh").args(["-c", script]).spawn().unwrap();
        let root = process(child.id()).unwrap();
        while descendants(root.pid).len() < 2 {
            sleep(POLL).await;
        }
        let tree = SessionTree::whole(root);
        let all: Vec<Process> = tree.alive();
        assert!(tree.end(Duration::from_millis(200), || ()).await);
        assert!(all.iter().all(|process| process.hold().is_none()));
        child.wait().unwrap();
        assert!(process(child.id()).is_err());
    }
}
