//! An identity on disk: key, leaf, chain and bundle of one generation, and what the control plane said of it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lifecycle::names::{SpiffeId, SpiffePath, Timestamp};
use pki::agent_key::HostKey;
use pki::describe::{self, Facts};
use pki::pem;
use rustls_pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

use super::disk::{self, PUBLIC, SECRET};
use super::generation::{Generations, Number, Part};

pub const KEY: &str = "key.pem";
pub const CERT: &str = "cert.pem";
const CHAIN: &str = "chain.pem";
const BUNDLE: &str = "bundle.pem";
const META: &str = "meta.json";

/// What the certificate itself does not tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdentityMeta {
    /// RFC 3339; jitter not counted.
    pub renew_at: String,
    pub profile: String,
    /// Which trust bundle lies beside it.
    #[serde(default)]
    pub bundle_version: u64,
    /// Where the control plane said that it can be reached.
    #[serde(default)]
    pub servers: Vec<String>,
}

/// A whole identity, checked to belong together.
#[derive(Debug, Clone)]
pub struct HostIdentity {
    pub key: Arc<HostKey>,
    pub leaf: CertificateDer<'static>,
    /// Between leaf and root; may be empty.
    pub chain: Vec<CertificateDer<'static>>,
    /// What to trust when reaching the control plane.
    pub bundle: Vec<CertificateDer<'static>>,
    pub facts: Facts,
    pub spiffe: SpiffeId,
    /// Nothing if the file is lost: the identity is good without it.
    pub meta: Option<IdentityMeta>,
}

impl HostIdentity {
    pub fn node_id(&self) -> Option<&str> {
        match &self.spiffe.path {
            SpiffePath::Agent { node, .. } => Some(node.as_str()),
            SpiffePath::Operator { .. } => None,
        }
    }

    pub fn tenant(&self) -> Option<&str> {
        match &self.spiffe.path {
            SpiffePath::Agent { tenant, .. } => Some(tenant.as_str()),
            SpiffePath::Operator { .. } => None,
        }
    }

    pub fn is_expired(&self, at: Timestamp) -> bool {
        at > self.facts.not_after
    }

    pub fn renew_at(&self) -> Option<&str> {
        self.meta.as_ref().map(|meta| meta.renew_at.as_str())
    }

    pub fn bundle_version(&self) -> u64 {
        self.meta.as_ref().map_or(0, |meta| meta.bundle_version)
    }

    /// As whom this host comes.
    pub fn credentials(&self) -> client::TlsIdentity {
        let certificates = std::iter::once(&self.leaf).chain(&self.chain).cloned().collect();
        client::TlsIdentity::new(certificates, self.key.private_key_der())
    }

    /// By what it recognises the control plane.
    pub fn trust(&self) -> client::Trust {
        client::Trust::CaFile(self.bundle.clone())
    }

    /// Writes it, and `more` files beside it, as a new generation that is not in use yet; `spare` is another such
    /// one, which stays.
    pub fn write(
        &self,
        generations: &Generations,
        more: &[Part<'_>],
        spare: Option<Number>,
    ) -> io::Result<Number> {
        let key = self.key.to_pem();
        let meta = serde_json::to_vec(&self.meta)?;
        let certificates = |all: &[CertificateDer<'_>]| pem::chain_pem(all.iter().map(AsRef::as_ref));
        let (leaf, chain) = (pem::certificate_pem(&self.leaf), certificates(&self.chain));
        let bundle = certificates(&self.bundle);
        let own = [
            Part { name: KEY, bytes: key.as_bytes(), mode: SECRET },
            Part { name: CERT, bytes: leaf.as_bytes(), mode: PUBLIC },
            Part { name: CHAIN, bytes: chain.as_bytes(), mode: PUBLIC },
            Part { name: BUNDLE, bytes: bundle.as_bytes(), mode: PUBLIC },
            Part { name: META, bytes: &meta, mode: PUBLIC },
        ];
        let parts: Vec<Part<'_>> = own.into_iter().chain(more.iter().copied()).collect();
        generations.write(&parts, spare)
    }
}

/// What a directory holds.
#[derive(Debug)]
pub enum StoredIdentity {
    /// No identity, or none that was finished.
    Absent,
    Present(Box<HostIdentity>),
    /// Others than this user could read the key, or put another in its place.
    Exposed(PathBuf),
    /// Something is there that is not an identity.
    Damaged(String),
}

/// Reads the generation in use.
pub fn load(dir: &Path) -> io::Result<StoredIdentity> {
    let generations = Generations::under(dir);
    if let Some(fault) = guard(dir, generations.root())? {
        return Ok(fault);
    }
    match generations.current()? {
        Some(number) => at(dir, number),
        None if fs::symlink_metadata(generations.current_path()).is_ok() => {
            let place = generations.current_path();
            Ok(StoredIdentity::Damaged(format!("{} does not point at a generation", place.display())))
        }
        None => Ok(StoredIdentity::Absent),
    }
}

/// Reads one generation.
pub fn at(dir: &Path, number: Number) -> io::Result<StoredIdentity> {
    let path = Generations::under(dir).path(number);
    if let Some(fault) = guard(dir, &path)? {
        return Ok(fault);
    }
    let key = path.join(KEY);
    match disk::open(&key).and_then(|file| file.metadata()) {
        Ok(found) if found.mode() & 0o077 != 0 => return Ok(StoredIdentity::Exposed(key)),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
        _ => {}
    }
    Ok(match read(&path) {
        Ok(identity) => StoredIdentity::Present(Box::new(identity)),
        Err(reason) => StoredIdentity::Damaged(reason),
    })
}

/// Key, certificate and chain in use, in this order, for programs that take them in one file.
pub fn current_pem(dir: &Path) -> io::Result<zeroize::Zeroizing<Vec<u8>>> {
    let current = Generations::under(dir).current_path();
    let mut pem = zeroize::Zeroizing::new(Vec::with_capacity(64 * 1024));
    for name in [KEY, CERT, CHAIN] {
        pem.extend_from_slice(&zeroize::Zeroizing::new(disk::read(&current.join(name))?));
    }
    Ok(pem)
}

/// What the leaves of all generations say that can still be read, whatever else of them is lost: who this host was, and
/// when. They are not verified, so nothing else may depend on them.
pub fn leaves(dir: &Path) -> Vec<Facts> {
    let generations = Generations::under(dir);
    if !matches!(guard(dir, generations.root()), Ok(None)) {
        return Vec::new();
    }
    let leaf = |number: Number| {
        let path = generations.path(number);
        guard(dir, &path).ok().filter(Option::is_none)?;
        let pem = disk::read(&path.join(CERT)).ok()?;
        describe::facts(pem::certificates(&pem).ok()?.first()?).ok()
    };
    generations.numbers().unwrap_or_default().into_iter().filter_map(leaf).collect()
}

/// What is wrong with a directory in which an identity should lie: a planted link, a stranger's directory, or
/// one in which others may write. A missing directory is no error here: reading from it will be.
fn guard(dir: &Path, path: &Path) -> io::Result<Option<StoredIdentity>> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => found?,
    };
    let damaged = |what: &str| Ok(Some(StoredIdentity::Damaged(format!("{} {what}", path.display()))));
    if found.is_symlink() {
        return damaged("is a symbolic link");
    }
    if !found.is_dir() {
        return damaged("is not a directory");
    }
    if found.uid() != fs::metadata(dir)?.uid() {
        return damaged("belongs to another user than the directory it is in");
    }
    Ok((found.mode() & 0o022 != 0).then(|| StoredIdentity::Exposed(path.to_owned())))
}

fn read(path: &Path) -> Result<HostIdentity, String> {
    let bytes = |name: &str| {
        let file = path.join(name);
        disk::read(&file).map_err(|error| match fs::symlink_metadata(&file) {
            Ok(found) if found.is_symlink() => format!("{} is a symbolic link", file.display()),
            _ => format!("{}: {error}", file.display()),
        })
    };
    let key = zeroize::Zeroizing::new(bytes(KEY)?);
    let key = HostKey::from_pem(&key).map_err(|error| format!("{KEY}: {error}"))?;
    let certificates =
        |name: &str| pem::certificates(&bytes(name)?).map_err(|error| format!("{name}: {error}"));
    let leaf = certificates(CERT)?.into_iter().next().ok_or("cert.pem: empty")?;
    let chain = match bytes(CHAIN)? {
        empty if empty.is_empty() => Vec::new(),
        _ => certificates(CHAIN)?,
    };
    let facts = describe::facts(&leaf).map_err(|error| format!("{CERT}: {error}"))?;
    if facts.spki != key.spki() {
        return Err(format!("{KEY} is not the key of {CERT}"));
    }
    let spiffe = facts.spiffe.clone().ok_or_else(|| format!("{CERT} names no identity"))?;
    let meta = bytes(META).ok().and_then(|meta| serde_json::from_slice(&meta).ok());
    Ok(HostIdentity { key: Arc::new(key), leaf, chain, bundle: certificates(BUNDLE)?, facts, spiffe, meta })
}
