//! `run`: keeps the identity alive for as long as the host is.
//!
//! One task decides (`daemon`); calls to the control plane are made beside it and come back as outcomes.
//!
//! **Renewing never strands the host.** The steps are: a new key on disk; the request; the answer as a whole
//! generation on disk, not in use; a connection with it that is welcomed; `current` switched to it; the key's
//! own file removed. Killed before the request or the answer, the next start asks again with the same key and
//! gets the same certificate. Killed between answer and switch, the next start finds the generation by its key
//! and proves it first: until then the old certificate, which `current` still names, is good as well, since the
//! control plane accepts it until the new one is seen and for a while (`renew.drain`) after that. A new
//! certificate that is refused is dropped, and the old one stays in use.

mod accept;
mod calls;
mod daemon;
mod hook;
mod imported_certificate;
mod keeps;
mod live_channel;
mod metrics;
mod metrics_listener;
mod recovery;
mod renewal;
mod reporting;
mod session;
mod signals;
pub mod socket;
mod start;
mod upkeep;

use std::io::Read;

use crate::cli::RunArgs;
use crate::config::{self, Environment};
use crate::enroll::plan;
use crate::enroll::precheck::refuse_what_cannot_be_kept;
use crate::fault::Fault;
use crate::service_manager::Manager;
use crate::store::dir::Dir;
use daemon::Daemon;
use upkeep::Care;

/// Until a signal ends it, which is no fault.
pub async fn run(args: &RunArgs, environment: &Environment, stdin: impl Read) -> Result<(), Fault> {
    let path = args.contact.place.path(environment);
    let worker = args.from_taskrun.as_deref().map(|file| config::taskrun::read(file, environment));
    let worker = worker.transpose()?.unwrap_or_default();
    let mut flags = worker.values;
    flags.extend(args.contact.values());
    let mut config = config::load(&path, flags, environment)?;
    config.token = worker.token;
    let servers = plan::servers(&config)?;
    refuse_what_cannot_be_kept(&path, &config)?;
    start::refuse_nothing_to_do(&path, &args.contact, environment, &config)?;
    let mut stop = signals::Stop::listen()?;
    let dir = Dir::hold(&path)?;
    let care = Care::begin(&path, config.upkeep.clone());
    let manager = Manager::of(environment);
    let found = tokio::select! {
        found = start::find(&dir, &args.contact, environment, &config, servers, stdin) => found?,
        () = stop.asked() => return Ok(()),
    };
    let daemon = Daemon::new(dir, config, found, care, manager).await?;
    daemon.run(stop).await
}
