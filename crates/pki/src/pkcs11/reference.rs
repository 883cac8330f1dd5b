//! What the registry holds of a key in an HSM: where it is found, sealed like a key.

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// The label of a key in the token that the configuration of a replica names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyReference {
    pub label: String,
}

#[derive(Serialize, Deserialize)]
struct WrittenReference {
    pkcs11: KeyPlace,
}

#[derive(Serialize, Deserialize)]
struct KeyPlace {
    label: String,
}

impl KeyReference {
    /// `{"pkcs11":{"label":"..."}}`, to be sealed.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let written = WrittenReference { pkcs11: KeyPlace { label: self.label.clone() } };
        Zeroizing::new(serde_json::to_vec(&written).unwrap_or_default())
    }

    /// Nothing if these bytes are a key, or anything else.
    pub fn read(unsealed: &[u8]) -> Option<Self> {
        let written: WrittenReference = serde_json::from_slice(unsealed).ok()?;
        Some(Self { label: written.pkcs11.label })
    }
}

/// The label of the server issuer's key, beside the node issuer's.
pub fn server_label(label: &str) -> String {
    format!("{label}-server")
}

/// The label of a key that a roll makes: `LABEL-<use>-<8 hex digits>`, never used before.
pub fn rolled_label(label: &str, usage: &str, chance: [u8; 4]) -> String {
    format!("{label}-{usage}-{}", hex::encode(chance))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_reads_back_and_a_key_is_none() {
        let reference = KeyReference { label: "issuer \"1\"".to_owned() };
        assert_eq!(KeyReference::read(&reference.to_bytes()), Some(reference));
        assert_eq!(&*KeyReference { label: "a".to_owned() }.to_bytes(), br#"{"pkcs11":{"label":"a"}}"#);
        let (_, key) = crate::signing_key::SigningKey::generate().unwrap();
        assert_eq!(KeyReference::read(&key), None);
    }
}
