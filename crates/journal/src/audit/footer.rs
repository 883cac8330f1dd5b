//! The last line of an export: signed, so that an export that was cut short, or put together, is noticed.

use lifecycle::names::{ClusterId, Fingerprint, Timestamp, TrustDomain};
use serde::{Deserialize, Serialize};

/// What the audit key signs at the end of an export. It names its purpose and its domain.
pub fn footer_message(
    cluster: &ClusterId,
    domain: &TrustDomain,
    last_seq: u64,
    head: &Fingerprint,
    at: Timestamp,
) -> Vec<u8> {
    let mut message = b"enlist audit export v1\0".to_vec();
    message.extend_from_slice(cluster.to_string().as_bytes());
    message.push(0);
    message.extend_from_slice(domain.as_str().as_bytes());
    message.push(0);
    message.extend_from_slice(&last_seq.to_be_bytes());
    message.extend_from_slice(head.as_bytes());
    message.extend_from_slice(&at.millis().to_be_bytes());
    message
}

/// The footer, with everything that is needed to check it but the CA or its pin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Footer {
    pub cluster_id: ClusterId,
    pub domain: TrustDomain,
    pub last_seq: u64,
    pub head: String,
    pub exported_at: String,
    pub signature: String,
    /// The audit key's certificate, PEM.
    pub certificate: String,
    /// Its issuer and the root, PEM.
    pub chain: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FooterLine {
    footer: Footer,
}

impl Footer {
    pub fn line(self) -> String {
        serde_json::to_string(&FooterLine { footer: self }).unwrap_or_default()
    }

    /// Reads a line if it is a footer.
    pub fn read(line: &str) -> Option<Self> {
        line.starts_with(r#"{"footer":"#)
            .then(|| serde_json::from_str::<FooterLine>(line).ok())
            .flatten()
            .map(|line| line.footer)
    }
}
