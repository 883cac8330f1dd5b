//! Directories that must be there, and files that are for this user alone.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::report::{Finding, ReconcileReport};
use crate::config::Upkeep;
use crate::store::{dir, disk};

const PRIVATE: u32 = 0o700;

/// Directories of the agent's own, and of the work of this host. Those that are gone, such as below `/run` after a
/// start of the host, are made again.
pub fn directories(path: &Path, upkeep: &Upkeep, dry_run: bool, report: &mut ReconcileReport) {
    // Where secrets lie, a link would lead them elsewhere.
    let secret = ["identity", "recovery"].map(|name| path.join(name));
    let open = [path.to_owned(), upkeep.diagnostic_path.clone()];
    let work = [&upkeep.paths.task_retry, &upkeep.paths.runtime].into_iter().flatten().cloned();
    for path in open.into_iter().chain(secret.clone()).chain(work) {
        let look = if secret.contains(&path) { fs::symlink_metadata(&path) } else { fs::metadata(&path) };
        match look {
            Ok(found) if found.is_dir() => {}
            Ok(found) => {
                let what = if found.is_symlink() { "a symbolic link" } else { "a file" };
                report.fault(Finding::directory(&path, what), "something else is in its place", None)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let made = if dry_run { Ok(()) } else { make(&path) };
                report.settled(Finding::directory(&path, "missing"), made);
            }
            Err(error) => report.fault_of(Finding::directory(&path, "unreadable"), &error),
        }
    }
}

fn make(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(PRIVATE).recursive(true).create(path)
}

/// Closes what is open to others and should not be. Only what belongs to this user, and never through a link.
/// Directories come first: in one that is closed nobody puts a link in the place of what is looked at.
pub fn secrets(path: &Path, dry_run: bool, report: &mut ReconcileReport) {
    let us = rustix::process::geteuid().as_raw();
    let dirs = ["identity", "recovery", "pending", "wireguard"].map(|name| path.join(name));
    for place in [path.to_owned()].iter().chain(&dirs).chain(&generations(path)) {
        let Ok(found) = fs::symlink_metadata(place) else { continue };
        if !found.is_dir() || found.mode() & 0o077 == 0 {
            continue;
        }
        let finding = Finding::mode(place, found.mode(), PRIVATE);
        if found.uid() != us {
            report.fault(finding, "it belongs to another user", None);
        } else if place == path && (found.mode() & 0o1000 != 0 || dir::shared(path).unwrap_or(true)) {
            report.fault(finding, "it holds files that are not the agent's", None);
        } else {
            report.settled(finding, close(place, PRIVATE, dry_run));
        }
    }
    for file in files(path) {
        if !file.parent().is_some_and(|parent| is_own(path, parent, us)) {
            continue;
        }
        let Ok(found) = fs::symlink_metadata(&file) else { continue };
        if !found.is_file() || found.mode() & 0o077 == 0 {
            continue;
        }
        let finding = Finding::mode(&file, found.mode(), 0o600);
        if found.uid() == us {
            report.settled(finding, close(&file, 0o600, dry_run));
        } else {
            report.fault(finding, "it belongs to another user", None);
        }
    }
}

/// Whether a place below the directory is a directory of this user's, with no link on the way to it.
fn is_own(dir: &Path, place: &Path, us: u32) -> bool {
    let mut below = place.ancestors().take_while(|place| *place != dir);
    let own = |place: &Path| fs::symlink_metadata(place).is_ok_and(|it| it.is_dir() && it.uid() == us);
    below.all(own)
}

fn close(path: &Path, mode: u32, dry_run: bool) -> io::Result<()> {
    if dry_run {
        return Ok(());
    }
    // Opened first, so that a link that was put there since is not followed.
    disk::open(path)?.set_permissions(fs::Permissions::from_mode(mode))
}

/// Every file that holds a secret.
pub fn files(path: &Path) -> Vec<PathBuf> {
    let fixed = [
        "renewal-key.pem",
        "recovery/attempt.json",
        "recovery/token",
        "recovery/tokens.json",
        "pending/key.pem",
        "pending/request.json",
        "pending/wireguard.key",
        "wireguard/private.key",
        "wireguard/next.key",
    ];
    let keys = ["key.pem", "layout-key.pem"];
    let of_generations =
        generations(path).into_iter().flat_map(|generation| keys.map(|name| generation.join(name)));
    fixed.map(|name| path.join(name)).into_iter().chain(of_generations).collect()
}

/// Directories of identities, the link to the one in use left out.
fn generations(path: &Path) -> Vec<PathBuf> {
    let identity = path.join("identity");
    if fs::symlink_metadata(&identity).is_ok_and(|found| found.is_symlink()) {
        return Vec::new();
    }
    let Ok(entries) = fs::read_dir(identity) else { return Vec::new() };
    let is_dir = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let mut found: Vec<PathBuf> = entries.flatten().filter(is_dir).map(|entry| entry.path()).collect();
    found.sort();
    found
}
