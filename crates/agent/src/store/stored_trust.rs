//! What a generation on disk trusts and verifies nodes by, as a digest of its contents: the control plane compares it with what it
//! would send. Versions are in nobody's signature, so they say nothing of what is here.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use pki::digest::TrustDigest;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer};

use super::disk;
use super::generation::Generations;
use super::identity::{BUNDLE, NODE_ISSUERS, ROOT_LISTS};

/// Of the files of one generation. One that is missing, or cannot be read as a whole, counts as empty.
pub fn of_generation(path: &Path) -> TrustDigest {
    let [bundle, issuers, lists] =
        [BUNDLE, NODE_ISSUERS, ROOT_LISTS].map(|name| disk::read(&path.join(name)).unwrap_or_default());
    of_pem(&bundle, &issuers, &lists)
}

pub fn of_pem(bundle: &[u8], node_issuers: &[u8], root_lists: &[u8]) -> TrustDigest {
    let (bundle, issuers) = (ders::<CertificateDer<'_>>(bundle), ders::<CertificateDer<'_>>(node_issuers));
    let lists = ders::<CertificateRevocationListDer<'_>>(root_lists);
    pki::digest::trust_digest(
        bundle.iter().map(AsRef::as_ref),
        issuers.iter().map(AsRef::as_ref),
        lists.iter().map(AsRef::as_ref),
    )
}

fn ders<D: PemObject>(pem: &[u8]) -> Vec<D> {
    D::pem_slice_iter(pem).collect::<Result<_, _>>().unwrap_or_default()
}

/// The same of the generation in use, read again only where a file is another or was written to.
#[derive(Debug, Default)]
pub struct StoredTrust {
    last: Option<([Option<FileMark>; 3], TrustDigest)>,
}

/// Inode, size, and when it was last changed in any way.
type FileMark = (u64, u64, i64, i64);

impl StoredTrust {
    pub fn read(&mut self, dir: &Path) -> TrustDigest {
        let current = Generations::under(dir).current_path();
        let marks = [BUNDLE, NODE_ISSUERS, ROOT_LISTS].map(|name| mark(&current.join(name)));
        match self.last {
            Some((known, digest)) if known == marks => digest,
            _ => {
                let digest = of_generation(&current);
                self.last = Some((marks, digest));
                digest
            }
        }
    }
}

fn mark(path: &Path) -> Option<FileMark> {
    let found = fs::symlink_metadata(path).ok()?;
    Some((found.ino(), found.size(), found.ctime(), found.ctime_nsec()))
}
