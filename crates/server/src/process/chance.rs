//! The only room that draws random numbers: ids, serials, tokens and keys.

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use base64::Engine;
use lifecycle::names::{Timestamp, Ulid};
use lifecycle::registry::Door;
use pki::overlay_proof::ClaimKey;
use std::net::Ipv6Addr;
use zeroize::Zeroizing;

/// The system's generator failed: nothing can be made safely.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the system's random number generator failed")]
pub struct NoChance;

fn fill<const N: usize>() -> Result<[u8; N], NoChance> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| NoChance)?;
    Ok(bytes)
}

/// A new id, ordered by time.
/// A key for the log.
pub fn log_key() -> Result<Zeroizing<[u8; 32]>, NoChance> {
    fill().map(Zeroizing::new)
}

/// By which hosts prove to this process that they have a WireGuard key.
pub fn claim_key() -> Result<ClaimKey, NoChance> {
    ClaimKey::generate().map_err(|_| NoChance)
}

/// What tells one process of a directory from the next.
pub fn incarnation() -> Result<u64, NoChance> {
    fill().map(u64::from_be_bytes)
}

pub fn ulid(at: Timestamp) -> Result<Ulid, NoChance> {
    Ok(Ulid::new(at, fill()?))
}

/// A new id without order or meaning: UUID version 4.
pub fn uuid() -> Result<String, NoChance> {
    let bytes: [u8; 16] = fill()?;
    let number = u128::from_be_bytes(bytes) & !(0xf << 76) & !(0b11 << 62) | (4 << 76) | (0b10 << 62);
    let text = format!("{number:032x}");
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| text.get(part).unwrap_or_default());
    Ok(parts.join("-"))
}

/// 128 bits for a certificate's serial number, drawn in order of time so that ordered stores stay fast:
/// 48 bits of milliseconds, 80 of chance.
pub fn serial(at: Timestamp) -> Result<[u8; 16], NoChance> {
    let chance: [u8; 10] = fill()?;
    let mut serial = [0; 16];
    let millis = at.millis().to_be_bytes();
    for (to, from) in serial.iter_mut().zip(millis.iter().skip(2).chain(&chance)) {
        *to = *from;
    }
    Ok(serial)
}

/// What makes the label of a key in an HSM new.
pub fn key_label() -> Result<[u8; 4], NoChance> {
    fill()
}

/// How tokens and API keys begin, so that people and scanners know what they found.
pub const TOKEN_PREFIX: &str = "enroll_";
/// What 002 begins its tokens with.
pub const JOIN_PREFIX: &str = "pjt_";
pub const KEY_PREFIX: &str = "ekey_";

/// 256 bits as 43 characters of base64url behind a prefix that says what the secret is.
pub fn secret(prefix: &str) -> Result<Zeroizing<String>, NoChance> {
    let bytes: Zeroizing<[u8; 32]> = Zeroizing::new(fill()?);
    let text = Zeroizing::new(base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes.as_slice()));
    Ok(Zeroizing::new(format!("{prefix}{}", text.as_str())))
}

/// The value of an enrollment token, as the document of a door writes it. Any of them opens any door.
pub fn token(door: Door) -> Result<Zeroizing<String>, NoChance> {
    let bytes: Zeroizing<[u8; 32]> = Zeroizing::new(fill()?);
    Ok(Zeroizing::new(match door {
        Door::Native | Door::Plfm | Door::Pact => return secret(TOKEN_PREFIX),
        Door::Probectl => format!("{JOIN_PREFIX}{}", hex::encode(bytes.as_slice())),
        Door::Taskrun => base64::engine::general_purpose::STANDARD.encode(bytes.as_slice()),
    }))
}

/// A unique local /48 (RFC 4193): 40 random bits.
pub fn overlay_prefix() -> Result<Ipv6Addr, NoChance> {
    let [a, b, c, d, e] = fill()?;
    Ok(Ipv6Addr::from([0xfd, a, b, c, d, e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_drawn_uuid_says_that_it_was_drawn() {
        let drawn: Vec<String> = (0..64).filter_map(|_| super::uuid().ok()).collect();
        assert_eq!(drawn.iter().collect::<std::collections::BTreeSet<_>>().len(), 64);
        for id in &drawn {
            let marks: Vec<usize> = id.match_indices('-').map(|(place, _)| place).collect();
            assert_eq!((id.len(), marks), (36, vec![8, 13, 18, 23]), "{id}");
            assert!(id.get(14..15) == Some("4") && "89ab".contains(id.get(19..20).unwrap_or("?")), "{id}");
        }
    }
}
