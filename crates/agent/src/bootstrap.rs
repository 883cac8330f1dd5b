//! The bootstrap identity: a certificate that came with the host's image, shared with others, and used until this host has an
//! identity of its own.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use client::TlsIdentity;
use lifecycle::names::{SpiffePath, Timestamp};
use pki::describe::{self, Facts};
use pki::pem;
use zeroize::Zeroizing;

const KEY: &str = "key.pem";
const CERT: &str = "cert.pem";
const CHAIN: &str = "chain.pem";
const CA: &str = "ca.pem";
const FILE_BYTES: u64 = 64 * 1024;

/// Dropped, and with it its key, once the host has its own.
pub struct BootstrapIdentity {
    pub credentials: TlsIdentity,
    pub facts: Facts,
}

impl std::fmt::Debug for BootstrapIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BootstrapIdentity").field("serial", &self.facts.serial).finish_non_exhaustive()
    }
}

/// What recognises the control plane, if the image says so.
pub fn ca_file(dir: &Path) -> Option<PathBuf> {
    Some(dir.join(CA)).filter(|path| path.is_file())
}

pub fn key_file(dir: &Path) -> PathBuf {
    dir.join(KEY)
}

/// The identity in this directory, if it is one that is good now.
pub fn load(dir: &Path, at: Timestamp) -> Result<BootstrapIdentity, String> {
    let key = Zeroizing::new(read(&key_file(dir))?);
    let mut certificates = read(&dir.join(CERT))?;
    if dir.join(CHAIN).exists() {
        certificates.extend(read(&dir.join(CHAIN))?);
    }
    let credentials = TlsIdentity::from_pem(&certificates, &key).map_err(|error| error.to_string())?;
    credentials.check().map_err(|error| error.to_string())?;
    let leaf = pem::first_certificate(&certificates).map_err(|error| error.to_string())?;
    let facts = describe::facts(&leaf).map_err(|error| error.to_string())?;
    match facts.spiffe.as_ref().map(|spiffe| &spiffe.path) {
        Some(SpiffePath::Bootstrap { .. }) => {}
        _ => return Err("the certificate is not that of a bootstrap identity".to_owned()),
    }
    if facts.not_after <= at {
        return Err(format!("the certificate ended at {}", facts.not_after));
    }
    Ok(BootstrapIdentity { credentials, facts })
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let wrong = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(wrong)?;
    file.take(FILE_BYTES).read_to_end(&mut bytes).map_err(wrong)?;
    Ok(bytes)
}
