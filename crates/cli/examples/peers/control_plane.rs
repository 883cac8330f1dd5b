//! The control plane, and the operator's program.

use crate::framing::Error;
use crate::host::{mac, node_id};
use crate::transport::Dialer;
use crate::{launch, usage};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub struct ControlPlane {
    child: Child,
    url: String,
    data: PathBuf,
    dir: tempfile::TempDir,
}

impl ControlPlane {
    pub fn start() -> Result<Self, Error> {
        let dir = tempfile::Builder::new().prefix("enlist-peers").tempdir()?;
        let text = |error: Box<dyn std::error::Error>| error.to_string();
        let data = launch::init(dir.path(), "127.0.0.1:0", &[], &[]).map_err(text)?;
        let (child, url) = launch::run(&data, None, &[]).map_err(text)?;
        let plane = Self { child, url, data, dir };
        plane.enlist(&["policy", "set", "attestors", "join-token,recovery-token,hardware"])?;
        Ok(plane)
    }

    pub fn register(&self, count: usize) -> Result<(), Error> {
        let path = self.dir.path().join("hosts.csv");
        let mut file = std::io::BufWriter::new(std::fs::File::create(&path)?);
        writeln!(file, "node_id,mac")?;
        for number in 0..count {
            writeln!(file, "{},{}", node_id(number), mac(number))?;
        }
        file.into_inner()?.sync_all()?;
        self.enlist(&["node", "register", "--batch", &path.to_string_lossy()]).map(drop)
    }

    pub fn dialer(&self) -> Result<Dialer, Error> {
        let bundle = pki::pem::certificates(&std::fs::read(self.data.join("ca/bundle.pem"))?)?;
        let address = self.url.trim_start_matches("https://").parse()?;
        Dialer::new(address, bundle.iter().map(|der| der.to_vec()))
    }

    /// Beside the hosts, which are to hear of it.
    pub async fn revoke(&self, number: usize) -> Result<(), Error> {
        let mut revoke = tokio::process::Command::new(launch::program().map_err(|error| error.to_string())?);
        let id = node_id(number);
        revoke
            .arg("--dir")
            .arg(&self.data)
            .args(["node", "revoke", &id])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        if revoke.status().await?.success() { Ok(()) } else { Err("revoke failed".into()) }
    }

    /// CPU time so far.
    pub fn cpu(&self) -> Duration {
        usage::cpu(self.child.id())
    }

    /// Resident, in kB.
    pub fn memory(&self) -> u64 {
        usage::memory(self.child.id(), "VmRSS:")
    }

    fn enlist(&self, words: &[&str]) -> Result<String, Error> {
        let program = launch::program().map_err(|error| error.to_string())?;
        let output =
            Command::new(program).arg("--dir").arg(&self.data).args(words).stdin(Stdio::null()).output()?;
        if output.status.success() {
            return Ok(String::from_utf8(output.stdout)?);
        }
        Err(format!("enlist {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr)).into())
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
