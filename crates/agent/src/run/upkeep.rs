//! Upkeep of this host: room on the disks, host names and directories, the links to the identity, the hook after a
//! renewal. None of it may stop the daemon.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::agent::{EndpointProfile, Evidence, FreeSpace};
use lifecycle::host::{Class, Input};
use tokio::time::Instant;

use super::core::AgentCore;
use super::hook::{Hook, HookInput};
use crate::clock;
use crate::code::AgentCode;
use crate::config::{Upkeep, hosts, keys};
use crate::reconcile::profile::{self, StoredEndpointProfile};
use crate::reconcile::{self, ReconcilePlaces, ReconcileReport, ReconcileScope};
use crate::space::{self, Ballast, Free};
use crate::status::{Room, Status};
use crate::store::dir::Dir;
use crate::store::{disk, identity};

/// A file that is written to find out whether there is room again.
const PROBE: &str = ".room";

pub struct HostUpkeep {
    config: Upkeep,
    hook: Hook,
    look_at: Instant,
    free: Vec<Free>,
    /// Room in the directories of the workload, by their names.
    reserves: Vec<(&'static str, Ballast)>,
    /// Hardly any room for keys and certificates, or for the workload.
    full: bool,
    profile: Option<StoredEndpointProfile>,
    /// What of this host's names could not be put right.
    drift: Option<(Class, String)>,
    /// What the first look had to put right, until it is counted.
    drifted: bool,
}

impl HostUpkeep {
    /// Puts back what this host has lost, before anything is asked of the network.
    pub fn begin(dir: &Dir, config: Upkeep, on_renew: Option<Vec<String>>) -> Self {
        let path = dir.path().to_owned();
        let input = dir.memory().map(|_| Box::new(move || identity::current_pem(&path)) as HookInput);
        let mut upkeep = Self {
            reserves: reserves(&config),
            config,
            hook: Hook::start(keys::ON_RENEW, on_renew, input),
            look_at: Instant::now(),
            free: Vec::new(),
            full: false,
            profile: profile::load(dir.path()).unwrap_or_default(),
            drift: None,
            drifted: false,
        };
        upkeep.drifted = upkeep.put_back(dir, true);
        upkeep
    }

    pub fn wake(&self) -> Instant {
        self.look_at
    }

    /// Addresses of the control plane that its operator named.
    pub fn api_urls(&self) -> impl Iterator<Item = &String> {
        self.profile.iter().flat_map(|profile| &profile.api_urls)
    }

    /// Room, names and directories; false if it is not time yet.
    pub fn look(&mut self, core: &mut AgentCore) -> bool {
        let now = Instant::now();
        if now < self.look_at {
            return false;
        }
        self.look_at = now + Duration::from_millis(self.config.check_interval.millis());
        core.reporting.metrics.expires(core.identity.facts.not_after, clock::now());
        if self.put_back(&core.dir, false) || std::mem::take(&mut self.drifted) {
            core.reporting.metrics.drifted();
        }
        let short = self.look_at_disks(core);
        // A disk that was found full by writing is found to have room by writing.
        let was_full = core.machine.condition().is_some_and(|condition| condition.class == Class::DiskFull);
        let full = self.full || (was_full && try_room(core.path()).is_err());
        core.learn(Input::DiskFull(full));
        core.learn(Input::Drift(self.drift.is_some()));
        if let Some(what) = short {
            core.failed(Class::DiskFull, &what);
        }
        if let Some((class, what)) = &self.drift {
            core.failed(*class, what);
        }
        true
    }

    /// Which disk is full, in a sentence, if one is.
    fn look_at_disks(&mut self, core: &mut AgentCore) -> Option<String> {
        self.free = space::free(core.path(), &self.config);
        for (mount, bytes) in space::mounts(&self.free) {
            core.reporting.metrics.free(&mount, bytes);
        }
        if let Err(error) = core.ballast.take() {
            tracing::debug!(%error, "the ballast file could not be created");
        }
        for (name, reserve) in &self.reserves {
            let Some(room) = room(&self.free, name) else { continue };
            if let Err(error) = reserve.keep_for_others(room) {
                tracing::debug!(%error, "the ballast file in {name} could not be created");
            }
        }
        let pressed = |room| space::is_pressed(room, self.config.ballast_bytes);
        core.reporting.check_diagnostics(room(&self.free, "diagnostic").is_some_and(pressed));
        let is_spent = |name: &str| {
            let kept = self.reserves.iter().find(|(kept, _)| *kept == name);
            kept.is_some_and(|(_, reserve)| reserve.is_spent()) || (name == "cert" && core.ballast.is_spent())
        };
        // What is told about a disk that is full is no reason to call it full.
        let needed = |free: &&Free| free.name != "diagnostic";
        let full = self
            .free
            .iter()
            .filter(needed)
            .find(|free| space::is_short(free.available_bytes) || is_spent(free.name));
        self.full = full.is_some();
        full.map(|free| {
            let Free { available_bytes, path, .. } = free;
            format!("{available_bytes} bytes are free in the file system of {}", path.display())
        })
    }

    /// Whether something was not as it should be. A directory that is made at the start is nothing to tell people.
    fn put_back(&mut self, dir: &Dir, starting: bool) -> bool {
        let places = ReconcilePlaces { kept: dir.path(), named: dir.place() };
        let report = reconcile::run(places, &self.config, self.profile.as_ref(), ReconcileScope::BY_ITSELF);
        for finding in &report.changed {
            match finding.kind {
                "directory" if starting => tracing::debug!("created directory {}", finding.what),
                "directory" => tracing::info!("created directory {}", finding.what),
                _ => tracing::info!(
                    "restored {}: it was {}, and is now {}",
                    finding.what,
                    finding.found,
                    finding.expected
                ),
            }
        }
        let before = self.drift.take();
        self.drift = report.trouble();
        // What could not be put right is counted when it is first seen, not at every look.
        drifts(&report) && (!report.changed.is_empty() || self.drift != before)
    }

    /// The control plane has another endpoint profile for this host.
    pub fn adopt_profile(&mut self, core: &mut AgentCore, wire: &EndpointProfile) {
        match self.adopt(core, wire) {
            Ok(true) => tracing::info!(id = wire.id, "endpoint profile changed"),
            Ok(false) => {}
            Err(reason) => {
                let what = format!("the endpoint profile is not kept: {reason}");
                core.reporting.log(AgentCode::EndpointProfileDrift, &what);
            }
        }
    }

    /// True if it is another, which is on disk then.
    fn adopt(&mut self, core: &AgentCore, wire: &EndpointProfile) -> Result<bool, String> {
        let profile = StoredEndpointProfile::of(wire)?;
        if self.profile == profile {
            return Ok(false);
        }
        let kept = core.ballast.rescue(|| profile::save(core.path(), profile.as_ref()));
        let before = reconcile::wanted(&self.config, self.profile.as_ref()).0;
        let wanted = reconcile::wanted(&self.config, profile.as_ref()).0;
        if wanted != before {
            // Whoever may do this can redirect this host by name, so it is always logged.
            tracing::warn!(
                before = hosts::listed(&before),
                now = hosts::listed(&wanted),
                "the control plane changes the host names that this agent manages"
            );
        }
        self.profile = profile;
        self.put_back(&core.dir, false);
        kept.map_err(|error| error.to_string()).map(|()| true)
    }

    /// Sees that the links to the identity are there. That one is not is no reason to stop.
    pub fn link_files(&self, core: &mut AgentCore) {
        let spare = core.candidate.as_ref().map(|candidate| candidate.number);
        if let Err(fault) = core.files.fit(core.path(), &core.identity, spare) {
            core.reporting.log(fault.code, &fault.message);
        }
    }

    /// Another certificate is in use.
    pub fn renewed(&self, core: &mut AgentCore) {
        self.link_files(core);
        self.hook.run();
    }

    pub fn evidence(&self, evidence: &mut Evidence) {
        let free_space = |free: &Free| FreeSpace {
            name: free.name.to_owned(),
            path: free.path.display().to_string(),
            available_bytes: free.available_bytes,
        };
        evidence.free_space = self.free.iter().map(free_space).collect();
        evidence.endpoint_profile_id = self.profile_id().unwrap_or_default().to_owned();
    }

    pub fn status(&self, status: &mut Status) {
        status.disk.paths = self.free.iter().map(Room::of).collect();
        status.endpoint_profile = self.profile_id().map(str::to_owned);
        status.reason("disk_full", self.full);
    }

    fn profile_id(&self) -> Option<&str> {
        self.profile.as_ref().map(|profile| profile.id.as_str())
    }
}

/// Task results that are retried, and what is left of work: cleanup evidence and the state of terminal sessions.
fn reserves(config: &Upkeep) -> Vec<(&'static str, Ballast)> {
    let named = [("task_retry", &config.paths.task_retry), ("runtime", &config.paths.runtime)];
    let reserve = |(name, path): (&'static str, &Option<PathBuf>)| {
        path.as_ref().map(|path| (name, Ballast::elsewhere(path, config.ballast_bytes)))
    };
    named.into_iter().filter_map(reserve).collect()
}

fn room(free: &[Free], name: &str) -> Option<u64> {
    free.iter().find(|free| free.name == name).map(|free| free.available_bytes)
}

/// Directories that are made for the first time are no drift.
fn drifts(report: &ReconcileReport) -> bool {
    report.drift.iter().any(|finding| finding.kind != "directory")
}

/// Writes as much as a new identity takes.
fn try_room(dir: &Path) -> io::Result<()> {
    let path = dir.join(PROBE);
    disk::remove(&path)?;
    let tried = disk::create(&path, &[0x5a; 16 * 1024], disk::SECRET);
    disk::remove(&path)?;
    tried
}
