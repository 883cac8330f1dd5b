//! The control plane of a stopped directory, run for one command: with its operator socket and no other listener. So the command passes the
//! same rules, is signed for by the same local user and leaves the same lines in the audit trail as on one that runs.

use super::serving::{self, StopSignals};
use crate::error::{CommandError, Exit};
use crate::reach::Reach;
use ::server::datadir::{DataDir, DirError};
use ::server::run::{Overrides, RunError, Server, start};
use client::OperatorApi;
use std::os::unix::fs::MetadataExt as _;

pub struct StoppedControlPlane {
    server: Server,
    signals: StopSignals,
    dir: DataDir,
}

impl StoppedControlPlane {
    pub async fn start(reach: &Reach) -> Result<Self, CommandError> {
        let dir = DataDir::new(reach.data_dir()?);
        check_owner(&dir)?;
        let signals = StopSignals::listen()?;
        let overrides = Overrides { socket_only: true, ..Overrides::default() };
        let server = start(dir.clone(), overrides).await.map_err(|error| match error {
            RunError::Dir(DirError::InUse(_)) => CommandError::from(error)
                .with_hint("the control plane runs: give the command without --stopped"),
            other => other.into(),
        })?;
        Ok(Self { server, signals, dir })
    }

    pub fn operator(&self) -> OperatorApi {
        OperatorApi::over_socket(self.dir.operator_socket())
    }

    pub async fn stop(mut self) -> Result<(), CommandError> {
        serving::stop(self.server, &mut self.signals).await
    }
}

/// The service could not read what another user writes there.
fn check_owner(dir: &DataDir) -> Result<(), CommandError> {
    let Ok(owner) = std::fs::metadata(dir.path()).map(|found| found.uid()) else { return Ok(()) };
    if owner == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let name = ::server::user_name(owner);
    let message = format!(
        "the data directory {} belongs to {name}, who could not read what another user writes there",
        dir.path().display()
    );
    Err(CommandError::new(
        Exit::Usage,
        "not_the_owner",
        message,
        format!("run the command as {name}, such as with sudo -u {name}"),
    ))
}
