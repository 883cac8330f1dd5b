//! Users of this host, as its user database knows them.

use std::io;
use std::process::{Command, Stdio};

use rustix::process::{Gid, Uid};

/// Characters of a name.
const NAME: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostUser {
    pub name: String,
    pub uid: Uid,
    pub gid: Gid,
    pub home: String,
    pub shell: String,
}

/// Whether it can be a user's name: nothing that a command line or a terminal would take for something else.
pub fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-@+$\\".contains(c);
    (1..=NAME).contains(&text.len()) && !text.starts_with('-') && text.chars().all(plain)
}

/// None if there is no such user. May take as long as the user database does.
pub fn find(name: &str) -> io::Result<Option<HostUser>> {
    if !is_name(name) {
        return Ok(None);
    }
    let local = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    if let Some(found) = local.lines().find_map(|line| entry(line, name)) {
        return Ok(Some(found));
    }
    // Users of a directory service are known to the C library alone.
    match said("getent", &["passwd", name]) {
        Ok(text) => Ok(text.lines().find_map(|line| entry(line, name))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A line of the user database, if it is of this user. The database also answers to numbers.
fn entry(line: &str, name: &str) -> Option<HostUser> {
    let mut fields = line.split(':');
    let found = fields.next().filter(|found| *found == name)?;
    let uid = fields.nth(1)?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    let home = fields.nth(1)?.to_owned();
    let shell = fields.next().filter(|shell| !shell.is_empty()).unwrap_or("/bin/sh").to_owned();
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    Some(HostUser { name: found.to_owned(), uid, gid, home, shell })
}

impl HostUser {
    /// All groups that the user is in.
    pub fn groups(&self) -> io::Result<Vec<Gid>> {
        let text = said("id", &["-G", &self.name])?;
        let numbers = text.split_whitespace().map(|number| number.parse().map(Gid::from_raw));
        let groups: Result<Vec<Gid>, _> = numbers.collect();
        groups.map_err(|_| io::Error::other("`id -G` said something else than numbers"))
    }
}

fn said(program: &str, arguments: &[&str]) -> io::Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .env("PATH", super::PATH)
        .output()?;
    String::from_utf8(output.stdout).map_err(|_| io::Error::other(format!("{program} said no text")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_known_and_nobody_else_by_number_or_flag() {
        let root = find("root").unwrap().unwrap();
        assert_eq!((root.uid.as_raw(), root.gid.as_raw(), root.home.as_str()), (0, 0, "/root"));
        assert!(root.groups().unwrap().contains(&Gid::from_raw(0)));
        for nobody in ["0", "-x", "", "no such user", "a\nb", "such-a-user-is-not-here"] {
            assert_eq!(find(nobody).unwrap(), None, "{nobody:?}");
        }
    }
}
