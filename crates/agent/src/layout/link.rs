//! One symbolic link into the generation in use.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::store::disk;
use crate::store::generation::Generations;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityLink {
    pub path: PathBuf,
    /// The file of the generation.
    pub name: &'static str,
    target: PathBuf,
    /// Where every link of this directory's leads to, as it is written in links from here.
    home: PathBuf,
}

/// What is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    Missing,
    Right,
    /// A link into this directory's identity, but to another file of it.
    Ours,
    Foreign,
}

impl IdentityLink {
    pub fn new(dir: &Path, path: PathBuf, name: &'static str) -> Self {
        let current = Generations::under(dir).current_path();
        // Inside the directory a relative one, which survives when the directory is moved.
        let home = match path.strip_prefix(dir).ok().and_then(Path::parent) {
            Some(between) => {
                let up = between.components().map(|_| "..");
                up.collect::<PathBuf>().join(current.strip_prefix(dir).unwrap_or(&current))
            }
            None => current,
        };
        Self { path, name, target: home.join(name), home }
    }

    pub fn look(&self) -> io::Result<Look> {
        match fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Look::Missing),
            found => found?,
        };
        Ok(match fs::read_link(&self.path) {
            Ok(there) if there == self.target => Look::Right,
            Ok(there) if there.parent() == Some(&self.home) => Look::Ours,
            _ => Look::Foreign,
        })
    }

    /// Makes it, unless something foreign is there; then false. One of ours is replaced by one rename, so that
    /// it is never missing.
    pub fn make(&self, dir: &Path, look: Look) -> io::Result<bool> {
        match look {
            Look::Right => return Ok(true),
            Look::Foreign => return Ok(false),
            Look::Missing | Look::Ours => {}
        }
        let Some((parent, name)) = self.path.parent().zip(self.path.file_name()) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file's path"));
        };
        if parent.starts_with(dir) && parent != dir {
            // A directory in ours is for this user alone.
            disk::private_dir(parent)?;
        } else {
            fs::create_dir_all(parent)?;
        }
        if look == Look::Missing {
            // Fails if something has come since, instead of replacing it.
            return match symlink(&self.target, &self.path) {
                Ok(()) => disk::sync_dir(parent).map(|()| true),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(self.look()? == Look::Right),
                Err(error) => Err(error),
            };
        }
        let fresh = parent.join(format!(".{}.new", name.to_string_lossy()));
        disk::remove(&fresh)?;
        symlink(&self.target, &fresh)?;
        fs::rename(&fresh, &self.path)?;
        disk::sync_dir(parent)?;
        Ok(true)
    }
}

pub fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_made_restored_and_never_made_over_a_file() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("agent");
        fs::create_dir_all(dir.join("identity/0000000001")).unwrap();
        symlink("0000000001", dir.join("identity/current")).unwrap();
        fs::write(dir.join("identity/current/cert.pem"), "leaf").unwrap();
        for path in [dir.join("cert.pem"), dir.join("certs/agent.crt"), top.path().join("else/where.pem")] {
            let link = IdentityLink::new(&dir, path.clone(), "cert.pem");
            assert_eq!(link.look().unwrap(), Look::Missing);
            assert!(link.make(&dir, Look::Missing).unwrap());
            assert_eq!(link.look().unwrap(), Look::Right);
            assert_eq!(fs::read_to_string(&path).unwrap(), "leaf");
            let other = IdentityLink::new(&dir, path.clone(), "layout-cert.pem");
            assert_eq!(other.look().unwrap(), Look::Ours);
            fs::remove_file(&path).unwrap();
            fs::write(&path, "precious").unwrap();
            assert_eq!(link.look().unwrap(), Look::Foreign);
            assert!(!link.make(&dir, Look::Foreign).unwrap());
            assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        }
    }

    #[test]
    fn what_came_after_the_look_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cert.pem");
        let link = IdentityLink::new(dir.path(), path.clone(), "cert.pem");
        let look = link.look().unwrap();
        fs::write(&path, "precious").unwrap();
        assert!(!link.make(dir.path(), look).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        fs::remove_file(&path).unwrap();
        assert!(link.make(dir.path(), look).unwrap());
        assert!(link.make(dir.path(), look).unwrap(), "made by another run in between");
    }

    #[test]
    fn a_link_to_elsewhere_is_foreign() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cert.pem");
        symlink("/etc/ssl/cert.pem", &path).unwrap();
        assert_eq!(IdentityLink::new(dir.path(), path, "cert.pem").look().unwrap(), Look::Foreign);
    }
}
