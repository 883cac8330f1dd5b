//! Proof of possession in a request's body: the holder of a certificate signs the request for the next one.
//!
//! ECDSA keys of either curve sign the SHA-256 of the message, in ASN.1 DER. Keys that the document does not
//! speak of prove it in the way that is usual for them: RSA with PKCS#1 v1.5 over the same digest, Ed25519 over
//! the message itself.

use x509_parser::certificate::{X509Certificate, X509CertificateParser};
use x509_parser::nom::Parser as _;

use crate::spki::{Hash, KeyKind, PublicKey};

/// Longer than any signature of a key that is certified here.
const MAX_BYTES: usize = 512;

/// Whether the holder of this certificate's key signed this message; the signature is hex.
pub fn holds(certificate: &[u8], message: &[u8], signature: &str) -> bool {
    if signature.len() > 2 * MAX_BYTES {
        return false;
    }
    let Ok(signature) = hex::decode(signature) else { return false };
    let parsed = X509CertificateParser::new().with_deep_parse_extensions(false).parse(certificate);
    let Ok((_, parsed)): Result<(_, X509Certificate<'_>), _> = parsed else { return false };
    let Ok(key) = PublicKey::read(parsed.public_key().raw) else { return false };
    let hash = match key.kind {
        KeyKind::P256 | KeyKind::P384 | KeyKind::Rsa => Some(Hash::Sha256),
        KeyKind::Ed25519 => None,
    };
    key.verify(hash, message, &signature)
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
    use aws_lc_rs::signature::{Ed25519KeyPair, RSA_PKCS1_SHA256, RsaKeyPair};
    use rcgen::{CertificateParams, KeyPair, SignatureAlgorithm};

    const MESSAGE: &[u8] = b"-----BEGIN CERTIFICATE REQUEST-----";

    type SignMessage = fn(&[u8]) -> Vec<u8>;

    fn rsa(pkcs8: &[u8]) -> Vec<u8> {
        let key = RsaKeyPair::from_pkcs8(pkcs8).unwrap();
        let mut signature = vec![0; key.public_modulus_len()];
        key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), MESSAGE, &mut signature).unwrap();
        signature
    }

    /// P-384 over SHA-256 can be checked but not made by this library; the black-box tests make it.
    #[test]
    fn each_kind_of_key_proves_itself_and_no_other() {
        let kinds: [(&'static SignatureAlgorithm, SignMessage); 3] = [
            (&rcgen::PKCS_ECDSA_P256_SHA256, |pkcs8| {
                let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8).unwrap();
                key.sign(&SystemRandom::new(), MESSAGE).unwrap().as_ref().to_vec()
            }),
            (&rcgen::PKCS_ED25519, |pkcs8| {
                Ed25519KeyPair::from_pkcs8(pkcs8).unwrap().sign(MESSAGE).as_ref().to_vec()
            }),
            (&rcgen::PKCS_RSA_SHA256, rsa),
        ];
        let other = KeyPair::generate().unwrap();
        let other = CertificateParams::default().self_signed(&other).unwrap();
        for (kind, sign) in kinds {
            let key = KeyPair::generate_for(kind).unwrap();
            let certificate = CertificateParams::default().self_signed(&key).unwrap();
            let proof = hex::encode(sign(&key.serialize_der()));
            assert!(holds(certificate.der(), MESSAGE, &proof), "{kind:?}");
            assert!(!holds(certificate.der(), b"another request", &proof), "{kind:?}");
            assert!(!holds(other.der(), MESSAGE, &proof), "{kind:?}");
            for spoiled in
                [String::new(), proof.replace(['0', 'a'], "1"), format!("{proof}00"), "zz".to_owned()]
            {
                assert!(!holds(certificate.der(), MESSAGE, &spoiled), "{kind:?} {spoiled}");
            }
        }
        assert!(!holds(b"no certificate", MESSAGE, "00"));
        assert!(!holds(other.der(), MESSAGE, &"00".repeat(MAX_BYTES + 1)));
    }
}
