//! Signing audit checkpoints, and verifying them with nothing but certificates.

use std::cell::Cell;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use lifecycle::names::Timestamp;
use rustls_pki_types::CertificateDer;
use webpki::{
    EndEntityCert, ExtendedKeyUsageValidator, KeyPurposeIdIter, VerifiedPath, anchor_from_trusted_cert,
};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

use crate::certificate::role_owner;
use crate::hierarchy::AUDIT_ROLE;
use crate::spki::{Hash, KeyKind, PublicKey};
use crate::{extended_use, x509_time};

/// [`crate::hierarchy::AUDIT_USE`] as DER has it: the content octets of the OID.
const AUDIT_USE: [u8; 8] = [0x2b, 6, 1, 5, 5, 7, 3, 36];

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
    #[error("the issuer of the audit certificate is not one for the control plane's certificates")]
    Issuer,
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
/// It must be made for signing documents: a node may hold a certificate from the same issuer, and a node must not be able
/// to write history. For the same reason no issuer of clients alone may certify an audit key. The issuer of the control
/// plane's certificates may, although document signing is not among its own uses: that the uses of a CA limit those below
/// it is a rule of TLS libraries (RFC 5280 knows none), so they are checked here, certificate by certificate.
pub fn verify_audit_chain(
    audit_certificate: &[u8],
    intermediates: &[CertificateDer<'_>],
    roots: &[CertificateDer<'_>],
    at: Timestamp,
) -> Result<(), AuditKeyError> {
    if !is_for_audit(audit_certificate)? {
        return Err(AuditKeyError::NotAudit);
    }
    let chain = |error: webpki::Error| AuditKeyError::Chain(error.to_string());
    let anchors = roots.iter().map(anchor_from_trusted_cert).collect::<Result<Vec<_>, _>>().map_err(chain)?;
    let der = CertificateDer::from(audit_certificate);
    let certificate = EndEntityCert::try_from(&der).map_err(|_| AuditKeyError::Malformed)?;
    let wrong_issuer = Cell::new(false);
    let may_certify = |path: &VerifiedPath<'_>| {
        let anchor = roots.iter().zip(&anchors).find(|(_, anchor)| *anchor == path.anchor());
        let cas = path.intermediate_certificates().map(|ca| ca.der());
        if cas.chain(anchor.map(|(root, _)| root.clone())).all(|ca| may_certify_audit_keys(&ca)) {
            Ok(())
        } else {
            wrong_issuer.set(true);
            Err(webpki::Error::UnknownIssuer)
        }
    };
    let algorithms = webpki::ALL_VERIFICATION_ALGS;
    let time = x509_time::unix_time(at);
    let verified = certificate.verify_for_usage(
        algorithms,
        &anchors,
        intermediates,
        time,
        CheckedApart,
        None,
        Some(&may_certify),
    );
    match verified {
        Ok(_) => Ok(()),
        Err(_) if wrong_issuer.get() => Err(AuditKeyError::Issuer),
        Err(error) => Err(chain(error)),
    }
}

fn is_for_audit(der: &[u8]) -> Result<bool, AuditKeyError> {
    let (_, parsed) = X509Certificate::from_der(der).map_err(|_| AuditKeyError::Malformed)?;
    let stated = extended_use::of_certificate(&parsed).map_err(|_| AuditKeyError::Malformed)?;
    Ok(stated.is_some_and(|stated| stated.other.iter().any(|purpose| purpose.as_bytes() == AUDIT_USE)))
}

/// Whether a CA signs certificates at all, and those of the control plane or every kind.
fn may_certify_audit_keys(der: &[u8]) -> bool {
    let Ok((_, ca)) = X509Certificate::from_der(der) else { return false };
    let for_servers = |stated: Option<&x509_parser::extensions::ExtendedKeyUsage<'_>>| {
        stated.is_none_or(|stated| stated.server_auth)
    };
    let signs = ca.key_usage().is_ok_and(|usage| usage.is_none_or(|usage| usage.value.key_cert_sign()));
    signs && extended_use::of_certificate(&ca).is_ok_and(for_servers)
}

/// Extended key usages are no matter of the library here.
struct CheckedApart;

impl ExtendedKeyUsageValidator for CheckedApart {
    fn validate(&self, _: KeyPurposeIdIter<'_, '_>) -> Result<(), webpki::Error> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use lifecycle::names::{IssuerUse, Span, SpiffeId, TrustDomain};

    use super::*;
    use crate::agent_key::HostKey;
    use crate::issuer::SigningIssuer;
    use crate::leaf::{Issuance, sign_leaf};
    use crate::{hierarchy, leaf, pem};

    const AT: Timestamp = Timestamp::from_secs(1_800_000_000);

    fn founded(domain: &TrustDomain) -> (hierarchy::Hierarchy, SigningIssuer) {
        let made = hierarchy::create(domain, AT, [[1; 16], [2; 16], [3; 16]]).unwrap();
        let key = pem::private_key(made.root_key_pem.as_bytes()).unwrap();
        let root = SigningIssuer::new(&made.root_der, key.secret_der()).unwrap();
        (made, root)
    }

    #[test]
    fn a_checkpoint_is_verified_from_root_to_signature() {
        let domain = TrustDomain::parse("probectl").unwrap();
        let made = hierarchy::create(&domain, AT, [[1; 16], [2; 16], [3; 16]]).unwrap();
        let issuer = SigningIssuer::new(&made.server.der, &made.server.key).unwrap();
        let (certificate, key) = hierarchy::audit_signer(&issuer, &domain, [3; 16], AT).unwrap();
        let signature = AuditKey::from_pkcs8(&key).unwrap().sign(b"checkpoint").unwrap();
        assert!(verify_audit(&certificate, b"checkpoint", &signature));
        assert_eq!(audit_domain(&certificate).as_deref(), Some(domain.as_str()));
        assert_eq!(audit_domain(&made.root_der), None, "not an audit certificate");
        assert_eq!(hierarchy::root_domain(&made.root_der).as_deref(), Some(domain.as_str()));
        assert!(!verify_audit(&certificate, b"another", &signature));
        assert!(!verify_audit(&made.root_der, b"checkpoint", &signature));

        let intermediates = [CertificateDer::from(made.server.der.as_slice())];
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
        let (made, root) = founded(&domain);
        let undivided = hierarchy::issuer_below(&root, IssuerUse::Both, [4; 16], AT).unwrap();
        for material in [&made.node, &undivided] {
            let issuer = SigningIssuer::new(&material.der, &material.key).unwrap();
            let issuance = Issuance {
                subject: SpiffeId::parse("spiffe://probectl/tenant/default/agent/n-1").unwrap(),
                common_name: None,
                serial: [4; 16],
                signing_time: AT,
                lifetime: Span::from_days(1),
            };
            let node: leaf::Signed =
                sign_leaf(&issuer, &HostKey::generate().unwrap().spki(), &issuance).unwrap();
            let roots = [CertificateDer::from(material.der.as_slice())];
            assert_eq!(verify_audit_chain(&node.der, &[], &roots, AT), Err(AuditKeyError::NotAudit));
        }
    }

    #[test]
    fn an_issuer_of_nodes_cannot_certify_an_audit_key() {
        let domain = TrustDomain::parse("probectl").unwrap();
        let (made, root) = founded(&domain);
        let undivided = hierarchy::issuer_below(&root, IssuerUse::Both, [4; 16], AT).unwrap();
        for (material, expected) in
            [(&made.node, Err(AuditKeyError::Issuer)), (&made.server, Ok(())), (&undivided, Ok(()))]
        {
            let issuer = SigningIssuer::new(&material.der, &material.key).unwrap();
            let (certificate, _) = hierarchy::audit_signer(&issuer, &domain, [3; 16], AT).unwrap();
            let own = [CertificateDer::from(material.der.as_slice())];
            let roots = [CertificateDer::from(made.root_der.as_slice())];
            assert_eq!(verify_audit_chain(&certificate, &own, &roots, AT), expected);
            assert_eq!(verify_audit_chain(&certificate, &[], &own, AT), expected, "trusted by itself");
        }
    }

    #[test]
    fn history_is_verified_by_the_old_root_through_the_cross_certificate_and_by_the_new_one() {
        let domain = TrustDomain::parse("probectl").unwrap();
        let (made, old) = founded(&domain);
        let key = hierarchy::new_root_key().unwrap();
        let new = hierarchy::new_root(&old, &key, AT, hierarchy::ROOT_LIFETIME, [[5; 16], [6; 16]]).unwrap();
        let root = SigningIssuer::new(&new.root_der, &key).unwrap();
        let server = hierarchy::issuer_below(&root, IssuerUse::Server, [7; 16], AT).unwrap();
        let issuer = SigningIssuer::new(&server.der, &server.key).unwrap();
        let (certificate, _) = hierarchy::audit_signer(&issuer, &domain, [3; 16], AT).unwrap();
        let der = |der: &[u8]| CertificateDer::from(der.to_vec());
        let sent = [der(&server.der), der(&new.cross_der), der(&made.root_der), der(&new.root_der)];
        for root in [&made.root_der, &new.root_der] {
            assert_eq!(verify_audit_chain(&certificate, &sent, &[der(root)], AT), Ok(()));
        }
        let without = verify_audit_chain(&certificate, &sent[..1], &[der(&made.root_der)], AT);
        assert!(matches!(without, Err(AuditKeyError::Chain(_))), "{without:?}");
    }
}
