//! The only room that draws random numbers: ids, serials, tokens and keys.

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use base64::Engine;
use lifecycle::names::{Timestamp, Ulid};
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
pub fn ulid(at: Timestamp) -> Result<Ulid, NoChance> {
    Ok(Ulid::new(at, fill()?))
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

/// How tokens and API keys begin, so that people and scanners know what they found.
pub const TOKEN_PREFIX: &str = "enroll_";
pub const KEY_PREFIX: &str = "ekey_";

/// 256 bits as 43 characters of base64url behind a prefix that says what the secret is.
pub fn secret(prefix: &str) -> Result<Zeroizing<String>, NoChance> {
    let bytes: Zeroizing<[u8; 32]> = Zeroizing::new(fill()?);
    let text = Zeroizing::new(base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes.as_slice()));
    Ok(Zeroizing::new(format!("{prefix}{}", text.as_str())))
}

/// A unique local /48 (RFC 4193): 40 random bits.
pub fn overlay_prefix() -> Result<Ipv6Addr, NoChance> {
    let [a, b, c, d, e] = fill()?;
    Ok(Ipv6Addr::from([0xfd, a, b, c, d, e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]))
}
