//! Issuers that a root has revoked. A server whose chain leads through one of them is not the control plane, whoever signed its
//! certificate.
//!
//! The library finds a revocation list by the name of its issuer, and refuses every chain if the signature is another's. A root
//! and its successor have the same name, so the lists are matched by the root's key here.

use lifecycle::names::Serial;
use pki::verify::is_issued_by_another;
use rustls::CertificateError;
use rustls_pki_types::{CertificateDer, TrustAnchor};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;
use webpki::{EndEntityCert, VerifiedPath, anchor_from_trusted_cert};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

/// What the revocation lists of roots say, for as many roots as there are lists.
#[derive(Debug, Clone, Default)]
pub struct DeniedIssuers(Arc<Vec<DeniedByRoot>>);

#[derive(Debug, Clone)]
struct DeniedByRoot {
    root: CertificateDer<'static>,
    serials: BTreeSet<Serial>,
}

impl DeniedIssuers {
    /// Roots, each with the serials on its list. That the list is the root's has been verified.
    pub fn new(lists: impl IntoIterator<Item = (CertificateDer<'static>, Vec<Serial>)>) -> Self {
        let denied = |(root, serials): (CertificateDer<'static>, Vec<Serial>)| DeniedByRoot {
            root,
            serials: serials.into_iter().collect(),
        };
        Self(Arc::new(lists.into_iter().map(denied).filter(|denied| !denied.serials.is_empty()).collect()))
    }

    /// What either denies.
    pub(crate) fn and(&self, others: &Self) -> Self {
        Self(Arc::new(self.0.iter().chain(others.0.iter()).cloned().collect()))
    }

    /// Whether a root has revoked this certificate of its own making. A signature is checked only where the serial fits; one that
    /// cannot be judged does not clear the certificate, nor does one that cannot be read.
    pub fn deny(&self, certificate: &CertificateDer<'_>) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let Ok(([], read)) = X509Certificate::from_der(certificate) else { return true };
        // No list can name a serial that is none.
        let Ok(serial) = Serial::from_bytes(read.raw_serial()) else { return false };
        let by = |list: &DeniedByRoot| {
            list.serials.contains(&serial) && !is_issued_by_another(certificate, &list.root)
        };
        self.0.iter().any(by)
    }
}

/// Judges the paths that the library finds, by what is denied. Another path may lead to another anchor.
pub(crate) struct PathJudge<'a> {
    denied: &'a DeniedIssuers,
    /// What is trusted and denied: an operator may have named an intermediate.
    denied_anchors: &'a [TrustAnchor<'static>],
    refused: Cell<bool>,
}

impl<'a> PathJudge<'a> {
    pub(crate) fn new(denied: &'a DeniedIssuers, denied_anchors: &'a [TrustAnchor<'static>]) -> Self {
        Self { denied, denied_anchors, refused: Cell::new(false) }
    }

    pub(crate) fn judge(&self, path: &VerifiedPath<'_>) -> Result<(), webpki::Error> {
        let leaf: &EndEntityCert<'_> = path.end_entity();
        let mut chain =
            std::iter::once(leaf.der()).chain(path.intermediate_certificates().map(|ca| ca.der()));
        if self.denied_anchors.contains(path.anchor()) || chain.any(|der| self.denied.deny(&der)) {
            self.refused.set(true);
            return Err(webpki::Error::CertRevoked);
        }
        Ok(())
    }

    /// Why no path is good: that one was refused here says more than that others lead nowhere.
    pub(crate) fn reason(&self, otherwise: CertificateError) -> CertificateError {
        if self.refused.get() { CertificateError::Revoked } else { otherwise }
    }
}

/// Those of the trusted certificates that are denied, as the library names them.
pub(crate) fn denied_anchors(
    trusted: &[CertificateDer<'_>],
    denied: &DeniedIssuers,
) -> Vec<TrustAnchor<'static>> {
    let anchor =
        |der: &CertificateDer<'_>| anchor_from_trusted_cert(der).ok().map(|anchor| anchor.to_owned());
    trusted.iter().filter(|der| denied.deny(der)).filter_map(anchor).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lifecycle::names::{Timestamp, TrustDomain};
    use pki::hierarchy::{self, Hierarchy};

    fn domain() -> Hierarchy {
        let domain = TrustDomain::parse("test.example").unwrap();
        hierarchy::create(&domain, Timestamp::from_secs(1_800_000_000), [[1; 16], [2; 16], [3; 16]]).unwrap()
    }

    /// With both places in which the algorithm stands naming another.
    fn with_algorithm(der: &[u8], last: u8) -> CertificateDer<'static> {
        const ECDSA_SHA256: [u8; 10] = [6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
        let places: Vec<_> = (0..der.len()).filter(|at| der[*at..].starts_with(&ECDSA_SHA256)).collect();
        assert_eq!(places.len(), 2);
        let mut changed = der.to_vec();
        places.iter().for_each(|at| changed[at + 9] = last);
        changed.into()
    }

    #[test]
    fn what_cannot_be_judged_is_denied_where_name_and_serial_fit() {
        let (one, other) = (domain(), domain());
        let der = |made: &Hierarchy| CertificateDer::from(made.server.der.clone());
        let serial = pki::describe::facts(&one.server.der).unwrap().serial;
        let denied = DeniedIssuers::new([(CertificateDer::from(one.root_der.clone()), vec![serial])]);
        assert!(denied.deny(&der(&one)));
        assert!(!denied.deny(&der(&other)), "a root of the same name has issued the same serial");
        assert!(!denied.deny(&one.node.der.clone().into()), "another serial");
        assert!(denied.deny(&with_algorithm(&one.server.der, 7)), "of an algorithm that nobody knows");
        assert!(!denied.deny(&with_algorithm(&one.server.der, 3)), "certainly not signed by the root");
        assert!(denied.deny(&b"unreadable".as_slice().into()));
        assert!(!DeniedIssuers::default().deny(&b"unreadable".as_slice().into()));
    }
}
