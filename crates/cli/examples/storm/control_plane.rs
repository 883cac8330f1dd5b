//! The control plane under the storm: a process of its own that can be killed and started again at the same address.

use crate::fleet::control_document;
use crate::framing::Error;
use crate::transport::Dialer;
use crate::{launch, machine, usage};
use bytes::Bytes;
use std::io::Write;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const VCLUSTER: &str = "storm";

pub struct ControlPlane {
    child: Child,
    url: String,
    data: PathBuf,
    dir: tempfile::TempDir,
}

impl ControlPlane {
    pub fn start(issuer: &str) -> Result<Self, Error> {
        let dir = tempfile::Builder::new().prefix("enlist-storm").tempdir()?;
        let listen = format!("127.0.0.1:{}", lasting_port()?);
        let text = |error: Box<dyn std::error::Error>| error.to_string();
        let data = launch::init(dir.path(), &listen, &["--issuer".to_owned(), issuer.to_owned()], &[])
            .map_err(text)?;
        let (child, url) = launch::run(&data, None, &[]).map_err(text)?;
        let plane = Self { child, url, data, dir };
        plane.enlist(&["policy", "set", "attestors", "join-token,recovery-token,hardware"])?;
        plane.enlist(&["vcluster", "create", VCLUSTER])?;
        Ok(plane)
    }

    /// Registers so many machines from a file, as an operator would. How long it took.
    pub fn register(&self, count: usize) -> Result<Duration, Error> {
        let path = self.dir.path().join("machines.csv");
        let mut file = std::io::BufWriter::new(std::fs::File::create(&path)?);
        writeln!(file, "node_id,mac,bmc_serial,vcluster")?;
        for number in 0..count {
            let (id, mac, serial) = (machine::node_id(number), machine::mac(number), machine::serial(number));
            writeln!(file, "{id},{mac},{serial},{VCLUSTER}")?;
        }
        file.into_inner()?.sync_all()?;
        let began = Instant::now();
        self.enlist(&["node", "register", "--batch", &path.to_string_lossy()])?;
        Ok(began.elapsed())
    }

    /// Another document for the vCluster of all machines.
    pub fn set_document(&self, number: usize, bytes: usize) -> Result<Bytes, Error> {
        let (path, document) = (self.dir.path().join("document.json"), control_document(number, bytes));
        std::fs::write(&path, &document)?;
        self.enlist(&["vcluster", "set-config", VCLUSTER, "--file", &path.to_string_lossy()])?;
        Ok(document)
    }

    pub fn dialer(&self) -> Result<Dialer, Error> {
        let bundle = pki::pem::certificates(&std::fs::read(self.data.join("ca/bundle.pem"))?)?;
        let address = self.url.trim_start_matches("https://").parse()?;
        Dialer::new(address, bundle.iter().map(|der| der.to_vec()))
    }

    /// That the registry holds so many active nodes.
    pub fn check_active(&self, count: usize) -> Result<(), Error> {
        let listed = self.enlist(&["node", "list", "--state", "active", "--json"])?;
        let active = listed.lines().filter(|line| line.contains("\"node_id\"")).count();
        if active == count { Ok(()) } else { Err(format!("{active} of {count} nodes are active").into()) }
    }

    /// At once, without a word.
    pub fn kill(&mut self) -> Result<(), Error> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// How long until it served.
    pub fn start_again(&mut self) -> Result<Duration, Error> {
        let began = Instant::now();
        (self.child, self.url) = launch::run(&self.data, None, &[]).map_err(|error| error.to_string())?;
        Ok(began.elapsed())
    }

    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Resident, in kB.
    pub fn memory(&self) -> u64 {
        usage::memory(self.process(), "VmRSS:")
    }

    pub fn peak_memory(&self) -> u64 {
        usage::memory(self.process(), "VmHWM:")
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

/// One below those that the system gives to whoever connects, so that nobody has it while the control plane is away.
fn lasting_port() -> Result<u16, Error> {
    for _ in 0..100 {
        let mut chance = [0; 2];
        rustix::rand::getrandom(&mut chance, rustix::rand::GetRandomFlags::empty())?;
        let port = 15_000 + u16::from_ne_bytes(chance) % 17_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Err("no port is free".into())
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
