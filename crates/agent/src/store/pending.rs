//! An enrollment under way: the key and the idempotency key by which a lost reply can be asked for again.
//!
//! It is on disk before the first attempt. The control plane gives the same certificate again for the same
//! token or machine, key and idempotency key, so a crash between spending the token and keeping the certificate costs
//! nothing but a second run.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pki::agent_key::HostKey;
use pki::wireguard::WireguardPrivate;
use serde::{Deserialize, Serialize};

use super::disk;
use crate::chance;
use crate::enroll::credential::EnrollCredential;

const KEY: &str = "key.pem";
const REQUEST: &str = "request.json";
const WIREGUARD: &str = "wireguard.key";

#[derive(Debug)]
pub struct Pending {
    pub key: HostKey,
    /// The host's WireGuard key, if it is to have one. It takes its place when the identity does.
    pub wireguard: Option<WireguardPrivate>,
    pub idempotency_key: String,
    credential: String,
}

#[derive(Serialize, Deserialize)]
struct PendingFile {
    idempotency_key: String,
    /// Of a token its SHA-256, so that another token starts afresh. Not the server: any replica can repeat the answer.
    #[serde(rename = "token_hash")]
    credential: String,
}

impl Pending {
    /// The enrollment that was begun with this credential, or a new one; with a WireGuard key if `wireguard` makes one.
    pub fn resume_or_begin(
        dir: &Path,
        credential: &EnrollCredential,
        wireguard: impl FnOnce() -> io::Result<Option<WireguardPrivate>>,
    ) -> io::Result<Self> {
        match Self::read(dir) {
            Some(found) if found.is_for(credential) => Ok(found),
            _ => Self::begin(dir, credential, wireguard()?),
        }
    }

    /// Nothing if there is none, or not a whole one: a half-written one was never sent.
    pub fn read(dir: &Path) -> Option<Self> {
        let key = zeroize::Zeroizing::new(disk::read(&place(dir).join(KEY)).ok()?);
        let request: PendingFile =
            serde_json::from_slice(&disk::read(&place(dir).join(REQUEST)).ok()?).ok()?;
        let wireguard = match disk::read(&place(dir).join(WIREGUARD)) {
            Ok(text) => Some(WireguardPrivate::from_text(&zeroize::Zeroizing::new(text)).ok()?),
            Err(_) => None,
        };
        Some(Self {
            key: HostKey::from_pem(&key).ok()?,
            wireguard,
            idempotency_key: request.idempotency_key,
            credential: request.credential,
        })
    }

    pub fn is_for(&self, credential: &EnrollCredential) -> bool {
        self.credential == credential.digest()
    }

    fn begin(
        dir: &Path,
        credential: &EnrollCredential,
        wireguard: Option<WireguardPrivate>,
    ) -> io::Result<Self> {
        let key = HostKey::generate().map_err(io::Error::other)?;
        let pending =
            Self { key, wireguard, idempotency_key: chance::hex_128()?, credential: credential.digest() };
        let (request, fresh) = (pending.request()?, unfinished(dir));
        disk::remove(&fresh)?;
        disk::private_dir(&fresh)?;
        disk::create(&fresh.join(KEY), pending.key.to_pem().as_bytes(), disk::SECRET)?;
        if let Some(wireguard) = &pending.wireguard {
            disk::create(&fresh.join(WIREGUARD), wireguard.to_text().as_bytes(), disk::SECRET)?;
        }
        disk::create(&fresh.join(REQUEST), &request, disk::SECRET)?;
        disk::sync_dir(&fresh)?;
        disk::remove(&place(dir))?;
        fs::rename(&fresh, place(dir))?;
        disk::sync_dir(dir)?;
        Ok(pending)
    }

    fn request(&self) -> io::Result<Vec<u8>> {
        let request = PendingFile {
            idempotency_key: self.idempotency_key.clone(),
            credential: self.credential.clone(),
        };
        Ok(serde_json::to_vec(&request)?)
    }
}

/// Once the identity is kept, or given up.
pub fn remove(dir: &Path) -> io::Result<()> {
    disk::remove(&unfinished(dir))?;
    disk::remove(&place(dir))?;
    disk::sync_dir(dir)
}

fn place(dir: &Path) -> PathBuf {
    dir.join("pending")
}

fn unfinished(dir: &Path) -> PathBuf {
    dir.join(".pending.new")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use zeroize::Zeroizing;

    use super::*;
    use crate::token::SecretToken;

    fn token(text: &str) -> EnrollCredential {
        EnrollCredential::Token(SecretToken::new(Zeroizing::new(text.to_owned())).unwrap())
    }

    #[test]
    fn the_same_token_finds_the_same_request_and_another_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let first = Pending::resume_or_begin(dir.path(), &token("one"), || Ok(None)).unwrap();
        assert_eq!(first.idempotency_key.len(), 32);
        let again = Pending::resume_or_begin(dir.path(), &token("one"), || Ok(None)).unwrap();
        assert_eq!((again.key.spki(), &again.idempotency_key), (first.key.spki(), &first.idempotency_key));
        let other = Pending::resume_or_begin(dir.path(), &token("two"), || Ok(None)).unwrap();
        assert_ne!(other.key.spki(), first.key.spki());
        assert_ne!(other.idempotency_key, first.idempotency_key);
        remove(dir.path()).unwrap();
        assert!(Pending::read(dir.path()).is_none());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_wireguard_key_is_part_of_the_request() {
        let dir = tempfile::tempdir().unwrap();
        let begin = || Pending::resume_or_begin(dir.path(), &token("one"), || Ok(Some(made())));
        let first = begin().unwrap();
        assert!(first.wireguard.is_some());
        assert_eq!(begin().unwrap().wireguard, first.wireguard);
    }

    fn made() -> WireguardPrivate {
        WireguardPrivate::generate().unwrap()
    }

    #[test]
    fn it_is_private_and_never_holds_the_token() {
        let dir = tempfile::tempdir().unwrap();
        Pending::resume_or_begin(dir.path(), &token("hush-hush"), || Ok(None)).unwrap();
        for name in [KEY, REQUEST] {
            let path = place(dir.path()).join(name);
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
            assert!(!String::from_utf8(fs::read(&path).unwrap()).unwrap().contains("hush"));
        }
    }

    #[test]
    fn a_half_written_request_is_begun_anew() {
        let dir = tempfile::tempdir().unwrap();
        let first = Pending::resume_or_begin(dir.path(), &token("one"), || Ok(None)).unwrap();
        fs::remove_file(place(dir.path()).join(REQUEST)).unwrap();
        fs::create_dir(dir.path().join(".pending.new")).unwrap();
        let second = Pending::resume_or_begin(dir.path(), &token("one"), || Ok(None)).unwrap();
        assert_ne!(second.idempotency_key, first.idempotency_key);
    }

    #[test]
    fn a_planted_link_is_not_written_through() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        symlink(elsewhere.path(), dir.path().join("pending")).unwrap();
        symlink(elsewhere.path(), dir.path().join(".pending.new")).unwrap();
        Pending::resume_or_begin(dir.path(), &token("one"), || Ok(None)).unwrap();
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
        assert!(fs::symlink_metadata(place(dir.path())).unwrap().is_dir());
    }
}
