//! What a replica keeps of its own: which one it is, its certificate, and its key, sealed like the others.

use crate::process::datadir::{DataDir, DirError, replace};
use lifecycle::names::{ReplicaId, TrustDomain};
use pki::seal::Kek;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub const KEY_FILE: &str = "replica.key.sealed";
pub const CERTIFICATE_FILE: &str = "replica.pem";
const KEY_CONTEXT: &str = "replica";
const FILE: &str = "replica.json";

/// `DIR/replica.json` of a replica that joined. The replica that was initialized has none, and is the first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaFile {
    pub replica_id: String,
    pub cluster_id: String,
    pub domain: String,
    /// Where the others are reached while the registry has not arrived.
    pub replicas: BTreeMap<String, String>,
}

/// Which replica a directory is.
#[derive(Debug, Clone)]
pub struct LocalReplica {
    pub id: ReplicaId,
    /// Empty for the one that was initialized: its registry has it.
    pub cluster_id: String,
    /// None for the one that was initialized.
    pub domain: Option<TrustDomain>,
    pub seeds: BTreeMap<ReplicaId, String>,
}

impl LocalReplica {
    /// Whether it joined, so that its log may still be empty.
    pub fn joined(&self) -> bool {
        self.id != ReplicaId::FIRST
    }
}

pub fn load(dir: &DataDir) -> Result<LocalReplica, DirError> {
    let path = dir.path().join(FILE);
    let text = match journal::read_small(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(LocalReplica {
                id: ReplicaId::FIRST,
                cluster_id: String::new(),
                domain: None,
                seeds: BTreeMap::new(),
            });
        }
        Err(error) => return Err(DirError::Io { path, error }),
    };
    let unreadable = |what: String| DirError::Io { path: path.clone(), error: std::io::Error::other(what) };
    let file: ReplicaFile = serde_json::from_slice(&text).map_err(|error| unreadable(error.to_string()))?;
    let id = |text: &str| ReplicaId::parse(text).map_err(|error| unreadable(error.to_string()));
    let seeds = file.replicas.iter().map(|(replica, peer)| Ok((id(replica)?, peer.clone())));
    Ok(LocalReplica {
        id: id(&file.replica_id)?,
        cluster_id: file.cluster_id.clone(),
        domain: Some(TrustDomain::parse(&file.domain).map_err(|error| unreadable(error.to_string()))?),
        seeds: seeds.collect::<Result<_, DirError>>()?,
    })
}

pub fn write(dir: &DataDir, file: &ReplicaFile) -> Result<(), DirError> {
    let text = serde_json::to_string_pretty(file).unwrap_or_default() + "\n";
    replace(&dir.path().join(FILE), text.as_bytes(), 0o640)
}

/// Keeps a certificate (with what stands above it) and its key.
pub fn keep(dir: &DataDir, kek: &Kek, chain_pem: &str, key_pkcs8: &[u8]) -> Result<(), DirError> {
    let sealed = kek.seal(KEY_CONTEXT, key_pkcs8).map_err(|error| DirError::Io {
        path: dir.keys(KEY_FILE),
        error: std::io::Error::other(error.to_string()),
    })?;
    replace(&dir.keys(KEY_FILE), &sealed, 0o600)?;
    replace(&dir.ca(CERTIFICATE_FILE), chain_pem.as_bytes(), 0o644)
}

/// The certificate that was kept, and its key; none if there is none, or one does not fit the other.
pub fn kept(dir: &DataDir, kek: &Kek) -> Option<CertifiedKey> {
    let chain = pki::pem::certificates(&journal::read_small(&dir.ca(CERTIFICATE_FILE)).ok()?).ok()?;
    let key = kek.unseal(KEY_CONTEXT, &journal::read_small(&dir.keys(KEY_FILE)).ok()?).ok()?;
    certified(chain, &key)
}

/// A chain with the key of its leaf.
pub fn certified(chain: Vec<CertificateDer<'static>>, key_pkcs8: &[u8]) -> Option<CertifiedKey> {
    let key = PrivateKeyDer::Pkcs8(key_pkcs8.to_vec().into());
    let key = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key).ok()?;
    let certified = CertifiedKey::new(chain, key);
    certified.keys_match().ok()?;
    Some(certified)
}

/// The key under another key-encryption key.
pub fn reseal(dir: &DataDir, old: &Kek, next: &Kek) -> Result<(), DirError> {
    let path = dir.keys(KEY_FILE);
    let key = journal::read_small(&path).ok().and_then(|sealed| old.unseal(KEY_CONTEXT, &sealed).ok());
    match key.and_then(|key| next.seal(KEY_CONTEXT, &key).ok()) {
        Some(sealed) => replace(&path, &sealed, 0o600),
        None => Ok(()),
    }
}
