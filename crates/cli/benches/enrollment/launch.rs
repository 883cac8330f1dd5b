//! The control plane's program: making a directory, starting it, waiting until it serves.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

type Error = Box<dyn std::error::Error>;

/// What cargo names to a benchmark, or what was built beside an example.
pub fn program() -> Result<PathBuf, Error> {
    if let Some(named) = option_env!("CARGO_BIN_EXE_enlist") {
        return Ok(named.into());
    }
    let own = std::env::current_exe()?;
    let built = own.ancestors().nth(2).ok_or("no directory above the examples")?;
    Ok(built.join("enlist"))
}

/// A variable of the environment.
pub type Variable = (&'static str, String);

/// Initializes the domain `bench` in `dir/cp` with these flags, in an environment with more in it.
pub fn init(dir: &Path, listen: &str, flags: &[String], environment: &[Variable]) -> Result<PathBuf, Error> {
    let data = dir.join("cp");
    let kek = format!("file:{}", dir.join("kek").display());
    let status = Command::new(program()?)
        .args(["server", "init", "--domain", "bench", "--listen", listen])
        .args(flags)
        .envs(environment.iter().cloned())
        .args(["--json", "--kek", &kek, "--dir"])
        .arg(&data)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    if status.success() { Ok(data) } else { Err("server init failed".into()) }
}

/// The process and its address, once it serves, in an environment with more in it.
pub fn run(data: &Path, preload: Option<&Path>, environment: &[Variable]) -> Result<(Child, String), Error> {
    let mut run = Command::new(program()?);
    run.args(["server", "run", "--dir"]).arg(data).env("ENLIST_LOG", "error").stdout(Stdio::piped());
    run.envs(environment.iter().cloned());
    if let Some(shim) = preload {
        run.env("LD_PRELOAD", shim);
    }
    let mut child = run.spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    let url = line.trim().strip_prefix("ready ").ok_or("the server did not say that it is ready")?;
    Ok((child, url.to_owned()))
}
