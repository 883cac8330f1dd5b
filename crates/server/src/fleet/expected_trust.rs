//! What hosts have stored once they have taken what is sent to them, as digests of the contents. A host is believed by its digest
//! and not by the version that it says: whoever has a stolen issuer can send it any version.

use crate::http::pem;
use lifecycle::registry::{Root, RootList, State};
use pki::digest::TrustDigest;
use pki::verify::is_issued_by;
use rustls_pki_types::CertificateDer;
use std::sync::{Arc, Mutex, PoisonError};

/// Made once for each state of what is trusted: hosts are compared with it all the time.
#[derive(Default)]
pub struct ExpectedTrust(Mutex<Option<(u64, Arc<[TrustDigest]>)>>);

impl ExpectedTrust {
    pub fn is_stored(&self, state: &State, said: &TrustDigest) -> bool {
        self.of(state).contains(said)
    }

    fn of(&self, state: &State) -> Arc<[TrustDigest]> {
        let version = pem::node_issuers_version(state);
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*made {
            Some((of, digests)) if *of == version => digests.clone(),
            _ => {
                let digests: Arc<[TrustDigest]> = digests(state).into();
                *made = Some((version, digests.clone()));
                digests
            }
        }
    }
}

/// What a host says; nothing of one that says none. What is no digest is the digest of nothing.
pub fn said(bytes: &[u8]) -> Option<TrustDigest> {
    (!bytes.is_empty()).then(|| bytes.try_into().unwrap_or_default())
}

/// Of all roots, and of those from each one on: a host that was given a newer root alone does not take its predecessors, nor their
/// lists. With the lists that hosts are sent, and with all: an earlier version sent those that deny nobody, too.
fn digests(state: &State) -> Vec<TrustDigest> {
    let roots: Vec<&Root> = state.trusted_roots().collect();
    let from = (0..roots.len()).filter_map(|first| roots.get(first..));
    from.flat_map(|roots| [digest(state, roots, RootList::denies_any), digest(state, roots, |_| true)])
        .collect()
}

fn digest(state: &State, roots: &[&Root], is_stored: fn(&RootList) -> bool) -> TrustDigest {
    let of = |root: &Root| state.lists.get(&root.fingerprint).filter(|list| is_stored(list));
    let lists: Vec<(&Root, &RootList)> = roots.iter().filter_map(|root| Some((*root, of(root)?))).collect();
    // Hosts leave out what a list denies.
    let is_denied = |der: &[u8]| {
        let Ok(facts) = pki::describe::facts(der) else { return false };
        lists.iter().any(|(root, list)| {
            list.denied.contains(&facts.serial)
                && is_issued_by(
                    &CertificateDer::from(der),
                    &CertificateDer::from(root.certificate.as_slice()),
                )
        })
    };
    pki::digest::trust_digest(
        roots.iter().map(|root| root.certificate.as_slice()),
        pem::node_issuer_certificates(state).filter(|der| !is_denied(der)),
        lists.iter().map(|(_, list)| list.der.as_slice()),
    )
}
