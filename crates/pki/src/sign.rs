//! Signing audit checkpoints, and verifying them with nothing but certificates.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use lifecycle::names::Timestamp;
use rustls_pki_types::CertificateDer;
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_parser::certificate::X509Certificate;
use x509_parser::oid_registry::OID_X509_EXT_EXTENDED_KEY_USAGE;
use x509_parser::prelude::FromDer as _;

use crate::certificate::role_owner;
use crate::hierarchy::AUDIT_ROLE;
use crate::spki::{Hash, KeyKind, PublicKey};
use crate::x509_time;

/// [`crate::hierarchy::AUDIT_USE`] as webpki wants it: the content octets of the OID.
const AUDIT_USE: KeyUsage = KeyUsage::required_if_present(&[0x2b, 6, 1, 5, 5, 7, 3, 36]);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuditKeyError {
    #[error("not a P-256 key in PKCS#8")]
    Key,
    #[error("the audit key could not sign")]
    Signature,
    #[error("not an X.509 certificate")]
    Malformed,
    #[error("this certificate is not for signing audit checkpoints")]
    NotAudit,
    #[error("the audit certificate does not lead to a given root: {0}")]
    Chain(String),
}

/// ECDSA on P-256 over SHA-256, signatures in ASN.1.
pub struct AuditKey(EcdsaKeyPair);

impl AuditKey {
    pub fn from_pkcs8(pkcs8: &[u8]) -> Result<Self, AuditKeyError> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8);
        pair.map(Self).map_err(|_| AuditKeyError::Key)
    }

    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, AuditKeyError> {
        let signature = self.0.sign(&SystemRandom::new(), message).map_err(|_| AuditKeyError::Signature)?;
        Ok(signature.as_ref().to_vec())
    }
}

/// Whether the holder of this certificate signed the message. Says nothing about who vouches for the
/// certificate: [`verify_audit_chain`] does.
pub fn verify_audit(certificate_der: &[u8], message: &[u8], signature: &[u8]) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate_der) else { return false };
    match PublicKey::read(certificate.public_key().raw) {
        Ok(key) if key.kind == KeyKind::P256 => key.verify(Some(Hash::Sha256), message, signature),
        _ => false,
    }
}

/// The trust domain whose audit key a certificate is for; none if its name does not say.
pub fn audit_domain(certificate_der: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate_der).ok()?;
    role_owner(certificate.subject(), AUDIT_ROLE)
}

/// Whether one of the roots vouches for this audit certificate at this moment.
///
/// It must be made for signing documents: every node holds a certificate from the same issuer, and a node
/// must not be able to write history.
pub fn verify_audit_chain(
    audit_certificate: &[u8],
    intermediates: &[CertificateDer<'_>],
    roots: &[CertificateDer<'_>],
    at: Timestamp,
) -> Result<(), AuditKeyError> {
    let (_, parsed) = X509Certificate::from_der(audit_certificate).map_err(|_| AuditKeyError::Malformed)?;
    if !parsed.iter_extensions().any(|extension| extension.oid == OID_X509_EXT_EXTENDED_KEY_USAGE) {
        return Err(AuditKeyError::NotAudit);
    }
    let chain = |error: webpki::Error| AuditKeyError::Chain(error.to_string());
    let anchors = roots.iter().map(anchor_from_trusted_cert).collect::<Result<Vec<_>, _>>().map_err(chain)?;
    let der = CertificateDer::from(audit_certificate);
    let certificate = EndEntityCert::try_from(&der).map_err(|_| AuditKeyError::Malformed)?;
    let algorithms = webpki::ALL_VERIFICATION_ALGS;
    let time = x509_time::unix_time(at);
    match certificate.verify_for_usage(algorithms, &anchors, intermediates, time, AUDIT_USE, None, None) {
        Ok(_) => Ok(()),
        Err(webpki::Error::RequiredEkuNotFoundContext(_)) => Err(AuditKeyError::NotAudit),
        Err(error) => Err(chain(error)),
    }
}

#[cfg(test)]
mod tests {
    use lifecycle::names::{Span, SpiffeId, TrustDomain};

    use super::*;
    use crate::agent_key::HostKey;
    use crate::issuer::SigningIssuer;
    use crate::leaf::{Issuance, sign_leaf};
    use crate::{hierarchy, leaf};

    const AT: Timestamp = Timestamp::from_secs(1_800_000_000);

    #[test]
    fn a_checkpoint_is_verified_from_root_to_signature() {
        let domain = TrustDomain::parse("probectl").unwrap();
        let made = hierarchy::create(&domain, AT, [[1; 16], [2; 16]]).unwrap();
        let issuer = SigningIssuer::new(&made.intermediate_der, &made.intermediate_key).unwrap();
        let (certificate, key) = hierarchy::audit_signer(&issuer, &domain, [3; 16], AT).unwrap();
        let signature = AuditKey::from_pkcs8(&key).unwrap().sign(b"checkpoint").unwrap();
        assert!(verify_audit(&certificate, b"checkpoint", &signature));
        assert_eq!(audit_domain(&certificate).as_deref(), Some(domain.as_str()));
        assert_eq!(audit_domain(&made.root_der), None, "not an audit certificate");
        assert_eq!(hierarchy::root_domain(&made.root_der).as_deref(), Some(domain.as_str()));
        assert!(!verify_audit(&certificate, b"another", &signature));
        assert!(!verify_audit(&made.root_der, b"checkpoint", &signature));

        let intermediates = [CertificateDer::from(made.intermediate_der.as_slice())];
        let roots = [CertificateDer::from(made.root_der.as_slice())];
        assert_eq!(verify_audit_chain(&certificate, &intermediates, &roots, AT), Ok(()));
        assert_eq!(verify_audit_chain(&certificate, &[], &intermediates, AT), Ok(()));
        let late = issuer.not_after().plus(Span::from_secs(1));
        for (intermediates, roots, at) in
            [(&[][..], &roots[..], AT), (&intermediates, &[], AT), (&intermediates, &roots, late)]
        {
            let refused = verify_audit_chain(&certificate, intermediates, roots, at);
            assert!(matches!(refused, Err(AuditKeyError::Chain(_))), "{refused:?}");
        }
    }

    #[test]
    fn a_node_cannot_sign_history() {
        let domain = TrustDomain::parse("probectl").unwrap();
        let made = hierarchy::create(&domain, AT, [[1; 16], [2; 16]]).unwrap();
        let issuer = SigningIssuer::new(&made.intermediate_der, &made.intermediate_key).unwrap();
        let issuance = Issuance {
            subject: SpiffeId::parse("spiffe://probectl/tenant/default/agent/n-1").unwrap(),
            common_name: None,
            serial: [4; 16],
            signing_time: AT,
            lifetime: Span::from_days(1),
        };
        let node: leaf::Signed = sign_leaf(&issuer, &HostKey::generate().unwrap().spki(), &issuance).unwrap();
        let roots = [CertificateDer::from(made.intermediate_der.as_slice())];
        assert_eq!(verify_audit_chain(&node.der, &[], &roots, AT), Err(AuditKeyError::NotAudit));
    }
}
