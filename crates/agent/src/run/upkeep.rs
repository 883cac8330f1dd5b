//! What the daemon looks after on its own host: room on the disks, names and directories, what it writes down. None of
//! it may stop the daemon.

use std::path::{Path, PathBuf};
use std::time::Duration;

use api::agent::{EndpointProfile, FreeSpace};
use lifecycle::host::{Class, Input};
use tokio::time::Instant;

use super::daemon::Daemon;
use super::metrics::Figures;
use crate::clock;
use crate::config::{Upkeep, hosts};
use crate::diagnostics::{self, NotWritten, Record, Ring};
use crate::reconcile::profile::{self, Profile};
use crate::reconcile::{self, Report, Scope};
use crate::space::{self, Ballast, Free};

pub struct Care {
    dir: PathBuf,
    upkeep: Upkeep,
    ring: Ring,
    pub ballast: Ballast,
    look_at: Instant,
    pub free: Vec<Free>,
    /// So little room that records and figures give way.
    pub pressed: bool,
    /// Hardly any room for keys and certificates.
    pub full: bool,
    pub diagnostic_writable: Option<bool>,
    pub profile: Option<Profile>,
    /// What of this host's names could not be put right.
    pub drift: Option<(Class, String)>,
    /// What the first look had to put right, until it is counted.
    drifted: bool,
}

/// What a look found wrong.
pub struct Seen {
    pub class: Class,
    pub what: String,
}

impl Care {
    /// Puts back what this host has lost, before anything is asked of the network.
    pub fn begin(dir: &Path, upkeep: Upkeep) -> Self {
        let profile = profile::load(dir).unwrap_or_default();
        let mut care = Self {
            ring: Ring::open(&upkeep.diagnostic_path, upkeep.diagnostic_bytes),
            ballast: Ballast::new(dir, upkeep.ballast_bytes),
            dir: dir.to_owned(),
            upkeep,
            look_at: Instant::now(),
            free: Vec::new(),
            pressed: false,
            full: false,
            diagnostic_writable: None,
            profile,
            drift: None,
            drifted: false,
        };
        care.drifted = care.put_back(true);
        care
    }

    pub fn due(&self) -> Instant {
        self.look_at
    }

    /// Addresses of the control plane that its operator named.
    pub fn api_urls(&self) -> impl Iterator<Item = &String> {
        self.profile.iter().flat_map(|profile| &profile.api_urls)
    }

    pub fn profile_id(&self) -> Option<&str> {
        self.profile.as_ref().map(|profile| profile.id.as_str())
    }

    /// Room, names and directories; nothing if it is not time yet.
    fn look(&mut self, figures: &mut Figures) -> Vec<Seen> {
        let now = Instant::now();
        if now < self.look_at {
            return Vec::new();
        }
        self.look_at = now + Duration::from_millis(self.upkeep.check_interval.millis());
        if self.put_back(false) || std::mem::take(&mut self.drifted) {
            figures.drifted();
        }
        self.free = space::free(&self.dir, &self.upkeep);
        for (mount, bytes) in space::mounts(&self.free) {
            figures.free(&mount, bytes);
        }
        let room =
            |name: &str| self.free.iter().find(|free| free.name == name).map(|free| free.available_bytes);
        self.pressed =
            room("diagnostic").is_some_and(|room| space::is_pressed(room, self.upkeep.ballast_bytes));
        if let Err(error) = self.ballast.take() {
            tracing::debug!(%error, "the ballast file could not be created");
        }
        self.full = room("cert").is_some_and(space::is_short) || self.ballast.is_spent();
        let tried = diagnostics::try_out(self.ring.path()).map_err(NotWritten);
        // Room for records is taken while nobody else needs it.
        let tried = if self.pressed { tried } else { tried.and_then(|()| self.ring.reserve()) };
        self.diagnostic_writable = Some(tried.is_ok());
        if let Err(failed) = tried {
            figures.diagnostic_not_written(failed.reason());
        }
        let mut seen = Vec::new();
        if let (true, Some(room)) = (self.full, room("cert")) {
            let what = format!("{room} bytes are free in the file system of {}", self.dir.display());
            seen.push(Seen { class: Class::DiskFull, what });
        }
        seen.extend(self.drift.iter().map(|(class, what)| Seen { class: *class, what: what.clone() }));
        seen
    }

    /// Whether something was not as it should be. A directory that is made at the start is nothing to tell people.
    fn put_back(&mut self, starting: bool) -> bool {
        let report = reconcile::run(&self.dir, &self.upkeep, self.profile.as_ref(), Scope::BY_ITSELF);
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

    /// The control plane names another profile, or none any more. True if it is another, which is on disk then.
    pub fn adopt(&mut self, wire: &EndpointProfile) -> Result<bool, String> {
        let profile = Profile::of(wire)?;
        if self.profile == profile {
            return Ok(false);
        }
        let kept = self.ballast.rescue(|| profile::save(&self.dir, profile.as_ref()));
        let before = reconcile::wanted(&self.upkeep, self.profile.as_ref()).0;
        let wanted = reconcile::wanted(&self.upkeep, profile.as_ref()).0;
        if wanted != before {
            // Whoever may do this can lead this host elsewhere by name, so it is never done in silence.
            tracing::warn!(
                before = hosts::listed(&before),
                now = hosts::listed(&wanted),
                "the control plane changes the host names that this agent manages"
            );
        }
        self.profile = profile;
        self.put_back(false);
        kept.map_err(|error| error.to_string()).map(|()| true)
    }

    /// Writes a trouble down, unless room is so short that only its want is worth a line.
    pub fn record(&mut self, record: &Record, figures: &mut Figures) {
        if self.pressed && record.class != Class::DiskFull.as_str() {
            return figures.dropped("diagnostic", "disk_pressure");
        }
        if let Err(failed) = self.ring.write(record) {
            self.diagnostic_writable = Some(false);
            figures.diagnostic_not_written(failed.reason());
        }
    }

    /// As it is told to the control plane.
    pub fn free_space(&self) -> Vec<FreeSpace> {
        let told = |free: &Free| FreeSpace {
            name: free.name.to_owned(),
            path: free.path.display().to_string(),
            available_bytes: free.available_bytes,
        };
        self.free.iter().map(told).collect()
    }
}

/// Directories that are made for the first time are no drift.
fn drifts(report: &Report) -> bool {
    report.drift.iter().any(|finding| finding.kind != "directory")
}

impl Daemon {
    /// Looks after this host, when it is time.
    pub(super) fn look_after_the_host(&mut self) {
        if Instant::now() < self.care.due() {
            return;
        }
        self.figures.expires(self.identity.facts.not_after, clock::now());
        let seen = self.care.look(&mut self.figures);
        // A disk that was found full by writing is found to have room by writing.
        let was_full = self.host.ill().is_some_and(|ill| ill.class == Class::DiskFull);
        let full = self.care.full || (was_full && self.try_room().is_err());
        self.learn(Input::Full(full));
        self.learn(Input::Drift(self.care.drift.is_some()));
        for Seen { class, what } in seen {
            self.trouble_of(class, &what);
        }
        self.look_for_recovery();
        self.ask_for_token();
    }

    /// The control plane has another endpoint profile for this host.
    pub(super) fn adopt_profile(&mut self, wire: &EndpointProfile) {
        match self.care.adopt(wire) {
            Ok(true) => tracing::info!(id = wire.id, "endpoint profile changed"),
            Ok(false) => {}
            Err(reason) => {
                self.say("endpoint_profile_drift", &format!("the endpoint profile is not kept: {reason}"))
            }
        }
    }
}
