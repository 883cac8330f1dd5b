//! `run`: keeps the identity alive for as long as the host is.
//!
//! One task decides (`daemon`); calls to the control plane are made beside it. The daemon is made of parts, each with its
//! own fields: `session` (the connection), `renewal`, `recovery`, `configuration`, `overlay`, `upkeep` of the host. They share `core`: the directory,
//! the identity, the state machine of `lifecycle::host`, and `reporting`.
//!
//! **Renewing never strands the host.** The steps are: a new key on disk; the request; the answer as a whole
//! generation on disk, not in use; a connection with it that is welcomed; `current` switched to it; the key's
//! own file removed. Killed before the request or the answer, the next start asks again with the same key and
//! gets the same certificate. Killed between answer and switch, the next start finds the generation by its key
//! and proves it first: until then the old certificate, which `current` still names, is good as well, since the
//! control plane accepts it until the new one is seen and for a while (`renew.drain`) after that. A new
//! certificate that is refused is dropped, and the old one stays in use.

mod accept;
mod call;
mod configuration;
mod core;
mod daemon;
mod first_identity;
mod hook;
mod host_sessions;
mod identity_cascade;
mod imported_certificate;
mod live_channel;
mod metrics;
mod metrics_listener;
mod orders;
mod overlay;
mod paced_offers;
pub(crate) mod rate_limit;
mod recovery;
mod renewal;
mod reporting;
mod session;
mod signals;
pub mod socket;
mod start;
mod upkeep;
mod waiting;

use std::io::Read;
use std::path::Path;

use crate::cli::RunArgs;
use crate::config::{self, AgentConfig, Environment, KeyStorage};
use crate::enroll::plan;
use crate::enroll::precheck::refuse_what_cannot_be_kept;
use crate::fault::Fault;
use crate::memory::{self, MemoryStore};
use crate::service_manager::ServiceManager;
use crate::store::dir::Dir;
use daemon::Daemon;
use upkeep::HostUpkeep;

/// Until a signal ends it, which is no fault.
pub async fn run(args: &RunArgs, environment: &Environment, stdin: impl Read) -> Result<(), Fault> {
    let path = args.contact.place.path(environment);
    let worker = args.from_taskrun.as_deref().map(|file| config::taskrun::read(file, environment));
    let worker = worker.transpose()?.unwrap_or_default();
    let mut flags = worker.values;
    flags.extend(args.contact.values());
    let mut config = config::load(&path, flags, environment)?;
    config.token = worker.token;
    config.warn_of_settings_without_effect();
    let servers = plan::servers(&config)?;
    let manager = ServiceManager::of(|name| environment.get(name).cloned());
    let mut stop = signals::Stop::listen()?;
    let dir = hold(&path, args, environment, &mut config, &manager)?;
    let upkeep = HostUpkeep::begin(&dir, config.upkeep.clone(), config.daemon.on_renew.clone());
    let svids = config.spire.clone().map(crate::spire::follow);
    let found = tokio::select! {
        found = start::find(&dir, &args.contact, environment, &config, servers, svids.clone(), stdin) => found?,
        () = stop.asked() => return Ok(()),
    };
    let daemon = Daemon::new(dir, config, found, upkeep, (manager, svids)).await?;
    daemon.run(stop).await
}

/// The directory, or memory in its place.
fn hold(
    path: &Path,
    args: &RunArgs,
    environment: &Environment,
    config: &mut AgentConfig,
    manager: &ServiceManager,
) -> Result<Dir, Fault> {
    let socket = socket::place(path, config);
    match config.storage {
        KeyStorage::Disk => {
            refuse_what_cannot_be_kept(path)?;
            start::refuse_nothing_to_do(path, path, &args.contact, environment, config)?;
            Dir::hold(path)?.answer_at(socket)
        }
        KeyStorage::Memory => {
            let dir = Dir::hold_for_memory(path)?.answer_at(socket)?;
            memory::warn_of_what_is_on_disk(path);
            let dir = dir.keep_in(MemoryStore::open(path, environment, manager)?);
            config.keep_in(dir.path());
            start::refuse_nothing_to_do(dir.path(), path, &args.contact, environment, config)?;
            Ok(dir)
        }
    }
}
