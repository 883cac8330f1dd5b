//! Starting a command as a user. Identities belong to threads in Linux: a thread takes that of the user for good, starts the
//! command, and ends. That needs neither a program of others nor code between fork and exec.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};

use rustix::process::geteuid;
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};

use super::PATH;
use super::account::HostUser;
use crate::config::TOKENS;

/// What of the caller's environment another user gets.
const PASSED: [&str; 4] = ["TERM", "LANG", "TZ", "COLORTERM"];

/// `own_group`: not at a terminal, where the command must be among the processes in the foreground.
pub fn start(command: &[OsString], user: &HostUser, session_id: &str, own_group: bool) -> io::Result<Child> {
    let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut start = Command::new(program);
    start.args(arguments);
    if own_group {
        start.process_group(0);
    }
    let another = user.uid != geteuid();
    if another {
        start.env_clear().env("PATH", PATH);
        let locale = |name: &str| name.starts_with("LC_") || PASSED.contains(&name);
        start.envs(std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(locale)));
        start.env("HOME", &user.home).env("USER", &user.name).env("LOGNAME", &user.name);
        start.env("SHELL", &user.shell);
    }
    for name in TOKENS {
        start.env_remove(name);
    }
    start.env("ENLIST_SESSION_ID", session_id);
    if !another {
        return start.spawn();
    }
    let groups = user.groups()?;
    let (uid, gid) = (user.uid, user.gid);
    let started = std::thread::spawn(move || {
        set_thread_groups(&groups)?;
        set_thread_gid(gid)?;
        set_thread_uid(uid)?;
        start.spawn()
    });
    started.join().unwrap_or_else(|_| Err(io::Error::other("the thread that starts the command ended")))
}
