//! SHA-256 digests of things that are themselves too secret or too long to keep. Computed elsewhere.

macro_rules! digest {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type([u8; 32]);

        impl $type {
            pub fn new(digest: [u8; 32]) -> Self {
                Self(digest)
            }

            pub fn as_bytes(&self) -> &[u8; 32] {
                &self.0
            }

            /// 64 lower-case hex digits.
            pub fn hex(&self) -> String {
                crate::names::hex(&self.0)
            }
        }

        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($type), "({})"), self.hex())
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
                serde_bytes::Bytes::new(&self.0).serialize(out)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
                serde_bytes::ByteArray::<32>::deserialize(input).map(|bytes| Self(*bytes))
            }
        }
    };
}

digest!(
    /// Of a certificate's DER, or of a WireGuard key's 32 bytes.
    Fingerprint
);
digest!(
    /// Of a token or an API key, as presented.
    SecretHash
);
digest!(
    /// Of a SubjectPublicKeyInfo: which key a certificate is for.
    KeyHash
);
digest!(
    /// Of a configuration document.
    Checksum
);
digest!(
    /// Of a caller's `Idempotency-Key`.
    IdempotencyHash
);

impl Fingerprint {
    /// As the audit trail writes it.
    pub fn labelled(&self) -> String {
        format!("SHA256:{}", self.hex())
    }

    /// As pins and reports write it.
    pub fn pin(&self) -> String {
        format!("sha256:{}", self.hex())
    }
}
