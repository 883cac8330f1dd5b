//! What can be known of this host before anything is tried.
//!
//! A preflight looks at a host as if nothing were enrolled on it: its settings count, its identity does not.

use std::path::{Path, PathBuf};

use client::{DeniedIssuers, ServerUrl, Trust};

use crate::config::hosts::Hosts;
use crate::config::{self, AgentConfig, Environment, KeyStorage, Upkeep, Values};
use crate::enroll::plan;
use crate::fault::Fault;
use crate::memory::is_in_memory;
use crate::reconcile::profile::{self, StoredEndpointProfile};
use crate::reconcile::{self, ReconcilePlaces, ReconcileReport, ReconcileScope};
use crate::run::socket;
use crate::status::Status;
use crate::store::identity::{self, HostIdentity, StoredIdentity};

/// Asking more would take longer than anybody waits.
const SERVERS: usize = 8;

pub struct DoctorSubject {
    pub dir: PathBuf,
    /// Where the agent's things lie: in the directory, or in the memory of the daemon.
    pub kept: PathBuf,
    pub config: Result<AgentConfig, Fault>,
    /// As configured, or the usual.
    pub upkeep: Upkeep,
    pub stored: std::io::Result<StoredIdentity>,
    pub profile: Option<StoredEndpointProfile>,
    /// What a reconciliation would do.
    pub look: ReconcileReport,
    /// What a running daemon knows.
    pub daemon: Option<Status>,
    /// The socket of a daemon that this user may not ask.
    pub denied: Option<PathBuf>,
}

impl DoctorSubject {
    pub fn read(dir: &Path, environment: &Environment) -> Self {
        let mut config = config::load(dir, Values::new(), environment);
        let daemon = socket::ask(dir, config.as_ref().ok());
        let denied = match daemon {
            Some(_) => None,
            None => socket::denied(dir, config.as_ref().ok()),
        };
        let memory = daemon.as_ref().and_then(|daemon| daemon.memory.as_ref());
        let memory = memory.map(|memory| PathBuf::from(&memory.path)).filter(|path| is_in_memory(path));
        let kept = memory.clone().unwrap_or_else(|| dir.to_owned());
        if let Ok(config) = &mut config
            && memory.is_some()
        {
            config.keep_in(&kept);
        }
        let upkeep = config.as_ref().map_or_else(|_| Upkeep::usual(dir), |config| config.upkeep.clone());
        let gone = memory.is_none() && is_for_memory(&config);
        let stored = if gone { Ok(StoredIdentity::Absent) } else { identity::load(&kept) };
        let profile = profile::load(&kept).ok().flatten();
        let places = ReconcilePlaces { kept: &kept, named: dir };
        let look = reconcile::run(places, &upkeep, profile.as_ref(), ReconcileScope::LOOK);
        Self { dir: dir.to_owned(), kept, config, upkeep, stored, profile, look, daemon, denied }
    }

    /// Before an enrollment with these settings.
    pub fn before(dir: &Path, config: AgentConfig) -> Self {
        let upkeep = config.upkeep.clone();
        let look = reconcile::run(ReconcilePlaces::on_disk(dir), &upkeep, None, ReconcileScope::LOOK);
        let (dir, stored) = (dir.to_owned(), Ok(StoredIdentity::Absent));
        Self {
            kept: dir.clone(),
            dir,
            config: Ok(config),
            upkeep,
            stored,
            profile: None,
            look,
            daemon: None,
            denied: None,
        }
    }

    /// Whether nothing is to be on a disk.
    pub fn is_in_memory(&self) -> bool {
        is_for_memory(&self.config)
    }

    /// Whether the directory holds no identity at all.
    pub fn is_absent(&self) -> bool {
        matches!(self.stored, Ok(StoredIdentity::Absent))
    }

    pub fn identity(&self) -> Option<&HostIdentity> {
        match &self.stored {
            Ok(StoredIdentity::Present(identity)) => Some(identity),
            _ => None,
        }
    }

    /// Every address that the daemon would try.
    pub fn servers(&self) -> Vec<ServerUrl> {
        let named = self.config.iter().flat_map(|config| &config.servers);
        let profile = self.profile.iter().flat_map(|profile| &profile.api_urls);
        let told = self.identity().and_then(|identity| identity.meta.as_ref());
        let told = told.into_iter().flat_map(|meta| &meta.servers);
        let mut servers = Vec::new();
        for url in named.chain(profile).chain(told).filter_map(|text| ServerUrl::parse(text).ok()) {
            if !servers.contains(&url) && servers.len() < SERVERS {
                servers.push(url);
            }
        }
        servers
    }

    /// By what the daemon recognises the control plane, or a first enrollment would.
    pub fn trust(&self) -> Result<Trust, Fault> {
        if let Some(identity) = self.identity() {
            return Ok(identity.trust());
        }
        let config = self.config.as_ref().map_err(Clone::clone)?;
        let trusted = plan::recognised(config, &self.servers()).map(|(_, trust)| trust);
        trusted.map(|trust| trust.denying(self.denied()))
    }

    /// What the roots deny, as far as this host has kept it.
    pub fn denied(&self) -> DeniedIssuers {
        identity::stored_lists(&self.kept).denied()
    }

    /// Names that this host must know by itself.
    pub fn managed(&self) -> Hosts {
        reconcile::wanted(&self.upkeep, self.profile.as_ref()).0
    }

    /// Where sessions go.
    pub fn terminal(&self) -> Option<ServerUrl> {
        let told = self.profile.as_ref().map(|profile| profile.terminal_url.as_str());
        let text = self.upkeep.terminal_url.as_deref().or(told)?;
        config::kind::stream_host(text)
    }
}

fn is_for_memory(config: &Result<AgentConfig, Fault>) -> bool {
    config.as_ref().is_ok_and(|config| config.storage == KeyStorage::Memory)
}
