//! The key a host makes for itself. It never leaves the host; its request does.

use rcgen::CertificateParams;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use zeroize::Zeroizing;

use crate::certificate::common_name;
use crate::pem::{self, PemError};
use crate::signing_key::{SigningKey, SigningKeyError};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostKeyError {
    #[error(transparent)]
    Pem(#[from] PemError),
    #[error(transparent)]
    Key(#[from] SigningKeyError),
    #[error("the request could not be made: {0}")]
    Request(String),
}

/// A P-256 key.
pub struct HostKey {
    key: SigningKey,
    pkcs8: Zeroizing<Vec<u8>>,
}

impl HostKey {
    pub fn generate() -> Result<Self, HostKeyError> {
        let (key, pkcs8) = SigningKey::generate()?;
        Ok(Self { key, pkcs8 })
    }

    /// Reads PKCS#8 or SEC1; kept as PKCS#8.
    pub fn from_pem(text: &[u8]) -> Result<Self, HostKeyError> {
        let der = pem::private_key(text)?;
        let (key, pkcs8) = SigningKey::read_p256(der.secret_der())?;
        Ok(Self { key, pkcs8 })
    }

    pub fn to_pem(&self) -> Zeroizing<String> {
        pem::key_pem_pkcs8(&self.pkcs8)
    }

    /// As `EC PRIVATE KEY`, for programs that read nothing else.
    pub fn to_sec1_pem(&self) -> Result<Zeroizing<String>, HostKeyError> {
        Ok(pem::key_pem_sec1(&self.key.sec1()?))
    }

    pub fn pkcs8(&self) -> &[u8] {
        &self.pkcs8
    }

    /// For a TLS configuration.
    pub fn private_key_der(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.pkcs8.to_vec()).into()
    }

    /// SubjectPublicKeyInfo in DER.
    pub fn spki(&self) -> Vec<u8> {
        self.key.spki()
    }

    /// A request without a name: the control plane knows who this host is, or will find out.
    pub fn csr_pem(&self) -> Result<String, HostKeyError> {
        self.request(None)
    }

    /// A request with a common name, for control planes that show it. One longer than 64 bytes is left out.
    pub fn csr_pem_named(&self, name: &str) -> Result<String, HostKeyError> {
        self.request(Some(name))
    }

    fn request(&self, name: Option<&str>) -> Result<String, HostKeyError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(name);
        let request = params.serialize_request(&self.key);
        let request = request.map_err(|error| HostKeyError::Request(error.to_string()))?;
        Ok(pem::request_pem(request.der()))
    }
}

/// Never the key.
impl std::fmt::Debug for HostKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HostKey(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csr;

    #[test]
    fn a_key_survives_the_disk() {
        let key = HostKey::generate().unwrap();
        let again = HostKey::from_pem(key.to_pem().as_bytes()).unwrap();
        assert_eq!((again.spki(), again.to_pem()), (key.spki(), key.to_pem()));
        let sec1 = key.to_sec1_pem().unwrap();
        assert!(sec1.starts_with("-----BEGIN EC PRIVATE KEY-----\n"));
        assert_eq!(HostKey::from_pem(sec1.as_bytes()).unwrap().to_pem(), key.to_pem());
        let request = csr::read(again.csr_pem().unwrap().as_bytes()).unwrap();
        assert_eq!((request.spki, request.common_name), (key.spki(), None));
        assert_eq!(format!("{key:?}"), "HostKey(hidden)");
    }
}
