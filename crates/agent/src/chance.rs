//! The only place that asks the kernel for chance. Keys are drawn in `pki`.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// 128 random bits as 32 lower-case hex digits.
pub fn hex_128() -> io::Result<String> {
    let mut bytes = [0u8; 16];
    // The kernel gives up to 256 bytes at once or none, and may be interrupted only while it starts up.
    let drawn = rustix::io::retry_on_intr(|| getrandom(&mut bytes, GetRandomFlags::empty()))?;
    if drawn != bytes.len() {
        return Err(io::Error::other("the kernel gave too few random bytes"));
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// 80 random bits.
pub fn bytes() -> io::Result<[u8; 10]> {
    let mut bytes = [0u8; 10];
    let drawn = rustix::io::retry_on_intr(|| getrandom(&mut bytes, GetRandomFlags::empty()))?;
    if drawn == bytes.len() {
        Ok(bytes)
    } else {
        Err(io::Error::other("the kernel gave too few random bytes"))
    }
}

/// Any number. Without chance there would be no jitter, but still a pause: no reason to stop.
pub fn number() -> u32 {
    let drawn = hex_128().ok().and_then(|text| u32::from_str_radix(text.get(..8)?, 16).ok());
    drawn.unwrap_or(u32::MAX)
}
