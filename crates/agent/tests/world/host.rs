//! A host: a directory, and the program run on it.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::plane::Plane;

pub struct Host {
    top: TempDir,
}

/// How a run of the program ended.
#[derive(Debug)]
pub struct Ended {
    pub exit: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// The document on standard output.
    pub fn document(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The code of the error on standard error.
    pub fn code(&self) -> String {
        let body: Value =
            serde_json::from_str(&self.stderr).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        assert!(!body["error"]["hint"].as_str().unwrap().is_empty());
        body["error"]["code"].as_str().unwrap().to_owned()
    }
}

impl Host {
    pub fn new() -> Self {
        Self { top: tempfile::tempdir().unwrap() }
    }

    pub fn dir(&self) -> PathBuf {
        self.top.path().join("agent")
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir().join(name)
    }

    /// A file beside the agent's directory.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.top.path().join(name);
        std::fs::write(&path, text).unwrap();
        // It may hold a token, which is refused where others may read it.
        let closed = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, closed).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// agent.toml, before the agent was ever run.
    pub fn settings(&self, text: &str) {
        std::fs::create_dir_all(self.dir()).unwrap();
        std::fs::write(self.path("agent.toml"), text).unwrap();
    }

    /// The program with nothing inherited that it listens to.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_enlist-agent"));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ENLIST_"))
        {
            command.env_remove(name);
        }
        command.env("ENLIST_AGENT_DIR", self.dir()).args(args).stdin(Stdio::null());
        command
    }

    pub fn run(&self, args: &[&str]) -> Ended {
        ended(self.command(args).output().unwrap())
    }

    pub fn enroll(&self, plane: &Plane, token: &str, more: &[&str]) -> Ended {
        ended(self.enroll_command(plane, token, more).output().unwrap())
    }

    pub fn begin_enroll(&self, plane: &Plane, token: &str) -> Child {
        let mut command = self.enroll_command(plane, token, &[]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Runs it under strace, which kills it at its n-th system call of this kind; says whether it came that far.
    pub fn enroll_killed_at(&self, plane: &Plane, token: &str, call: &str, n: usize) -> bool {
        let inner = self.enroll_command(plane, token, &[]);
        let mut strace = Command::new("strace");
        let inject = format!("inject={call}:signal=SIGKILL:when={n}");
        strace
            .args(["-f", "-qq", "-o", "/dev/null", "-e", &inject])
            .arg(inner.get_program())
            .args(inner.get_args());
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => strace.env(name, value),
                None => strace.env_remove(name),
            };
        }
        let status = strace.stdin(Stdio::null()).output().unwrap().status;
        assert!(status.success() || status.signal() == Some(9), "{status:?}");
        !status.success()
    }

    fn enroll_command(&self, plane: &Plane, token: &str, more: &[&str]) -> Command {
        let pin = plane.pin();
        let mut command = self.command(&["enroll", "--json", "--server", &plane.url, "--ca-pin", &pin]);
        command.env("ENLIST_AGENT_TOKEN", token).args(more);
        command
    }

    pub fn status(&self) -> Ended {
        self.run(&["status", "--json"])
    }
}

pub fn ended(output: Output) -> Ended {
    Ended {
        exit: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}
