//! Checkpoints: the audit key signs that line `seq` had hash `head`.

use lifecycle::names::{ClusterId, Fingerprint};

/// What is signed. It names its purpose and its domain, so that a signature is good for nothing else.
pub fn checkpoint_message(cluster: &ClusterId, seq: u64, head: &Fingerprint) -> Vec<u8> {
    let mut message = b"enlist audit checkpoint v1\0".to_vec();
    message.extend_from_slice(cluster.to_string().as_bytes());
    message.push(0);
    message.extend_from_slice(&seq.to_be_bytes());
    message.extend_from_slice(head.as_bytes());
    message
}

/// What a checkpoint line says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointLine {
    pub seq: u64,
    pub head: Fingerprint,
    pub signature: Vec<u8>,
}

/// Reads a line if it is a checkpoint. One that cannot be read is `Some(Err)`: it was changed.
pub fn checkpoint_of(line: &str) -> Option<Result<CheckpointLine, Unreadable>> {
    // Quotes inside of values are escaped, so this cannot be found anywhere else.
    line.contains(r#""event_type":"audit.checkpoint""#).then(|| parse(line).ok_or(Unreadable))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the checkpoint cannot be read")]
pub struct Unreadable;

fn parse(line: &str) -> Option<CheckpointLine> {
    let value: serde_json::Value = serde_json::from_str(line).ok()?;
    let mut head = [0; 32];
    hex::decode_to_slice(value.get("checkpoint_head")?.as_str()?, &mut head).ok()?;
    Some(CheckpointLine {
        seq: value.get("checkpoint_seq")?.as_u64()?,
        head: Fingerprint::new(head),
        signature: hex::decode(value.get("signature")?.as_str()?).ok()?,
    })
}
