//! A control plane as a process of its own, in a directory of its own.

use crate::{launch, usage};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

pub struct Plane {
    child: Child,
    pub url: String,
    dir: tempfile::TempDir,
}

impl Plane {
    pub fn start(preload: Option<&Path>) -> Result<Self, Box<dyn std::error::Error>> {
        Self::start_with(preload, &["--issuer".to_owned(), "sealed".to_owned()], &[])
    }

    /// With other flags of `server init`, in an environment with more in it.
    pub fn start_with(
        preload: Option<&Path>,
        flags: &[String],
        environment: &[launch::Variable],
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let dir = tempfile::Builder::new().prefix("enlist-bench").tempdir()?;
        let data = launch::init(dir.path(), "127.0.0.1:0", flags, environment)?;
        let (child, url) = launch::run(&data, preload, environment)?;
        Ok(Self { child, url, dir })
    }

    pub fn data(&self) -> PathBuf {
        self.dir.path().join("cp")
    }

    /// CPU time of the process so far, all threads, and of its sessions with an HSM.
    pub fn cpu(&self) -> Duration {
        let own = self.child.id();
        children(own).into_iter().map(usage::cpu).fold(usage::cpu(own), |sum, each| sum + each)
    }

    pub fn rss_kb(&self) -> u64 {
        usage::memory(self.child.id(), "VmRSS:")
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Processes that it has started and that run.
fn children(process: u32) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let after = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
        after.split_whitespace().nth(1).and_then(|parent| parent.parse().ok()) == Some(process)
    };
    pids.filter(is_child).collect()
}
