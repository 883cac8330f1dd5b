//! `run`: keeps the identity alive for as long as the host is.
//!
//! One task decides (`daemon`); calls to the control plane are made beside it. The daemon is made of parts, each with its
//! own fields: `session` (the connection), `renewal`, `recovery`, `configuration`, `upkeep` of the host. They share `core`: the directory,
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
mod hook;
mod host_sessions;
mod imported_certificate;
mod live_channel;
mod metrics;
mod metrics_listener;
mod orders;
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

use crate::cli::RunArgs;
use crate::config::{self, Environment};
use crate::enroll::plan;
use crate::enroll::precheck::refuse_what_cannot_be_kept;
use crate::fault::Fault;
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
    refuse_what_cannot_be_kept(&path, &config)?;
    start::refuse_nothing_to_do(&path, &args.contact, environment, &config)?;
    let mut stop = signals::Stop::listen()?;
    let dir = Dir::hold(&path)?;
    let upkeep = HostUpkeep::begin(&path, config.upkeep.clone(), config.daemon.on_renew.clone());
    let manager = ServiceManager::of(|name| environment.get(name).cloned());
    let found = tokio::select! {
        found = start::find(&dir, &args.contact, environment, &config, servers, stdin) => found?,
        () = stop.asked() => return Ok(()),
    };
    let daemon = Daemon::new(dir, config, found, upkeep, manager).await?;
    daemon.run(stop).await
}
