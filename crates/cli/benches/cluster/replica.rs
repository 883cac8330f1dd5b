//! Replicas of one control plane, each a process in a directory of its own, and an operator on the same machine.

use crate::{Error, launch, until, usage};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio::net::UnixStream;

pub struct Replica {
    child: Child,
    data: PathBuf,
    url: String,
}

pub struct Replicas {
    pub all: Vec<Replica>,
    dir: tempfile::TempDir,
}

impl Replicas {
    pub async fn start(count: usize) -> Result<Self, Error> {
        let dir = tempfile::Builder::new().prefix("enlist-bench").tempdir()?;
        let flags = ["--peer-listen".to_owned(), free_address()?];
        let data = launch::init(dir.path(), "127.0.0.1:0", &flags, &[]).map_err(text)?;
        let (child, url) = launch::run(&data, None, &[]).map_err(text)?;
        let mut replicas = Self { all: vec![Replica { child, data, url }], dir };
        for _ in 1..count {
            replicas.join().await?;
        }
        let mut operator = replicas.in_turn(0).operator().await?;
        until("all replicas vote", async || {
            let status = operator.ask("GET", "/v1/cluster", &Value::Null).await?;
            let items = status.get("replicas").and_then(Value::as_array).cloned().unwrap_or_default();
            let votes = |item: &Value| item.get("voter").and_then(Value::as_bool) == Some(true);
            Ok(items.len() == count && items.iter().all(votes))
        })
        .await?;
        Ok(replicas)
    }

    /// One more, once it serves.
    pub async fn join(&mut self) -> Result<(), Error> {
        let mut operator = self.in_turn(0).operator().await?;
        let token = operator.ask("POST", "/v1/cluster/tokens", &serde_json::json!({})).await?;
        let field = |name: &str| token.get(name).and_then(Value::as_str).ok_or("no such field");
        let data = self.dir.path().join(format!("replica-{}", self.all.len() + 1));
        let kek = format!("file:{}", self.dir.path().join("kek").display());
        let mut join = Command::new(launch::program().map_err(text)?)
            .args([
                "server",
                "join",
                "--peer",
                &self.in_turn(0).url,
                "--ca-pin",
                field("ca_pin")?,
                "--kek",
                &kek,
            ])
            .args(["--token", "-", "--listen", "127.0.0.1:0", "--peer-listen", &free_address()?, "--dir"])
            .arg(&data)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        join.stdin.take().ok_or("no input")?.write_all(field("token")?.as_bytes())?;
        if !join.wait()?.success() {
            return Err("server join failed".into());
        }
        let (child, url) = launch::run(&data, None, &[]).map_err(text)?;
        self.all.push(Replica { child, data, url });
        Ok(())
    }

    pub fn in_turn(&self, number: usize) -> &Replica {
        self.all.get(number % self.all.len()).expect("there is at least one replica")
    }

    /// CPU time of all of them so far.
    pub fn cpu(&self) -> Duration {
        self.all.iter().map(|replica| usage::cpu(replica.child.id())).sum()
    }
}

impl Replica {
    pub async fn operator(&self) -> Result<Operator, Error> {
        let stream = UnixStream::connect(self.data.join("operator.sock")).await?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Operator(sender))
    }

    /// Kills it; how long until it serves again.
    pub async fn restart(&mut self) -> Result<Duration, Error> {
        self.stop();
        let began = Instant::now();
        (self.child, self.url) = launch::run(&self.data, None, &[]).map_err(text)?;
        Ok(began.elapsed())
    }

    pub fn memory_kb(&self) -> u64 {
        usage::memory(self.child.id(), "VmRSS:")
    }

    fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.stop();
    }
}

/// An operator on the same machine, on one connection.
pub struct Operator(SendRequest<Full<Bytes>>);

impl Operator {
    pub async fn ask(&mut self, method: &str, path: &str, body: &Value) -> Result<Value, Error> {
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header("host", "localhost").header("content-type", "application/json");
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        self.0.ready().await?;
        let response = self.0.send_request(request.body(Full::new(body))?).await?;
        let status = response.status();
        let bytes = response.into_body().collect().await?.to_bytes();
        if !status.is_success() {
            return Err(format!("{method} {path}: {status} {}", String::from_utf8_lossy(&bytes)).into());
        }
        Ok(serde_json::from_slice(&bytes)?)
    }
}

fn free_address() -> Result<String, Error> {
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    Ok(taken.local_addr()?.to_string())
}

fn text(error: Box<dyn std::error::Error>) -> Error {
    error.to_string().into()
}
