//! What this host has already, and what stands in the way: everything to look at before a token is spent.

use std::path::Path;

use super::plan::EnrollPlan;
use crate::clock;
use crate::code::{AgentCode, MEMORY_ONLY};
use crate::config::{self, AgentConfig, KeyStorage};
use crate::fault::Fault;
use crate::store::identity::{self, HostIdentity, StoredIdentity};
use crate::store::pending::Pending;
use crate::store::revoked;

/// An identity that is whole, in date, and not known to be revoked. One that others may have read is not silently replaced.
pub fn usable(dir: &Path) -> Result<Option<Box<HostIdentity>>, Fault> {
    Ok(found(dir)?.ok())
}

/// The same, and warns if there is an identity that cannot be used.
pub fn usable_or_warned(dir: &Path) -> Result<Option<Box<HostIdentity>>, Fault> {
    let found = found(dir)?;
    if let Err(Some(why)) = &found {
        tracing::warn!("the identity in this directory {why}; this host will be enrolled again");
    }
    Ok(found.ok())
}

/// The identity, or why the one that is there cannot be used.
fn found(dir: &Path) -> Result<Result<Box<HostIdentity>, Option<String>>, Fault> {
    let standing = identity::load(dir).map_err(|error| {
        Fault::host(
            AgentCode::DirUnusable,
            format!("{}: {error}", dir.display()),
            "run the command as the owner of the directory",
        )
    })?;
    match standing {
        StoredIdentity::Present(found) if revoked::is_set(dir, &found.facts.serial) => {
            Ok(Err(Some("is revoked".to_owned())))
        }
        StoredIdentity::Present(found) if !found.is_expired(clock::now()) => Ok(Ok(found)),
        StoredIdentity::Present(_) | StoredIdentity::Absent => Ok(Err(None)),
        StoredIdentity::Damaged(reason) => Ok(Err(Some(format!("cannot be used: {reason}")))),
        StoredIdentity::Exposed(key) => Err(Fault::host(
            AgentCode::KeyExposed,
            format!("other users may read {}", key.display()),
            "if no other user has read it, close it with chmod 0600; otherwise have an operator revoke the node, and enroll with --replace",
        )),
    }
}

/// The identity with which this command has nothing left to obtain: another run was first, or this very request
/// was answered and kept just before it was killed.
pub fn settled(dir: &Path, replace: bool, plan: &EnrollPlan) -> Result<Option<Box<HostIdentity>>, Fault> {
    if !replace {
        return usable(dir);
    }
    let (Ok(StoredIdentity::Present(found)), Some(pending)) = (identity::load(dir), Pending::read(dir))
    else {
        return Ok(None);
    };
    let same = pending.is_for(&plan.credential) && pending.key.spki() == found.key.spki();
    Ok(Some(found).filter(|_| same))
}

/// A command that ends cannot keep an identity in memory.
pub fn refuse_memory_storage(config: &AgentConfig) -> Result<(), Fault> {
    match config.storage {
        KeyStorage::Disk => Ok(()),
        KeyStorage::Memory => {
            let code = AgentCode::StorageMemory;
            Err(Fault::usage(code, MEMORY_ONLY, code.remedy()))
        }
    }
}

/// What would only be noticed after the token is spent.
pub fn refuse_what_cannot_be_kept(dir: &Path) -> Result<(), Fault> {
    let settings = dir.join(config::file::NAME);
    if std::fs::symlink_metadata(&settings).is_ok_and(|found| found.is_symlink()) {
        return Err(Fault::usage(
            AgentCode::ConfigIsLink,
            format!("{} is a symbolic link, and `enroll` does not write through links", settings.display()),
            "replace the link with the file itself",
        ));
    }
    Ok(())
}
