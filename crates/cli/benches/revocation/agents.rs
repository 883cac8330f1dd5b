//! Real agents, each a process of its own.

use crate::CUT_LIMIT;
use crate::plane::Plane;
use crate::wire::Error;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CONNECT_LIMIT: Duration = Duration::from_secs(120);

pub struct Agents {
    program: PathBuf,
    running: Vec<(Child, PathBuf)>,
}

impl Agents {
    pub fn start(plane: &Plane, tokens: Vec<String>) -> Result<Self, Error> {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_enlist")).with_file_name("enlist-agent");
        if !program.exists() {
            return Err(
                format!("{} is missing: `cargo build --release --workspace`", program.display()).into()
            );
        }
        let mut agents = Self { program, running: Vec::new() };
        for (number, token) in tokens.into_iter().enumerate() {
            let dir = plane.data().with_file_name(format!("agent-{number}"));
            let child = Command::new(&agents.program)
                .arg("run")
                .arg("--dir")
                .arg(&dir)
                .env("ENLIST_LOG", "error")
                .env("ENLIST_AGENT_SERVER", &plane.url)
                .env("ENLIST_AGENT_CA_FILE", plane.data().join("ca/bundle.pem"))
                .env("ENLIST_AGENT_TOKEN", token)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?;
            agents.running.push((child, dir));
        }
        Ok(agents)
    }

    pub fn node_ids(&self) -> Result<Vec<String>, Error> {
        let id = |(_, dir): &(Child, PathBuf)| self.word(dir, "node_id").ok_or("an agent has no node id");
        Ok(self.running.iter().map(id).collect::<Result<_, _>>()?)
    }

    pub async fn wait_connected(&self) -> Result<(), Error> {
        for (_, dir) in &self.running {
            self.wait(dir, "channel", "up", CONNECT_LIMIT).await?;
        }
        Ok(())
    }

    /// The first so many say that they are revoked, the others that they are connected.
    pub async fn wait_revoked(&self, count: usize) -> Result<(), Error> {
        for (number, (_, dir)) in self.running.iter().enumerate() {
            let (field, wanted) = if number < count { ("state", "revoked") } else { ("channel", "up") };
            self.wait(dir, field, wanted, CUT_LIMIT).await?;
        }
        Ok(())
    }

    async fn wait(&self, dir: &PathBuf, field: &str, wanted: &str, limit: Duration) -> Result<(), Error> {
        let began = Instant::now();
        loop {
            let found = self.word(dir, field);
            if found.as_deref() == Some(wanted) {
                return Ok(());
            }
            if began.elapsed() > limit {
                return Err(format!("{}: {field} is {found:?}, not {wanted}", dir.display()).into());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// A word of what `enlist-agent status` says.
    fn word(&self, dir: &PathBuf, field: &str) -> Option<String> {
        let mut status = Command::new(&self.program);
        let done = status.args(["status", "--json", "--dir"]).arg(dir).stderr(Stdio::null()).output().ok()?;
        let shown: serde_json::Value = serde_json::from_slice(&done.stdout).ok()?;
        shown.get(field)?.as_str().map(str::to_owned)
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        for (child, _) in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
