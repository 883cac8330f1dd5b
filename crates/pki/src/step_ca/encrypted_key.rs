//! A key that is encrypted with a password, as `step` writes it: a JWE with PBES2-HS256+A128KW and AES-GCM.

use super::provisioner_key::ProvisionerKeyError;
use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::key_wrap::{AES_128, AesKek, KeyWrap as _};
use aws_lc_rs::pbkdf2::{PBKDF2_HMAC_SHA256, derive};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use std::num::NonZeroU32;
use zeroize::Zeroizing;

const ALGORITHM: &str = "PBES2-HS256+A128KW";
/// step writes 600,000; ten times that takes seconds.
const ROUNDS_MAX: u32 = 6_000_000;

/// The five parts of a JWE, each in base64.
pub struct EncryptedKey {
    protected: String,
    encrypted_key: String,
    iv: String,
    ciphertext: String,
    tag: String,
}

#[derive(Deserialize)]
struct JsonForm {
    protected: String,
    #[serde(default)]
    encrypted_key: Option<String>,
    #[serde(default)]
    recipients: Vec<Recipient>,
    iv: String,
    ciphertext: String,
    tag: String,
}

#[derive(Deserialize)]
struct Recipient {
    encrypted_key: String,
}

#[derive(Deserialize)]
struct JweHeader {
    alg: String,
    enc: String,
    p2s: String,
    p2c: u32,
}

impl EncryptedKey {
    /// One line with dots, as in ca.json, or JSON, as `step crypto jwk create` writes it. None if it is neither.
    pub fn parse(text: &str) -> Option<Self> {
        if let [protected, encrypted_key, iv, ciphertext, tag] =
            text.trim().split('.').collect::<Vec<_>>()[..]
        {
            let [protected, encrypted_key, iv, ciphertext, tag] =
                [protected, encrypted_key, iv, ciphertext, tag].map(str::to_owned);
            return Some(Self { protected, encrypted_key, iv, ciphertext, tag });
        }
        let JsonForm { protected, encrypted_key, recipients, iv, ciphertext, tag } =
            serde_json::from_str(text).ok()?;
        let encrypted_key = encrypted_key.or_else(|| Some(recipients.into_iter().next()?.encrypted_key))?;
        Some(Self { protected, encrypted_key, iv, ciphertext, tag })
    }

    pub fn decrypt(&self, password: &[u8]) -> Result<Zeroizing<Vec<u8>>, ProvisionerKeyError> {
        let malformed = || ProvisionerKeyError::Malformed("the encrypted key is not a JWE");
        let decoded = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| malformed());
        let header: JweHeader =
            serde_json::from_slice(&decoded(&self.protected)?).map_err(|_| malformed())?;
        let cipher = match header.enc.as_str() {
            "A256GCM" => &AES_256_GCM,
            "A128GCM" => &AES_128_GCM,
            _ => return Err(ProvisionerKeyError::Encryption),
        };
        let rounds = NonZeroU32::new(header.p2c).filter(|rounds| rounds.get() <= ROUNDS_MAX);
        let (ALGORITHM, Some(rounds)) = (header.alg.as_str(), rounds) else {
            return Err(ProvisionerKeyError::Encryption);
        };
        let salt = [ALGORITHM.as_bytes(), &[0], &decoded(&header.p2s)?].concat();
        let mut derived = Zeroizing::new([0; 16]);
        derive(PBKDF2_HMAC_SHA256, rounds, &salt, password, derived.as_mut());
        let wrong = |_| ProvisionerKeyError::Password;
        let wrapped = decoded(&self.encrypted_key)?;
        let mut content_key = Zeroizing::new(vec![0; wrapped.len()]);
        let kek = AesKek::new(&AES_128, derived.as_ref()).map_err(wrong)?;
        let unwrapped = kek.unwrap(&wrapped, &mut content_key).map_err(wrong)?;
        let key = LessSafeKey::new(UnboundKey::new(cipher, unwrapped).map_err(|_| malformed())?);
        let nonce = Nonce::try_assume_unique_for_key(&decoded(&self.iv)?).map_err(|_| malformed())?;
        let mut sealed = Zeroizing::new([decoded(&self.ciphertext)?, decoded(&self.tag)?].concat());
        let opened =
            key.open_in_place(nonce, Aad::from(self.protected.as_bytes()), &mut sealed).map_err(wrong)?;
        Ok(Zeroizing::new(opened.to_vec()))
    }
}
