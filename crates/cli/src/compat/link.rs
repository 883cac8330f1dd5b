//! `enlist compat link`: symbolic links under the names of the documents.

use crate::error::{CommandError, Exit};
use crate::output::Output;
use crate::reach::{self, Reach};
use crate::shell;
use serde::Serialize;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

const PROGRAM: &str = "enlist";
const AGENT: &str = "enlist-agent";
const NAMES: [(&str, &str); 6] = [
    ("plfm", PROGRAM),
    ("pact", PROGRAM),
    ("probectl-control", PROGRAM),
    ("taskrun", PROGRAM),
    ("plfm-agent", AGENT),
    ("probectl-agent", AGENT),
];

#[derive(Serialize)]
struct CreatedLinks {
    dir: String,
    links: Vec<CompatLink>,
}

#[derive(Serialize)]
struct CompatLink {
    name: &'static str,
    target: String,
    /// False if it was there already.
    made: bool,
}

pub fn run(reach: &Reach, output: Output) -> Result<(), CommandError> {
    reach.only_dir()?;
    let Some(dir) = &reach.dir else {
        let hint = "give a directory that is in PATH: enlist compat link --dir /usr/local/bin";
        return Err(CommandError::usage("no directory is given for the links", hint));
    };
    let dir = reach::absolute(dir)?;
    let (program, agent) = programs()?;
    fs::create_dir_all(&dir).map_err(|error| CommandError::file(&dir, &error))?;
    let target = |kind: &str| if kind == AGENT { &agent } else { &program };
    // All are looked at before the first is made: half of the names would be worse than none.
    let mut plans = Vec::new();
    for (name, kind) in NAMES {
        let (path, target) = (dir.join(name), target(kind));
        plans.push((name, inspect(&path, target, kind)?, path, target));
    }
    let mut links = Vec::new();
    for (name, found, path, target) in plans {
        if found != LinkState::Current {
            make(&path, target, found).map_err(|error| CommandError::file(&path, &error))?;
        }
        links.push(CompatLink {
            name,
            target: target.display().to_string(),
            made: found != LinkState::Current,
        });
    }
    output.document(&CreatedLinks { dir: dir.display().to_string(), links }, text)
}

/// Both programs by their real paths, whatever this one was called by.
fn programs() -> Result<(PathBuf, PathBuf), CommandError> {
    let program = shell::executable()?;
    let agent = program.with_file_name(AGENT);
    if !agent.is_file() {
        let message = format!("{} does not exist", agent.display());
        let hint = "install enlist-agent beside enlist, then run this command again";
        return Err(CommandError::new(Exit::Fault, "agent_missing", message, hint));
    }
    Ok((program, agent))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkState {
    Absent,
    Current,
    /// A link of an installation that was moved.
    Stale,
}

fn inspect(path: &Path, target: &Path, kind: &str) -> Result<LinkState, CommandError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(LinkState::Absent),
        Err(error) => return Err(CommandError::file(path, &error)),
        Ok(_) => {}
    }
    match fs::read_link(path) {
        Ok(there) if there == target => Ok(LinkState::Current),
        Ok(there) if there.file_name().is_some_and(|name| name == kind) => Ok(LinkState::Stale),
        _ => {
            let message = format!("{} exists already and is not a link to {kind}", path.display());
            let hint = "choose another directory, or move the file away; nothing was changed";
            Err(CommandError::new(Exit::Fault, "file_exists", message, hint))
        }
    }
}

/// A stale one is replaced by one rename, so that the name is never missing; where there was nothing, whatever
/// has come since is left alone.
fn make(path: &Path, target: &Path, found: LinkState) -> std::io::Result<()> {
    if found == LinkState::Absent {
        return symlink(target, path);
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let fresh = path.with_file_name(format!(".{name}.new-{}", std::process::id()));
    symlink(target, &fresh)?;
    fs::rename(&fresh, path).inspect_err(|_| {
        let _ = fs::remove_file(&fresh);
    })
}

fn text(created: &CreatedLinks) -> String {
    let line = |link: &CompatLink| {
        let done = if link.made { "" } else { " (unchanged)" };
        format!("{}/{} -> {}{done}\n", created.dir, link.name, link.target)
    };
    created.links.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_link_of_ours_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (path, target) = (dir.path().join("plfm"), dir.path().join("enlist"));
        assert_eq!(inspect(&path, &target, PROGRAM).unwrap(), LinkState::Absent);
        make(&path, &target, LinkState::Absent).unwrap();
        assert_eq!(inspect(&path, &target, PROGRAM).unwrap(), LinkState::Current);
        assert_eq!(inspect(&path, &dir.path().join("new/enlist"), PROGRAM).unwrap(), LinkState::Stale);
        assert!(inspect(&path, &dir.path().join(AGENT), AGENT).is_err());
        fs::remove_file(&path).unwrap();
        fs::write(&path, "somebody's own").unwrap();
        assert!(inspect(&path, &target, PROGRAM).is_err());
        assert_eq!(make(&path, &target, LinkState::Absent).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "somebody's own");
    }

    #[test]
    fn a_stale_link_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (path, target) = (dir.path().join("plfm"), dir.path().join("enlist"));
        symlink("/old/enlist", &path).unwrap();
        make(&path, &target, inspect(&path, &target, PROGRAM).unwrap()).unwrap();
        assert_eq!(inspect(&path, &target, PROGRAM).unwrap(), LinkState::Current);
    }
}
