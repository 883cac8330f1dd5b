//! A control plane as a process of its own, in a directory of its own.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_enlist");

pub struct Plane {
    child: Child,
    pub url: String,
    dir: tempfile::TempDir,
}

impl Plane {
    pub fn start(preload: Option<&Path>) -> Result<Self, Box<dyn std::error::Error>> {
        let dir = tempfile::Builder::new().prefix("enlist-bench").tempdir()?;
        let data = dir.path().join("cp");
        let kek = format!("file:{}", dir.path().join("kek").display());
        let init = Command::new(PROGRAM)
            .args([
                "server",
                "init",
                "--domain",
                "bench",
                "--listen",
                "127.0.0.1:0",
                "--json",
                "--kek",
                &kek,
                "--dir",
            ])
            .arg(&data)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        if !init.success() {
            return Err("server init failed".into());
        }
        let mut run = Command::new(PROGRAM);
        run.args(["server", "run", "--dir"]).arg(&data).env("ENLIST_LOG", "error").stdout(Stdio::piped());
        if let Some(shim) = preload {
            run.env("LD_PRELOAD", shim);
        }
        let mut child = run.spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        let url =
            line.trim().strip_prefix("ready ").ok_or("the server did not say that it is ready")?.to_owned();
        Ok(Self { child, url, dir })
    }

    pub fn data(&self) -> PathBuf {
        self.dir.path().join("cp")
    }

    /// CPU time of the process so far, all threads.
    pub fn cpu(&self) -> Duration {
        let path = format!("/proc/{}/stat", self.child.id());
        let stat = std::fs::read_to_string(path).unwrap_or_default();
        let after = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
        let ticks: u64 =
            after.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<u64>().ok()).sum();
        Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
    }

    pub fn rss_kb(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
        line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or_default()
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
