//! The program that is started for each session: this one again.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use super::error::HsmError;
use super::serve;

/// The first argument of a session's process. No command of the program: it serves a socket as its standard input only.
const ARGUMENT: &str = "hsm-session";
/// Also after the file was replaced, so that both ends are of one version.
const OWN: &str = "/proc/self/exe";

/// Whether `main` of this program has asked. One that has not would start itself over and over.
static BECOMES_SESSION: AtomicBool = AtomicBool::new(false);

/// To be called first in `main`. Does not return in a process that was started to be a session; otherwise allows this program
/// to start some.
pub fn become_session_if_asked(arguments: &[OsString]) {
    BECOMES_SESSION.store(true, Ordering::Release);
    if let [_, argument] = arguments
        && argument == ARGUMENT
    {
        // Returns where standard input is not a socket: somebody has typed it.
        serve::serve_session();
    }
}

/// How a session's process is started.
#[derive(Debug, Clone)]
pub struct SessionProgram {
    path: PathBuf,
    arguments: Vec<OsString>,
    hidden: Vec<String>,
}

impl SessionProgram {
    /// This program, whose `main` calls [`become_session_if_asked`].
    pub fn own() -> Result<Self, HsmError> {
        if BECOMES_SESSION.load(Ordering::Acquire) {
            Ok(Self::new(OWN, [ARGUMENT]))
        } else {
            Err(HsmError::Unusable("this program does not serve sessions of PKCS#11 modules".to_owned()))
        }
    }

    /// Another one, which calls [`serve_session`](super::serve_session) when it is started with these arguments.
    pub fn new(path: impl Into<PathBuf>, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        let arguments = arguments.into_iter().map(Into::into).collect();
        Self { path: path.into(), arguments, hidden: Vec::new() }
    }

    /// Without a variable of the environment that holds a secret. Modules are configured by the others.
    pub fn without(mut self, variable: &str) -> Self {
        self.hidden.push(variable.to_owned());
        self
    }

    /// Its standard input will be the socket. In a group of its own: Ctrl-C at a terminal is for this process alone.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.arg0(OsStr::new("enlist")).args(&self.arguments).stdout(Stdio::null()).process_group(0);
        for variable in &self.hidden {
            command.env_remove(variable);
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_gets_the_environment_without_what_is_hidden() {
        let command = SessionProgram::new("/x", ["y"]).without("HSM_PIN").without("KEK").command();
        let changed: Vec<_> = command.get_envs().collect();
        assert_eq!(changed, [(OsStr::new("HSM_PIN"), None), (OsStr::new("KEK"), None)]);
    }

    #[test]
    fn a_program_that_does_not_serve_sessions_starts_none() {
        assert!(matches!(SessionProgram::own(), Err(HsmError::Unusable(_))));
    }
}
