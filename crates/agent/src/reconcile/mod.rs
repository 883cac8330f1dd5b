//! `reconcile`: puts back on this host what the agent needs there, and nothing else: the names it must know, the
//! directories it works in, the modes of its secrets. A start of the host, a tool that writes files, or a person may
//! have changed them.
//!
//! The daemon does it by itself when it starts, when the control plane names another endpoint profile, and now and
//! then. It leaves the modes of secrets alone, though: a key that others could read is for a person to judge.

mod block;
mod hosts_file;
mod modes;
pub mod profile;
mod report;

use std::path::{Path, PathBuf};

use crate::cli::ReconcileArgs;
use crate::code::AgentCode;
use crate::config::hosts::{self, Hosts};
use crate::config::{self, AgentConfig, Environment, KeyStorage, Upkeep, Values};
use crate::fault::Fault;
use crate::memory::is_in_memory;
use crate::run::socket;
use crate::store::dir;
use block::HostsEntry;
pub use modes::files as secret_files;
use profile::StoredEndpointProfile;
pub use report::{Finding, ReconcileReport, Unreconciled};

/// Where the agent's things are.
#[derive(Debug, Clone, Copy)]
pub struct ReconcilePlaces<'a> {
    /// Where they lie.
    pub kept: &'a Path,
    /// The directory that the operator named: what is written elsewhere on this host says so.
    pub named: &'a Path,
}

impl<'a> ReconcilePlaces<'a> {
    pub fn on_disk(dir: &'a Path) -> Self {
        Self { kept: dir, named: dir }
    }
}

/// How much may be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReconcileScope {
    /// Close secrets that are open to others.
    pub secrets: bool,
    /// Only say what would be done.
    pub dry_run: bool,
}

impl ReconcileScope {
    /// What the daemon does without being asked.
    pub const BY_ITSELF: ReconcileScope = ReconcileScope { secrets: false, dry_run: false };
    /// Only to look.
    pub const LOOK: ReconcileScope = ReconcileScope { secrets: true, dry_run: true };
}

/// The command.
pub fn command(args: &ReconcileArgs, environment: &Environment) -> Result<ReconcileReport, Fault> {
    let dir = args.place.path(environment);
    if !dir.exists() {
        let hint = "name the agent's directory with --dir";
        return Err(Fault::usage(AgentCode::DirUnusable, format!("{} is not there", dir.display()), hint));
    }
    dir::check_owner(&dir, &[config::file::NAME, profile::NAME])?;
    let mut config = config::load(&dir, Values::new(), environment)?;
    let kept = match config.storage {
        KeyStorage::Disk => dir.clone(),
        KeyStorage::Memory => in_memory(&dir, &config)?,
    };
    if config.storage == KeyStorage::Memory {
        config.keep_in(&kept);
    }
    let profile = profile::load(&kept).map_err(|error| {
        let hint = "run the command as the owner of the directory";
        Fault::host(AgentCode::DirUnusable, format!("{}: {error}", dir.display()), hint)
    })?;
    let places = ReconcilePlaces { kept: &kept, named: &dir };
    Ok(run(places, &config.upkeep, profile.as_ref(), ReconcileScope { secrets: true, dry_run: args.dry_run }))
}

/// The names that the control plane wants are known to the daemon alone; without them this would take them away.
fn in_memory(dir: &Path, config: &AgentConfig) -> Result<PathBuf, Fault> {
    let kept = socket::ask(dir, Some(config)).and_then(|status| status.memory);
    let kept = kept.map(|memory| PathBuf::from(memory.path)).filter(|path| is_in_memory(path));
    kept.ok_or_else(|| {
        let what = "storage is \"memory\", and what the control plane wants of this host is in the memory of a daemon that does not answer";
        Fault::host(AgentCode::StorageMemory, what, "start `enlist-agent run`, which reconciles by itself; beside it, run this as root")
    })
}

pub fn run(
    places: ReconcilePlaces<'_>,
    upkeep: &Upkeep,
    profile: Option<&StoredEndpointProfile>,
    scope: ReconcileScope,
) -> ReconcileReport {
    let mut report = ReconcileReport { dry_run: scope.dry_run, ..ReconcileReport::default() };
    modes::directories(places.kept, upkeep, scope.dry_run, &mut report);
    if scope.secrets {
        modes::secrets(places.kept, scope.dry_run, &mut report);
    }
    names(places.named, upkeep, profile, scope.dry_run, &mut report);
    report.ok = report.faults.is_empty();
    report
}

/// The names that this host must know, those of agent.toml first; what cannot be one is told.
pub fn wanted(upkeep: &Upkeep, profile: Option<&StoredEndpointProfile>) -> (Hosts, Vec<Unreconciled>) {
    let (mut all, mut report) = (Hosts::new(), ReconcileReport::default());
    for (name, address) in profile.iter().flat_map(|profile| &profile.hosts).take(hosts::MOST) {
        match hosts::pair(name, address) {
            Ok((name, address)) => _ = all.insert(name, address),
            Err(what) => {
                let plain = |text: &str| text.escape_debug().take(80).collect::<String>();
                let finding = Finding::name(&plain(name), "not mapped", plain(address));
                report.fault(finding, &format!("in the endpoint profile, it {what}"), None);
            }
        }
    }
    all.extend(upkeep.hosts.clone());
    (all, report.faults)
}

fn names(
    dir: &Path,
    upkeep: &Upkeep,
    profile: Option<&StoredEndpointProfile>,
    dry_run: bool,
    report: &mut ReconcileReport,
) {
    let (wanted, refused) = wanted(upkeep, profile);
    report.drift.extend(refused.iter().map(|failure| failure.finding.clone()));
    report.faults.extend(refused);
    let file = &upkeep.hosts_file;
    let before = match hosts_file::read(file) {
        Ok(before) => before,
        // Nobody needs it.
        Err(_) if wanted.is_empty() => return,
        Err(error) => {
            let finding = Finding::name(&file.display().to_string(), "unreadable", "a hosts file");
            return report.fault_of(finding, &error);
        }
    };
    let owner = dir.display().to_string();
    let settled = block::settle(&before, &owner, &wanted);
    let expected = |name: &str| wanted.get(name).map(ToString::to_string).unwrap_or_default();
    let mut ours = Vec::new();
    for (name, found) in settled.names {
        match found {
            HostsEntry::Taken(there) => {
                let finding = Finding::name(&name, there, expected(&name));
                report.fault(
                    finding,
                    &format!("{} maps it outside of the agent's block", file.display()),
                    None,
                );
            }
            HostsEntry::Missing => ours.push(Finding::name(&name, "missing", expected(&name))),
            HostsEntry::Changed(there) => ours.push(Finding::name(&name, there, expected(&name))),
            HostsEntry::Unwanted(there) => ours.push(Finding::name(&name, there, "not mapped")),
        }
    }
    if settled.text == before {
        return;
    }
    if ours.is_empty() {
        ours.push(Finding::name(
            &file.display().to_string(),
            "with lines of the agent's block out of place",
            "one block of the agent",
        ));
    }
    // What somebody else has written since stays, too.
    let settle = |before: &[u8]| block::settle(before, &owner, &wanted).text;
    let wrote = if dry_run { Ok(()) } else { hosts_file::change(file, settle) };
    match wrote {
        Ok(()) => ours.into_iter().for_each(|finding| report.settled(finding, Ok(()))),
        Err(error) => {
            let what = std::io::Error::new(error.kind(), format!("{}: {error}", file.display()));
            let class = crate::space::is_full(&error).then_some(lifecycle::host::Class::DiskFull);
            ours.into_iter().for_each(|finding| report.fault(finding, &what.to_string(), class));
        }
    }
}

#[cfg(test)]
mod tests;
