//! An identity on disk: key, leaf, chain and bundle of one generation, and what the control plane said of it and beside it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lifecycle::names::{SpiffeId, SpiffePath, Timestamp};
use pki::agent_key::HostKey;
use pki::describe::{self, Facts};
use pki::digest::TrustDigest;
use pki::pem;
use rustls_pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

use super::disk::{self, PUBLIC, SECRET};
use super::generation::{Generations, Number, Part};
use super::kept_lists;
use super::stored_trust;
use client::RootLists;

pub const KEY: &str = "key.pem";
pub const CERT: &str = "cert.pem";
const CHAIN: &str = "chain.pem";
pub(super) const BUNDLE: &str = "bundle.pem";
pub(super) const ROOT_LISTS: &str = "root-crls.pem";
/// What verifies the certificates of nodes, for programs on this host. Never by what to trust the control plane.
pub const NODE_ISSUERS: &str = "node-issuers.pem";
const META: &str = "meta.json";

/// What the certificate itself does not tell.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdentityMeta {
    /// RFC 3339; jitter not counted.
    pub renew_at: String,
    pub profile: String,
    /// Which trust bundle lies beside it.
    #[serde(default)]
    pub bundle_version: u64,
    /// Which issuers of nodes lie beside it; zero if none do.
    #[serde(default)]
    pub node_issuers_version: u64,
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
    /// Which issuers roots deny: those of the bundle, and all that were ever in one.
    pub root_lists: RootLists,
    /// PEM of what verifies nodes; empty if the control plane has not said it.
    pub node_issuers: Arc<str>,
    pub facts: Facts,
    pub spiffe: SpiffeId,
    /// Nothing if the file is lost: the identity is good without it.
    pub meta: Option<IdentityMeta>,
}

impl HostIdentity {
    pub fn node_id(&self) -> Option<&str> {
        match &self.spiffe.path {
            SpiffePath::Agent { node, .. } => Some(node.as_str()),
            SpiffePath::Operator { .. } | SpiffePath::Replica { .. } | SpiffePath::Bootstrap { .. } => None,
        }
    }

    pub fn tenant(&self) -> Option<&str> {
        match &self.spiffe.path {
            SpiffePath::Agent { tenant, .. } => Some(tenant.as_str()),
            SpiffePath::Operator { .. } | SpiffePath::Replica { .. } | SpiffePath::Bootstrap { .. } => None,
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

    pub fn node_issuers_version(&self) -> u64 {
        self.meta.as_ref().map_or(0, |meta| meta.node_issuers_version)
    }

    /// What the certificate does not tell, to be changed; empty if it was lost.
    pub fn meta_mut(&mut self) -> &mut IdentityMeta {
        self.meta.get_or_insert_default()
    }

    /// Whether the other one has the same bundle, lists and issuers of nodes, whatever their numbers.
    pub fn trusts_like(&self, other: &Self) -> bool {
        self.bundle == other.bundle
            && self.root_lists == other.root_lists
            && self.node_issuers == other.node_issuers
    }

    /// What it trusts and verifies nodes by, as its files say it once it is written.
    pub fn trust_digest(&self) -> TrustDigest {
        let bundle = pem::chain_pem(self.bundle.iter().map(AsRef::as_ref));
        let lists = self.root_lists.pem_of(&self.bundle);
        stored_trust::of_pem(bundle.as_bytes(), self.node_issuers.as_bytes(), lists.as_bytes())
    }

    /// As whom this host comes.
    pub fn credentials(&self) -> client::TlsIdentity {
        let certificates = std::iter::once(&self.leaf).chain(&self.chain).cloned().collect();
        client::TlsIdentity::new(certificates, self.key.private_key_der())
    }

    /// By what it recognises the control plane.
    pub fn trust(&self) -> client::Trust {
        client::Trust::cas(self.bundle.clone()).denying(self.root_lists.denied())
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
        let (bundle, lists) = (certificates(&self.bundle), self.root_lists.pem_of(&self.bundle));
        let own = [
            Part { name: KEY, bytes: key.as_bytes(), mode: SECRET },
            Part { name: CERT, bytes: leaf.as_bytes(), mode: PUBLIC },
            Part { name: CHAIN, bytes: chain.as_bytes(), mode: PUBLIC },
            Part { name: BUNDLE, bytes: bundle.as_bytes(), mode: PUBLIC },
            Part { name: META, bytes: &meta, mode: PUBLIC },
            Part { name: ROOT_LISTS, bytes: lists.as_bytes(), mode: PUBLIC },
            Part { name: NODE_ISSUERS, bytes: self.node_issuers.as_bytes(), mode: PUBLIC },
        ];
        let own = own
            .into_iter()
            .filter(|part| ![ROOT_LISTS, NODE_ISSUERS].contains(&part.name) || !part.bytes.is_empty());
        let parts: Vec<Part<'_>> = own.chain(more.iter().copied()).collect();
        kept_lists::keep(generations.dir(), &self.root_lists)?;
        generations.write(&parts, spare)
    }
}

/// Writes what the certificate itself does not tell anew, in the generation in use.
pub fn rewrite_meta(dir: &Path, meta: &IdentityMeta) -> io::Result<()> {
    let generations = Generations::under(dir);
    let Some(number) = generations.current()? else { return Err(io::ErrorKind::NotFound.into()) };
    disk::replace(&generations.path(number).join(META), &serde_json::to_vec(meta)?, PUBLIC)
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
        Ok(mut identity) => {
            identity.root_lists = identity.root_lists.and(&kept_lists::read(dir));
            StoredIdentity::Present(Box::new(identity))
        }
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
    let bundle = certificates(BUNDLE)?;
    let root_lists = root_lists(path, &bundle).map_err(|error| format!("{ROOT_LISTS}: {error}"))?;
    // Nothing here depends on it, and one that is spoilt is sent again.
    let node_issuers = disk::read(&path.join(NODE_ISSUERS)).ok();
    let node_issuers = node_issuers.and_then(|pem| String::from_utf8(pem).ok()).unwrap_or_default();
    let meta: Option<IdentityMeta> = bytes(META).ok().and_then(|meta| serde_json::from_slice(&meta).ok());
    let meta = match node_issuers.is_empty() {
        true => meta.map(|meta| IdentityMeta { node_issuers_version: 0, ..meta }),
        false => meta,
    };
    Ok(HostIdentity {
        key: Arc::new(key),
        leaf,
        chain,
        bundle,
        root_lists,
        node_issuers: node_issuers.into(),
        facts,
        spiffe,
        meta,
    })
}

/// Of a directory from before there were lists, none.
fn root_lists(path: &Path, bundle: &[CertificateDer<'static>]) -> Result<RootLists, String> {
    match disk::read(&path.join(ROOT_LISTS)) {
        Ok(text) => RootLists::read(&text, bundle).map_err(|error| error.to_string()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(RootLists::default()),
        Err(error) => Err(error.to_string()),
    }
}

/// The newest lists that this host has stored, also where its identity, its bundle or all of its generations are lost.
pub fn stored_lists(dir: &Path) -> RootLists {
    let generations = Generations::under(dir);
    let read = || {
        let path = generations.path(generations.current().ok()??);
        guard(dir, &path).ok().filter(Option::is_none)?;
        let bundle = pem::certificates(&disk::read(&path.join(BUNDLE)).ok()?).ok()?;
        root_lists(&path, &bundle).ok()
    };
    read().unwrap_or_default().and(&kept_lists::read(dir))
}
