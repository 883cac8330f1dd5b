//! The certificate authority: the keys of the issuers, rolls, the key-encryption key, revocation lists, and the
//! certificate of the server itself.

pub mod anchors;
pub mod bundle_file;
pub mod crl;
pub mod ephemeral;
pub mod hsm;
pub mod keys;
pub mod log_key;
pub mod rewrap;
pub mod roll;
pub mod root_list;
pub mod server_cert;
pub mod spire;
pub mod spire_bundle;
pub mod step_ca;

use crate::http::failure::Failure;
use crate::process::datadir::DataDir;
use anchors::NodeAnchors;
use crl::Lists;
use ephemeral::MemoryIssuers;
use hsm::HsmWatch;
use keys::Keys;
use server_cert::PresentedCertificate;
use spire::SpireDomains;
use std::sync::Arc;
use std::time::Duration;
use step_ca::StepCaClient;
use tokio::sync::{Mutex, MutexGuard};

/// How long anyone waits until nobody else seals: whoever does makes one proposal, which ends in 15 s.
const SEALING_WAIT: Duration = Duration::from_secs(20);

/// The keys of this replica, and what follows from them.
pub struct CertificateAuthority {
    pub keys: Keys,
    /// What verifies the certificates of nodes.
    pub anchors: NodeAnchors,
    /// Trust domains whose SVIDs are accepted.
    pub spire: SpireDomains,
    /// What signs these where the domain has ephemeral issuers.
    pub memory: MemoryIssuers,
    /// Whether the keys of issuers in an HSM sign.
    pub hsm: HsmWatch,
    /// What asks step-ca, where that signs for nodes.
    pub step_ca: StepCaClient,
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
    pub fn new(keys: Keys, dir: DataDir, spire: SpireDomains) -> Self {
        Self {
            spire,
            anchors: NodeAnchors::default(),
            memory: MemoryIssuers::default(),
            hsm: HsmWatch::new(keys.hsm()),
            step_ca: StepCaClient::default(),
            keys,
            presented: PresentedCertificate::empty(),
            lists: Lists::default(),
            rewrapping: Mutex::new(()),
            dir,
        }
    }

    /// Whether TLS cannot be served before the HSM has signed a server certificate.
    pub fn awaits_certificate(&self) -> bool {
        self.keys.hsm().is_some() && self.presented.pin().is_none()
    }

    /// The right to change the key-encryption key, or to seal something that a change must not miss; none in time.
    async fn sealing(&self) -> Result<MutexGuard<'_, ()>, Failure> {
        let late = |_| {
            let failure = Failure::new(api::code::OVERLOADED, "other keys are being sealed");
            failure.retry_after(2)
        };
        tokio::time::timeout(SEALING_WAIT, self.rewrapping.lock()).await.map_err(late)
    }
}
