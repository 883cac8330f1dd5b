//! Proof that a host has the WireGuard key that it claims. Such a key cannot sign, so both sides make the X25519 product of it and
//! a key of the control plane's process, and the host shows an HMAC under it that names the node and the key.

use crate::wireguard::WireguardKeyError;
use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use aws_lc_rs::hmac;

/// What the HMAC is over begins with this, so that it serves for nothing else.
const PURPOSE: &[u8] = b"enlist overlay claim 1";

/// A key that lives as long as the process of a control plane: hosts prove theirs against it.
pub struct ClaimKey {
    private: PrivateKey,
    public: [u8; 32],
}

impl ClaimKey {
    pub fn generate() -> Result<Self, WireguardKeyError> {
        let failed = |_| WireguardKeyError::Generation;
        let private = PrivateKey::generate(&X25519).map_err(failed)?;
        let public = private.compute_public_key().map_err(failed)?;
        let public = public.as_ref().try_into().map_err(|_| WireguardKeyError::Generation)?;
        Ok(Self { private, public })
    }

    /// What hosts are told.
    pub fn public(&self) -> &[u8; 32] {
        &self.public
    }

    /// Whether this came from somebody who has the private half of `key` and speaks for this node.
    pub fn is_proven(&self, node: &str, key: &[u8; 32], proof: &[u8]) -> bool {
        self.is_proven_by(node, key, key, proof)
    }

    /// Whether it came from somebody who has the private half of `by`, and wants `key` for this node.
    pub fn is_proven_by(&self, node: &str, by: &[u8; 32], key: &[u8; 32], proof: &[u8]) -> bool {
        let verify = |secret: &[u8]| {
            let under = hmac::Key::new(hmac::HMAC_SHA256, secret);
            hmac::verify(&under, &claim_text(node, key), proof).map_err(|_| ())
        };
        agree(&self.private, UnparsedPublicKey::new(&X25519, by), (), verify).is_ok()
    }
}

fn claim_text(node: &str, key: &[u8; 32]) -> Vec<u8> {
    [PURPOSE, b"\0", node.as_bytes(), b"\0", key].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a host shows, made as the protocol says and not by the code above.
    fn shown(host: &PrivateKey, challenge: &[u8; 32], node: &str, key: &[u8; 32]) -> Vec<u8> {
        let challenge = UnparsedPublicKey::new(&X25519, challenge);
        let text = [b"enlist overlay claim 1\0".as_slice(), node.as_bytes(), b"\0", key].concat();
        let sign = |secret: &[u8]| Ok(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), &text));
        agree(host, challenge, (), sign).unwrap().as_ref().to_vec()
    }

    fn pair() -> (PrivateKey, [u8; 32]) {
        let private = PrivateKey::generate(&X25519).unwrap();
        let public = private.compute_public_key().unwrap().as_ref().try_into().unwrap();
        (private, public)
    }

    #[test]
    fn only_the_holder_of_a_key_proves_it_and_only_for_its_node() {
        let control_plane = ClaimKey::generate().unwrap();
        let ((host, key), (thief, own)) = (pair(), pair());
        let proof = shown(&host, control_plane.public(), "n1", &key);
        assert!(control_plane.is_proven("n1", &key, &proof));
        assert!(!control_plane.is_proven("n2", &key, &proof), "another node");
        assert!(!control_plane.is_proven("n1", &own, &proof), "another key");
        assert!(!ClaimKey::generate().unwrap().is_proven("n1", &key, &proof), "another process");
        let former = shown(&host, control_plane.public(), "n1", &own);
        assert!(control_plane.is_proven_by("n1", &key, &own, &former), "the key before, for another one");
        assert!(!control_plane.is_proven_by("n1", &own, &own, &former), "not that key itself");
        assert!(!control_plane.is_proven_by("n1", &key, &own, &proof), "of the same key only");
        let stolen = shown(&thief, control_plane.public(), "n1", &key);
        assert!(!control_plane.is_proven("n1", &key, &stolen), "without the private half");
        for spoilt in [&proof[..31], &[], &[0; 32], &[proof.as_slice(), &[0]].concat()] {
            assert!(!control_plane.is_proven("n1", &key, spoilt));
        }
        assert!(!control_plane.is_proven("n1", &[0; 32], &proof), "a point of low order");
    }
}
