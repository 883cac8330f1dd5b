//! `wireguard/private.key`: the host's WireGuard key, as `wg` reads it; and beside it the peers that this host was told last.

use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use pki::wireguard::WireguardPrivate;

use super::disk;

const NAME: &str = "private.key";
/// The key that was ordered to take its place, until the control plane has it on record.
const NEXT: &str = "next.key";
const PEERS: &str = "peers.json";
/// More than the peers of the largest overlay take.
const PEERS_BYTES: u64 = 64 * 1024 * 1024;

/// The key that is there, made by us or by the operator. One that others could read is a fault.
pub fn read(dir: &Path) -> io::Result<Option<WireguardPrivate>> {
    read_at(place(dir).join(NAME))
}

/// The key that is to take its place, if the control plane was told of one and has not answered.
pub fn read_next(dir: &Path) -> io::Result<Option<WireguardPrivate>> {
    read_at(place(dir).join(NEXT))
}

fn read_at(path: PathBuf) -> io::Result<Option<WireguardPrivate>> {
    let file = match disk::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    if file.metadata()?.mode() & 0o077 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("other users may read {}", path.display()),
        ));
    }
    let text = zeroize::Zeroizing::new(disk::read(&path)?);
    let key = WireguardPrivate::from_text(&text);
    let spoilt = |error| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", path.display()));
    key.map(Some).map_err(spoilt)
}

/// Puts a key in the place of whatever key is there.
pub fn keep(dir: &Path, key: &WireguardPrivate) -> io::Result<()> {
    if read(dir).ok().flatten().as_ref() == Some(key) {
        return Ok(());
    }
    disk::private_dir(&place(dir))?;
    disk::replace(&place(dir).join(NAME), key.to_text().as_bytes(), disk::SECRET)
}

/// Keeps a key beside the one in use. Killed behind this, the next process claims it again.
pub fn keep_next(dir: &Path, key: &WireguardPrivate) -> io::Result<()> {
    disk::private_dir(&place(dir))?;
    disk::replace(&place(dir).join(NEXT), key.to_text().as_bytes(), disk::SECRET)
}

/// The next key is on record: it is the key from here on. One rename, so that there is never none.
pub fn promote_next(dir: &Path) -> io::Result<()> {
    std::fs::rename(place(dir).join(NEXT), place(dir).join(NAME))?;
    disk::sync_dir(&place(dir))
}

pub fn drop_next(dir: &Path) -> io::Result<()> {
    disk::remove(&place(dir).join(NEXT))
}

/// Both keys, of a node that is no more.
pub fn remove(dir: &Path) -> io::Result<()> {
    drop_next(dir)?;
    disk::remove(&place(dir).join(NAME))
}

/// The peers that an earlier process was told last.
pub fn read_peers(dir: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match disk::open(&place(dir).join(PEERS)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut bytes = Vec::new();
    file.take(PEERS_BYTES).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

pub fn keep_peers(dir: &Path, peers: &[u8]) -> io::Result<()> {
    disk::private_dir(&place(dir))?;
    disk::replace(&place(dir).join(PEERS), peers, disk::SECRET)
}

pub fn remove_peers(dir: &Path) -> io::Result<()> {
    disk::remove(&place(dir).join(PEERS))
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
        assert_eq!(read(dir.path()).unwrap(), Some(key.clone()));
        let next = WireguardPrivate::generate().unwrap();
        keep_next(dir.path(), &next).unwrap();
        assert_eq!(read(dir.path()).unwrap(), Some(key));
        assert_eq!(read_next(dir.path()).unwrap(), Some(next.clone()));
        promote_next(dir.path()).unwrap();
        assert_eq!((read(dir.path()).unwrap(), read_next(dir.path()).unwrap()), (Some(next), None));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(read(dir.path()).is_err());
    }
}
