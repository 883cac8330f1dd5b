//! What this host has already, and what stands in the way: everything to look at before a token is spent.

use std::path::Path;

use super::plan::Plan;
use crate::clock;
use crate::config::{self, Config};
use crate::fault::Fault;
use crate::store::identity::{self, Identity, Standing};
use crate::store::pending::Pending;
use crate::store::revoked;

/// An identity that is whole, in date, and not known to be revoked. One that others may have read is not silently replaced.
pub fn usable(dir: &Path) -> Result<Option<Box<Identity>>, Fault> {
    let standing = identity::load(dir).map_err(|error| {
        Fault::host("dir_unusable", format!("{}: {error}", dir.display()), "run it as the directory's owner")
    })?;
    match standing {
        Standing::Present(found) if revoked::is_set(dir, &found.facts.serial) => {
            tracing::warn!(node_id = found.node_id(), "the identity here is revoked; a token gives another");
            Ok(None)
        }
        Standing::Present(found) if !found.is_expired(clock::now()) => Ok(Some(found)),
        Standing::Present(_) | Standing::Absent => Ok(None),
        Standing::Damaged(reason) => {
            tracing::warn!(%reason, "the identity here cannot be used");
            Ok(None)
        }
        Standing::Exposed(key) => Err(Fault::host(
            "key_exposed",
            format!("others than this user may read {}", key.display()),
            "if nobody did, close it with chmod 0600; otherwise have the node revoked and enroll with --replace",
        )),
    }
}

/// The identity with which this command has nothing left to obtain: another run was first, or this very request
/// was answered and kept just before it was killed.
pub fn settled(dir: &Path, replace: bool, plan: &Plan) -> Result<Option<Box<Identity>>, Fault> {
    if !replace {
        return usable(dir);
    }
    let (Ok(Standing::Present(found)), Some(pending)) = (identity::load(dir), Pending::read(dir)) else {
        return Ok(None);
    };
    let same = pending.is_for(&plan.token) && pending.key.spki() == found.key.spki();
    Ok(Some(found).filter(|_| same))
}

/// What would only be noticed after the token is spent.
pub fn refuse_what_cannot_be_kept(dir: &Path, config: &Config) -> Result<(), Fault> {
    if config.memory_only {
        return Err(Fault::usage(
            "storage_memory",
            "storage is \"memory\", so there is nowhere to leave an identity",
            "set storage to \"disk\" to enroll by hand",
        ));
    }
    let settings = dir.join(config::file::NAME);
    if std::fs::symlink_metadata(&settings).is_ok_and(|found| found.is_symlink()) {
        return Err(Fault::usage(
            "config_is_link",
            format!("{} is a symbolic link, and enroll writes through none", settings.display()),
            "put the file itself there",
        ));
    }
    Ok(())
}
