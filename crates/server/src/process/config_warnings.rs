//! What is allowed in enlist.toml and will not do what was meant. `server check` shows it, and the start logs it.

use pki::pem;
use pki::succession::check_introduction;

use super::clock;
use super::config::ControlPlaneConfig;
use super::datadir::{DataDir, StoreVersion};

/// One line each.
pub fn warnings(dir: &DataDir, config: &ControlPlaneConfig) -> Vec<String> {
    refused_recovery_ca(dir, config).into_iter().chain(older_directory(dir)).collect()
}

fn older_directory(dir: &DataDir) -> Option<String> {
    let older = dir.check_version().is_ok_and(|version| version == StoreVersion::Older);
    older.then(|| {
        "this data directory was written by an older version: the next start authenticates its log, and older programs \
         cannot use it from then on; make a backup first"
            .to_owned()
    })
}

/// Hosts take a recovery CA only if a CA that they trust vouches for it.
fn refused_recovery_ca(dir: &DataDir, config: &ControlPlaneConfig) -> Option<String> {
    let offered = pem::certificates(config.recovery.ca.as_ref()?.as_bytes()).ok()?;
    let trusted = std::fs::read(dir.ca("bundle.pem")).ok().and_then(|pem| pem::certificates(&pem).ok())?;
    let reason = check_introduction(&trusted, &offered, clock::now()).err()?;
    Some(format!(
        "recovery.ca_file: hosts will refuse this CA and the recovery tokens that come with it, because no CA that they \
         trust vouches for it ({reason}); remove the key, or set recovery_ca_file in agent.toml on every host"
    ))
}
