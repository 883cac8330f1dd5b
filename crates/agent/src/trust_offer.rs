//! What the control plane offers a host to trust, and what of it is taken: a trust bundle, the revocation lists of its roots,
//! and what verifies nodes.
//!
//! A bundle is vouched for by what is trusted, and stored without the cross-certificates that helped with that. A list is signed
//! by a root, whatever connection it came over: also by one that the list itself denies.

use std::sync::Arc;

use api::agent::{Bundle, EnrollResponse, NotNeeded, RecoverResponse, RenewResponse};
use client::RootLists;
use lifecycle::names::Timestamp;
use pki::describe;
use pki::pem;
use pki::succession::vouched;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use crate::store::identity::HostIdentity;

/// Less than a file of the store may have, and room for hundreds.
const ISSUERS_BYTES: usize = 240 * 1024;

#[derive(Debug, Clone, Copy)]
pub struct TrustOffer<'a> {
    pub bundle: &'a str,
    pub bundle_version: u64,
    pub root_crls: &'a str,
    pub node_issuers: &'a str,
    pub node_issuers_version: u64,
}

/// The messages name these fields alike, but for the bundle.
macro_rules! from_messages {
    ($($message:ident $bundle:ident $version:ident),*) => {
        $(impl<'a> From<&'a $message> for TrustOffer<'a> {
            fn from(message: &'a $message) -> Self {
                Self {
                    bundle: &message.$bundle,
                    bundle_version: message.$version,
                    root_crls: &message.root_crls,
                    node_issuers: &message.node_issuers,
                    node_issuers_version: message.node_issuers_version,
                }
            }
        })*
    };
}

from_messages!(
    EnrollResponse bundle bundle_version,
    RenewResponse bundle bundle_version,
    RecoverResponse bundle bundle_version,
    NotNeeded bundle bundle_version,
    Bundle pem version
);

impl TrustOffer<'_> {
    /// The bundle that may be trusted next; a cross-certificate that a root has denied vouches for none of it. Where nothing is known by name, because the operator pinned the server itself or chose
    /// the system's roots, there is nothing to hold it against.
    pub fn bundle(
        &self,
        known: &[CertificateDer<'static>],
        lists: &RootLists,
        at: Timestamp,
    ) -> Result<Vec<CertificateDer<'static>>, String> {
        let offered = pem::certificates(self.bundle.as_bytes()).map_err(|error| error.to_string())?;
        let denied = lists.denied();
        vouched(known, &offered, |der| denied.deny(der), at).map_err(|error| error.to_string())
    }

    /// Takes the lists beside the bundle that the identity has by now; answers with why some were not taken.
    pub fn take_lists(&self, identity: &mut HostIdentity) -> Vec<String> {
        let (lists, refused) = identity.root_lists.updated(self.root_crls, &identity.bundle);
        identity.root_lists = lists;
        let not_kept = |reason| format!("the revocation list of a root is not kept: {reason}");
        refused.into_iter().map(not_kept).collect()
    }

    /// Takes what verifies nodes, without what the lists deny, also where its version is the one that is here: that says nothing
    /// of the contents. A control plane of an older version offers none.
    pub fn take_issuers(&self, identity: &mut HostIdentity) -> Result<(), String> {
        if self.node_issuers.is_empty() {
            return Ok(());
        }
        let issuers = self.issuers(identity);
        identity.node_issuers =
            issuers.map_err(|reason| format!("the issuers of nodes are not kept: {reason}"))?;
        identity.meta_mut().node_issuers_version = self.node_issuers_version;
        Ok(())
    }

    /// Takes both; what is not taken is no reason to do without the rest.
    pub fn take_beside_bundle(&self, identity: &mut HostIdentity) {
        for reason in self.take_lists(identity).into_iter().chain(self.take_issuers(identity).err()) {
            tracing::warn!("{reason}");
        }
    }

    fn issuers(&self, identity: &HostIdentity) -> Result<Arc<str>, String> {
        if self.node_issuers.len() > ISSUERS_BYTES {
            return Err(format!("more than {ISSUERS_BYTES} bytes"));
        }
        let denied = identity.root_lists.denied();
        let (mut issuers, mut found) = (String::new(), false);
        for der in CertificateDer::pem_slice_iter(self.node_issuers.as_bytes()) {
            let der = der.map_err(|_| "not PEM of certificates")?;
            found = true;
            if !describe::facts(&der).map_err(|error| error.to_string())?.is_ca {
                return Err("one of them is not a CA's".to_owned());
            }
            if !denied.deny(&der) {
                issuers.push_str(&pem::certificate_pem(&der));
            }
        }
        if found { Ok(issuers.into()) } else { Err("no certificate in them".to_owned()) }
    }
}
