//! The key of a step-ca provisioner: read once from a file, sealed, and used to sign one-time tokens.

use super::encrypted_key::EncryptedKey;
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use zeroize::{Zeroize as _, Zeroizing};

/// The private number and the public point, as they are sealed.
const PRIVATE: usize = 32;
const PUBLIC: usize = 65;
const KEY_ID_MAX: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProvisionerKeyError {
    #[error("{0}: expected the private JWK of a JWK provisioner, as JSON or encrypted with a password")]
    Malformed(&'static str),
    #[error("the key is encrypted, and no password was given")]
    PasswordMissing,
    #[error("the password does not open the key")]
    Password,
    #[error("the key is encrypted in another way than PBES2-HS256+A128KW with AES-GCM, as `step` does it")]
    Encryption,
    #[error("only keys on P-256 are used, for tokens signed with ES256: this one is of {0}")]
    Kind(String),
    #[error("this is the public key: the private one is needed")]
    Public,
    #[error("its private and its public part do not belong together")]
    Unequal,
    #[error("it could not sign")]
    Signature,
}

/// The members of a JWK that matter here.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    #[serde(default)]
    crv: String,
    #[serde(default)]
    x: String,
    #[serde(default)]
    y: String,
    #[serde(default)]
    d: Option<String>,
    #[serde(default)]
    kid: Option<String>,
}

impl Drop for Jwk {
    fn drop(&mut self) {
        self.d.zeroize();
    }
}

/// A provisioner's key as it was found in its file.
pub struct FoundProvisionerKey {
    /// What is sealed.
    pub bytes: Zeroizing<Vec<u8>>,
    /// By which step-ca knows it.
    pub key_id: String,
}

/// Reads a private JWK, encrypted or not.
pub fn read(file: &[u8], password: Option<&[u8]>) -> Result<FoundProvisionerKey, ProvisionerKeyError> {
    let malformed = ProvisionerKeyError::Malformed;
    let text = std::str::from_utf8(file).map_err(|_| malformed("not text"))?;
    let decrypted;
    let json = match EncryptedKey::parse(text) {
        Some(encrypted) => {
            let password = password.ok_or(ProvisionerKeyError::PasswordMissing)?;
            decrypted = encrypted.decrypt(password)?;
            decrypted.as_slice()
        }
        None => text.as_bytes(),
    };
    let jwk: Jwk = serde_json::from_slice(json).map_err(|_| malformed("not a JWK"))?;
    if jwk.kty != "EC" || jwk.crv != "P-256" {
        let kind = format!("{} {}", jwk.kty, jwk.crv).trim().chars().take(32).collect();
        return Err(ProvisionerKeyError::Kind(kind));
    }
    let private = jwk.d.as_deref().ok_or(ProvisionerKeyError::Public)?;
    let coordinate = |text: &str| {
        let bytes = Zeroizing::new(URL_SAFE_NO_PAD.decode(text).map_err(|_| malformed("not base64"))?);
        if bytes.len() == PRIVATE { Ok(bytes) } else { Err(malformed("a coordinate has not 32 bytes")) }
    };
    let (private, x, y) = (coordinate(private)?, coordinate(&jwk.x)?, coordinate(&jwk.y)?);
    let bytes = Zeroizing::new([private.as_slice(), &[4], &x, &y].concat());
    ProvisionerKey::from_bytes(&bytes, String::new())?;
    let key_id = jwk.kid.clone().filter(|id| !id.is_empty()).unwrap_or_else(|| thumbprint(&jwk.x, &jwk.y));
    if key_id.len() > KEY_ID_MAX || key_id.chars().any(char::is_control) {
        return Err(malformed("its id is too long"));
    }
    Ok(FoundProvisionerKey { bytes, key_id })
}

/// As RFC 7638 makes it, which is the id that step gives to its keys.
fn thumbprint(x: &str, y: &str) -> String {
    let members = format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#);
    URL_SAFE_NO_PAD.encode(digest(&SHA256, members.as_bytes()))
}

/// Signs one-time tokens, in memory.
pub struct ProvisionerKey {
    pair: EcdsaKeyPair,
    key_id: String,
}

impl ProvisionerKey {
    /// From what was sealed.
    pub fn from_bytes(bytes: &[u8], key_id: String) -> Result<Self, ProvisionerKeyError> {
        let parts = bytes.split_at_checked(PRIVATE).filter(|(_, public)| public.len() == PUBLIC);
        let (private, public) = parts.ok_or(ProvisionerKeyError::Malformed("another length"))?;
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let pair = EcdsaKeyPair::from_private_key_and_public_key(algorithm, private, public)
            .map_err(|_| ProvisionerKeyError::Unequal)?;
        Ok(Self { pair, key_id })
    }

    pub fn key_id(&self) -> &str {
        &self.key_id
    }

    /// ES256: the two numbers, one after the other.
    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, ProvisionerKeyError> {
        let signature = self.pair.sign(&SystemRandom::new(), message);
        signature.map(|it| it.as_ref().to_vec()).map_err(|_| ProvisionerKeyError::Signature)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by `step crypto jwk create`, with the password `hush` and without one.
    const PLAIN: &str = include_str!("../../tests/data/provisioner.jwk");
    const ENCRYPTED: &str = include_str!("../../tests/data/provisioner.jwe");
    const PUBLIC_PART: &str = include_str!("../../tests/data/provisioner.pub");

    #[test]
    fn keys_of_step_are_read_encrypted_or_not() {
        let plain = read(PLAIN.as_bytes(), None).unwrap();
        let encrypted = read(ENCRYPTED.as_bytes(), Some(b"hush")).unwrap();
        assert_eq!(plain.bytes.as_slice(), encrypted.bytes.as_slice());
        assert_eq!(plain.key_id, encrypted.key_id);
        // A password for what is not encrypted does no harm.
        assert!(read(PLAIN.as_bytes(), Some(b"hush")).is_ok());
    }

    #[test]
    fn the_thumbprint_is_the_id_that_step_gives() {
        let jwk: Jwk = serde_json::from_str(PLAIN).unwrap();
        assert_eq!(Some(thumbprint(&jwk.x, &jwk.y)), jwk.kid);
        let nameless = PLAIN.replace("kid", "name");
        assert_eq!(Some(read(nameless.as_bytes(), None).unwrap().key_id), jwk.kid);
    }

    #[test]
    fn what_is_no_such_key_is_refused() {
        let error = |file: &str, password: Option<&[u8]>| read(file.as_bytes(), password).err().unwrap();
        assert_eq!(error(ENCRYPTED, None), ProvisionerKeyError::PasswordMissing);
        assert_eq!(error(ENCRYPTED, Some(b"Hush")), ProvisionerKeyError::Password);
        assert_eq!(error(PUBLIC_PART, None), ProvisionerKeyError::Public);
        assert!(matches!(error("", None), ProvisionerKeyError::Malformed(_)));
        assert!(matches!(error("a.b.c.d.e", Some(b"")), ProvisionerKeyError::Malformed(_)));
        assert!(matches!(error(r#"{"kty":"oct","k":"AA"}"#, None), ProvisionerKeyError::Kind(_)));
        let other = PLAIN.replace("P-256", "P-384");
        assert!(matches!(error(&other, None), ProvisionerKeyError::Kind(_)));
        let jwk: Jwk = serde_json::from_str(PLAIN).unwrap();
        let swapped = PLAIN.replace(&jwk.x, "tmp").replace(&jwk.y, &jwk.x).replace("tmp", &jwk.y);
        assert_eq!(error(&swapped, None), ProvisionerKeyError::Unequal);
    }
}
