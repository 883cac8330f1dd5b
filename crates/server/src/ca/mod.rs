//! The certificate authority: the keys of the issuers, rolls, the key-encryption key, revocation lists, and the
//! certificate of the server itself.

pub mod crl;
pub mod keys;
pub mod log_key;
pub mod rewrap;
pub mod roll;
pub mod server_cert;

use crate::process::datadir::DataDir;
use crl::Lists;
use keys::Keys;
use server_cert::PresentedCertificate;
use std::sync::Arc;
use tokio::sync::Mutex;

/// The keys of this replica, and what follows from them.
pub struct CertificateAuthority {
    pub keys: Keys,
    /// The certificate of the server itself.
    pub presented: Arc<PresentedCertificate>,
    /// Revocation lists as signed last.
    lists: Lists,
    /// Held while the key-encryption key is changed, and while anything is sealed that the change must not miss.
    rewrapping: Mutex<()>,
    /// Where the files beside the registry are: the server certificate, its sealed key, the note of a rewrap.
    dir: DataDir,
}

impl CertificateAuthority {
    pub fn new(keys: Keys, dir: DataDir) -> Self {
        Self {
            keys,
            presented: PresentedCertificate::empty(),
            lists: Lists::default(),
            rewrapping: Mutex::new(()),
            dir,
        }
    }
}
