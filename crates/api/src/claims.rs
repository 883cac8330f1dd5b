//! Claims between domains: which machines are active in a domain, signed, for others to warn by. See docs/claims.md.

use serde::{Deserialize, Serialize};

/// What a domain posts, and what is read: one per line of the answer. Binary data is standard base64 with padding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedClaims {
    /// A [`ClaimsDocument`] as JSON; the signature is over these very bytes.
    pub document: String,
    /// ECDSA on P-256 with SHA-256, in ASN.1, over [`claims_message`].
    pub signature: String,
    /// Certificates in DER: the signer's first, then what leads to the domain's root. The root itself may be left out.
    pub chain: Vec<String>,
}

/// Every machine that is active in a domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimsDocument {
    /// The trust domain.
    pub domain: String,
    pub issued_at: String,
    pub expires_at: String,
    pub claims: Vec<MachineClaim>,
}

/// One machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineClaim {
    /// SHA-256 of each identifier, as `kind:value` in lower case; 64 hex digits each.
    pub hardware: Vec<String>,
    pub active_since: String,
}

/// What is signed. It names its purpose, so that the signature is good for nothing else.
pub fn claims_message(document: &[u8]) -> Vec<u8> {
    [b"enlist claims v1\0".as_slice(), document].concat()
}
