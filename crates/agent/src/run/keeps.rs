//! What the control plane gives a host for bad days, and the room to keep it in.

use std::io;

use api::agent::RecoveryGrant;
use lifecycle::host::{Class, Input};

use super::daemon::Daemon;
use crate::space;
use crate::store::{disk, last_attempts, recovery};

const ROOM: &str = ".room";

impl Daemon {
    /// Kept before it is acknowledged: the token before it dies by that.
    pub(super) fn granted(&mut self, grant: Option<&RecoveryGrant>) {
        let Some(grant) = grant else { return };
        let node = self.identity.node_id().unwrap_or_default();
        match self.care.ballast.rescue(|| recovery::keep(self.dir.path(), node, grant)) {
            Ok(()) => {
                if !grant.token.is_empty() {
                    self.kept = Some(grant.token_id.clone());
                }
                self.look_for_recovery();
            }
            Err(error) => self.not_written("a recovery token could not be stored", &error),
        }
    }

    /// Something could not be written: for want of room, or for another reason.
    pub(super) fn not_written(&mut self, what: &str, error: &io::Error) {
        let full = space::is_full(error);
        if full {
            self.learn(Input::Full(true));
            self.write_down(Class::DiskFull, &format!("{what}: {error}"), "");
        }
        self.say(if full { "disk_full" } else { "not_persisted" }, &format!("{what}: {error}"));
    }

    /// How renewals and recoveries ended, for the next start. Not worth the last room on a disk.
    pub(super) fn keep_attempts(&self) {
        if self.care.full || self.host.ill().is_some_and(|ill| ill.class == Class::DiskFull) {
            return;
        }
        if let Err(error) = last_attempts::keep(self.dir.path(), &self.attempts) {
            tracing::debug!(%error, "the result of the last attempt could not be stored");
        }
    }

    /// As much as a new identity takes.
    pub(super) fn try_room(&self) -> io::Result<()> {
        let path = self.dir.path().join(ROOM);
        disk::remove(&path)?;
        let tried = disk::create(&path, &[0x5a; 16 * 1024], disk::SECRET);
        disk::remove(&path)?;
        tried
    }
}
