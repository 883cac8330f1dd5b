//! Certificates made elsewhere, under a CA that was brought along. Whatever made them may have been careless:
//! `openssl x509 -req` of openssl 3.0 writes version 1, without names or uses.

use lifecycle::names::{Fingerprint, KeyHash, Serial, Timestamp};
use rustls_pki_types::CertificateDer;

use crate::describe::{self, Facts};
use crate::spki::{KeyError, PublicKey};
use crate::verify::is_issued_by;
use crate::{digest, pem};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    #[error(transparent)]
    Pem(#[from] pem::PemError),
    #[error("not an X.509 certificate")]
    Malformed,
    #[error("this is the certificate of a CA")]
    Ca,
    #[error("the certificate's serial number is not positive")]
    Serial,
    #[error("the certificate has no common name, which would say whose it is")]
    Nameless,
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// What goes on record of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    pub der: CertificateDer<'static>,
    pub common_name: String,
    pub serial: Serial,
    pub fingerprint: Fingerprint,
    pub key: KeyHash,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

/// Reads the first certificate of a file; its chain may follow, as in files that servers are given.
pub fn read(text: &[u8]) -> Result<Imported, ImportError> {
    let der = pem::certificates(text)?.into_iter().next().ok_or(ImportError::Malformed)?;
    // Written without its sign, a negative one would be taken for that of another certificate.
    if describe::has_positive_serial(&der) == Some(false) {
        return Err(ImportError::Serial);
    }
    let Facts { serial, not_before, not_after, fingerprint, common_name, is_ca, spki, .. } =
        describe::facts(&der).map_err(|_| ImportError::Malformed)?;
    if is_ca {
        return Err(ImportError::Ca);
    }
    let common_name = common_name.filter(|name| !name.is_empty()).ok_or(ImportError::Nameless)?;
    let key = digest::key_hash(PublicKey::read(&spki)?.spki);
    Ok(Imported { der, common_name, serial, fingerprint, key, not_before, not_after })
}

impl Imported {
    /// Whether this CA signed it, and not merely claims to have.
    pub fn is_issued_by(&self, ca: &[u8]) -> bool {
        is_issued_by(&self.der, ca)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent_key::HostKey;
    use crate::hierarchy;
    use crate::issuer::SigningIssuer;
    use crate::leaf::{Issuance, sign_leaf};
    use lifecycle::names::{Span, SpiffeId, TrustDomain};
    use x509_parser::certificate::X509Certificate;
    use x509_parser::prelude::FromDer as _;

    const AT: Timestamp = Timestamp::from_secs(1_800_000_000);

    fn ca() -> hierarchy::Hierarchy {
        hierarchy::create(&TrustDomain::parse("dev").unwrap(), AT, [[1; 16], [2; 16], [3; 16]]).unwrap()
    }

    fn leaf(ca: &hierarchy::Hierarchy, name: Option<&str>) -> Vec<u8> {
        let issuer = SigningIssuer::new(&ca.node.der, &ca.node.key).unwrap();
        let issuance = Issuance {
            subject: SpiffeId::parse("spiffe://dev/tenant/default/agent/w").unwrap(),
            common_name: name.map(str::to_owned),
            serial: [3; 16],
            signing_time: AT,
            lifetime: Span::from_days(7),
        };
        sign_leaf(&issuer, &HostKey::generate().unwrap().spki(), &issuance).unwrap().der
    }

    #[test]
    fn what_is_read_is_what_the_certificate_says() {
        let (ca, other) = (ca(), ca());
        let der = leaf(&ca, Some("worker:w"));
        let read = read(pem::certificate_pem(&der).as_bytes()).unwrap();
        assert_eq!((read.common_name.as_str(), read.der.as_ref()), ("worker:w", der.as_slice()));
        assert_eq!(read.not_after, AT.plus(Span::from_days(7)));
        assert!(read.is_issued_by(&ca.node.der));
        assert!(!read.is_issued_by(&other.node.der), "the same name with another key");
        assert!(!read.is_issued_by(&ca.root_der));
    }

    #[test]
    fn cas_and_the_nameless_are_not_imported() {
        let ca = ca();
        let pem = |der: &[u8]| read(pem::certificate_pem(der).as_bytes());
        assert_eq!(pem(&ca.root_der), Err(ImportError::Ca));
        assert_eq!(pem(&leaf(&ca, None)), Err(ImportError::Nameless));
        assert_eq!(pem(b"\x30\x00"), Err(ImportError::Malformed));
        assert!(read(b"nothing").is_err());
    }

    #[test]
    fn a_serial_that_is_not_positive_is_refused() {
        let der = leaf(&ca(), Some("worker:w"));
        let serial = X509Certificate::from_der(&der).unwrap().1.raw_serial().to_vec();
        let at = der.windows(serial.len()).position(|window| window == serial).unwrap();
        let with = |first: u8, rest: u8| {
            let mut der = der.clone();
            der[at] = first;
            der[at + 1..at + serial.len()].fill(rest);
            read(pem::certificate_pem(&der).as_bytes())
        };
        assert!(with(0x7f, 3).is_ok());
        for (first, rest) in [(0x80, 3), (0xff, 0xff), (0, 0)] {
            assert_eq!(with(first, rest), Err(ImportError::Serial), "{first:x}");
        }
    }
}
