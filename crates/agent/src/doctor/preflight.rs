//! `doctor --server URL`, before anything is enrolled: would an enrollment with these settings get through? Nothing is
//! written, and no identity is needed.

use std::path::Path;

use super::cause;
use super::diagnosis::Diagnosis;
use super::hardware;
use super::local;
use super::network;
use super::subject::DoctorSubject;
use crate::cli::DoctorArgs;
use crate::config::{self, AgentConfig, Environment, KeyStorage, TrustChoice};
use crate::enroll::plan;
use crate::fault::Fault;

pub async fn examine(args: &DoctorArgs, dir: &Path, environment: &Environment) -> Result<Diagnosis, Fault> {
    let config = config::load(dir, args.reach.values(), environment)?;
    let servers = plan::servers(&config)?;
    let (choice, _) = plan::recognised(&config, &servers)?;
    let next = command(args, &config, &choice, environment);
    let subject = DoctorSubject::before(dir, config);
    let (mut checks, _) = network::examine(&subject).await;
    if dir.exists() {
        checks.extend([local::disk(&subject, local::may_write), local::permissions(&subject)]);
    }
    checks.extend(hardware::examine(&subject));
    cause::settle(&mut checks);
    let diagnosis = Diagnosis::of(checks);
    Ok(if diagnosis.ok { Diagnosis { next, ..diagnosis } } else { diagnosis })
}

/// The enrollment that these settings are for.
fn command(
    args: &DoctorArgs,
    config: &AgentConfig,
    choice: &TrustChoice,
    environment: &Environment,
) -> Vec<String> {
    let verb = match config.storage {
        KeyStorage::Disk => "enroll",
        KeyStorage::Memory => "run",
    };
    let mut words = vec![environment.program().to_owned(), verb.to_owned()];
    for server in &config.servers {
        words.extend(["--server".to_owned(), server.clone()]);
    }
    match choice {
        TrustChoice::CaFile(path) => words.extend(["--ca-file".to_owned(), path.display().to_string()]),
        TrustChoice::Pin(pin) => words.extend(["--ca-pin".to_owned(), pin.to_string()]),
        TrustChoice::SystemRoots => words.push("--system-roots".to_owned()),
    }
    words.extend(args.place.dir.iter().flat_map(|dir| ["--dir".to_owned(), dir.display().to_string()]));
    if config.sysfs_root.is_none() {
        words.extend(["--token-file".to_owned(), "FILE".to_owned()]);
    }
    words
}
