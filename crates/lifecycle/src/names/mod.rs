//! The vocabulary: each word a type that can only be made by checking.

mod digest;
mod issuer_use;
mod key_kind;
mod label;
mod labels;
mod mac;
mod name;
mod network;
mod replica;
mod serial;
mod span;
mod spiffe;
mod timestamp;
mod title;
mod ulid;
mod wireguard;

pub use digest::{Checksum, Fingerprint, IdempotencyHash, KeyHash, SecretHash};
pub use issuer_use::IssuerUse;
pub use key_kind::KeyKind;
pub use label::{Label, Source};
pub use labels::{LabelKey, Labels};
pub use mac::Mac;
pub use name::{BootstrapName, IssuerId, NodeId, OperatorName, ProfileName, TenantId, VclusterId};
pub use network::Network;
pub use replica::ReplicaId;
pub use serial::Serial;
pub use span::Span;
pub use spiffe::{SpiffeId, SpiffePath, TrustDomain};
pub use timestamp::Timestamp;
pub use title::{Title, is_steering};
pub use ulid::{AlertId, ClusterId, KeyId, RequestId, SessionId, TokenId, Ulid};
pub use wireguard::WireguardKey;

/// Why a string is not the name it was offered as.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} must be {expected}")]
pub struct Malformed {
    pub what: &'static str,
    pub expected: &'static str,
}

/// Lower-case hex. Audit lines hold a lot of it, so it is made without formatting each octet.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from(if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 });
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(digit(byte >> 4));
        text.push(digit(byte & 15));
    }
    text
}
