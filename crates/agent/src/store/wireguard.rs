//! `wireguard/private.key`: the host's WireGuard key, as `wg` reads it.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use pki::wireguard::WireguardPrivate;

use super::disk;

const NAME: &str = "private.key";

/// The key that is there, made by us or by the operator. One that others could read is a fault.
pub fn read(dir: &Path) -> io::Result<Option<WireguardPrivate>> {
    let path = place(dir).join(NAME);
    let file = match disk::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    if file.metadata()?.mode() & 0o077 != 0 {
        return Err(io::Error::other(format!("other users may read {}", path.display())));
    }
    let text = zeroize::Zeroizing::new(disk::read(&path)?);
    let key = WireguardPrivate::from_text(&text);
    key.map(Some).map_err(|error| io::Error::other(format!("{}: {error}", path.display())))
}

/// Puts a key in the place of whatever key is there.
pub fn keep(dir: &Path, key: &WireguardPrivate) -> io::Result<()> {
    if read(dir).ok().flatten().as_ref() == Some(key) {
        return Ok(());
    }
    disk::private_dir(&place(dir))?;
    disk::replace(&place(dir).join(NAME), key.to_text().as_bytes(), disk::SECRET)
}

fn place(dir: &Path) -> PathBuf {
    dir.join("wireguard")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_is_kept_for_this_user_alone() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), None);
        let key = WireguardPrivate::generate().unwrap();
        keep(dir.path(), &key).unwrap();
        let path = dir.path().join("wireguard/private.key");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(read(dir.path()).unwrap(), Some(key));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(read(dir.path()).is_err());
    }
}
