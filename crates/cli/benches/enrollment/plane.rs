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
        let dir = tempfile::Builder::new().prefix("enlist-bench").tempdir()?;
        let data = launch::init(dir.path(), "127.0.0.1:0", "sealed")?;
        let (child, url) = launch::run(&data, preload)?;
        Ok(Self { child, url, dir })
    }

    pub fn data(&self) -> PathBuf {
        self.dir.path().join("cp")
    }

    /// CPU time of the process so far, all threads.
    pub fn cpu(&self) -> Duration {
        usage::cpu(self.child.id())
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
