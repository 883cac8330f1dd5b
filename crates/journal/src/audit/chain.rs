//! A line of the trail, and how it hangs on the one before.
//!
//! A line is one JSON object, written in a fixed order. `hash` is its last field: the SHA-256, in lower-case
//! hex, over the exact bytes of the line before `,"hash":`. `prev_hash` is the field before it: the hash of
//! the previous line, or 64 zeros in the first. So a file can be checked with nothing but SHA-256 at hand.

use lifecycle::names::{Fingerprint, Timestamp};
use lifecycle::registry::{Envelope, Event};
use sha2::{Digest, Sha256};
use std::io::Write;

const HASH: &str = r#","hash":""#;
const PREV: &str = r#","prev_hash":""#;
/// Hex digits of a hash.
const DIGITS: usize = 64;

/// The `prev_hash` of the first line.
pub fn origin() -> Fingerprint {
    Fingerprint::new([0; 32])
}

/// RFC 3339 with milliseconds, always three digits of them, so that lines sort by time as text.
pub fn moment(at: Timestamp) -> String {
    let text = at.to_string();
    match text.strip_suffix('Z') {
        Some(whole) if !whole.contains('.') => format!("{whole}.000Z"),
        _ => text,
    }
}

/// Writes the line of an event into `line` and gives its hash.
pub fn compose(
    line: &mut Vec<u8>,
    seq: u64,
    at: &str,
    event: &Event,
    envelope: &Envelope,
    prev: &Fingerprint,
) -> Result<Fingerprint, serde_json::Error> {
    line.clear();
    write!(line, r#"{{"seq":{seq},"at":"{at}","event_type":"{}","actor":"#, event.name())
        .map_err(serde_json::Error::io)?;
    serde_json::to_writer(&mut *line, &envelope.actor.to_string())?;
    write!(line, r#","source":"{}","request_id":"#, envelope.source).map_err(serde_json::Error::io)?;
    match &envelope.request_id {
        Some(own) => serde_json::to_writer(&mut *line, own.as_str())?,
        None => write!(line, r#""{}""#, envelope.id).map_err(serde_json::Error::io)?,
    }
    line.extend_from_slice(br#","correlation_id":"#);
    serde_json::to_writer(&mut *line, &envelope.correlation_id)?;
    for (name, value) in event.fields() {
        line.extend_from_slice(b",\"");
        line.extend_from_slice(name.as_bytes());
        line.extend_from_slice(b"\":");
        serde_json::to_writer(&mut *line, &value)?;
    }
    line.extend_from_slice(br#","timestamp":""#);
    line.extend_from_slice(at.as_bytes());
    line.push(b'"');
    line.extend_from_slice(PREV.as_bytes());
    push_hex(line, prev.as_bytes());
    line.push(b'"');
    let hash: [u8; 32] = Sha256::digest(&line).into();
    line.extend_from_slice(HASH.as_bytes());
    push_hex(line, &hash);
    line.extend_from_slice(b"\"}");
    Ok(Fingerprint::new(hash))
}

fn push_hex(line: &mut Vec<u8>, bytes: &[u8; 32]) {
    let mut digits = [0; DIGITS];
    // 32 bytes always fit into 64 digits.
    if hex::encode_to_slice(bytes, &mut digits).is_ok() {
        line.extend_from_slice(&digits);
    }
}

/// What is wrong with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LineFault {
    /// It is not what its own hash says, or not a line at all.
    #[error("the line was changed")]
    Changed,
    /// It is whole, but hangs on another line than the one before it.
    #[error("the line does not follow from the one before")]
    Detached,
}

/// Checks that a line is whole and has this number; gives the hash it hangs on and its own.
pub fn read(line: &str, seq: u64) -> Result<(Fingerprint, Fingerprint), LineFault> {
    let parts = || {
        let (body, hash) = cut(line.strip_suffix("\"}")?, HASH)?;
        let (_, prev) = cut(body.strip_suffix('"')?, PREV)?;
        let rest = body.strip_prefix(r#"{"seq":"#)?;
        let (number, _) = rest.split_once(',')?;
        (number == seq.to_string()).then_some((body, prev, hash))
    };
    let (body, prev, hash) = parts().ok_or(LineFault::Changed)?;
    let sum: [u8; 32] = Sha256::digest(body.as_bytes()).into();
    if sum == *hash.as_bytes() { Ok((prev, hash)) } else { Err(LineFault::Changed) }
}

/// Checks a line against its predecessor's hash; gives its own.
pub fn check(line: &str, seq: u64, prev: &Fingerprint) -> Result<Fingerprint, LineFault> {
    let (hangs_on, hash) = read(line, seq)?;
    if hangs_on == *prev { Ok(hash) } else { Err(LineFault::Detached) }
}

/// Cuts `text` before `label` and a hash at its end.
fn cut<'a>(text: &'a str, label: &str) -> Option<(&'a str, Fingerprint)> {
    let (rest, digits) = text.split_at_checked(text.len().checked_sub(DIGITS)?)?;
    let mut hash = [0; 32];
    let lower = !digits.bytes().any(|digit| digit.is_ascii_uppercase());
    hex::decode_to_slice(digits, &mut hash).ok().filter(|()| lower)?;
    Some((rest.strip_suffix(label)?, Fingerprint::new(hash)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lifecycle::names::{Label, RequestId, Source, Ulid};
    use lifecycle::registry::{Actor, AuditGap, Command};

    fn line(seq: u64, prev: &Fingerprint) -> (String, Fingerprint) {
        let envelope = Envelope {
            id: RequestId(Ulid::new(Timestamp::from_secs(1_800_000_000), [1; 10])),
            actor: Actor::Local { user: "a \"b\"".to_owned() },
            source: Source::Socket,
            request_id: Label::parse("mine").ok(),
            correlation_id: None,
            command: Command::Tidy,
        };
        let event = Event::AuditGapFound(AuditGap { from: 3, to: 4, refilled: true });
        let mut buffer = Vec::new();
        let at = moment(Timestamp::from_secs(1_800_000_000));
        let hash = compose(&mut buffer, seq, &at, &event, &envelope, prev).expect("composes");
        (String::from_utf8(buffer).expect("text"), hash)
    }

    #[test]
    fn a_line_is_one_json_object_in_the_promised_order() {
        let (line, hash) = line(1, &origin());
        let zeros = "0".repeat(64);
        let expected = format!(
            r#"{{"seq":1,"at":"2027-01-15T08:00:00.000Z","event_type":"audit.gap","actor":"local:a \"b\"","source":"socket","request_id":"mine","correlation_id":null,"from":3,"to":4,"refilled":true,"timestamp":"2027-01-15T08:00:00.000Z","prev_hash":"{zeros}","hash":"{}"}}"#,
            hash.hex()
        );
        assert_eq!(line, expected);
        let value: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(value["actor"], "local:a \"b\"");
    }

    #[test]
    fn every_changed_byte_of_a_line_is_noticed() {
        let (first, head) = line(1, &origin());
        let (second, _) = line(2, &head);
        assert!(check(&first, 1, &origin()).is_ok());
        assert!(check(&second, 2, &head).is_ok());
        assert_eq!(check(&second, 2, &origin()), Err(LineFault::Detached));
        assert_eq!(check(&second, 3, &head), Err(LineFault::Changed));
        for place in 0..second.len() {
            let mut bytes = second.clone().into_bytes();
            bytes[place] ^= 1;
            if let Ok(changed) = String::from_utf8(bytes) {
                assert!(check(&changed, 2, &head).is_err(), "{changed}");
            }
        }
    }
}
