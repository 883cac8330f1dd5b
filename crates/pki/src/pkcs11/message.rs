//! What goes between this process and that of a session: frames of a length and a JSON document.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::path::PathBuf;

use serde::de::{DeserializeOwned, Error as _, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zeroize::Zeroizing;

use super::call::{HsmAnswer, HsmRequest};
use super::session::SessionFault;

/// Of a frame. A path in an error message may have 4 KiB.
const MAX_BYTES: usize = 32 * 1024;

#[derive(Serialize, Deserialize)]
pub(super) enum SessionRequest {
    /// The first: load the module, find the token, open a session.
    Open {
        module: PathBuf,
        token: String,
    },
    Login {
        pin: SecretText,
    },
    Perform(HsmRequest),
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum SessionReply {
    Opened(TokenStatus),
    LoggedIn,
    /// And is to be tried no more. The name of PKCS#11's answer.
    PinRefused(String),
    Done(HsmAnswer),
    Failed(SessionFault),
}

/// What a token says of itself.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TokenStatus {
    pub needs_login: bool,
    pub is_pin_locked: bool,
    /// One more wrong PIN locks it.
    pub is_final_try: bool,
    /// How many sessions it allows, if it says so.
    pub max_sessions: Option<u64>,
}

/// Written in hexadecimal: text that needs no escaping is read without a second copy.
pub(super) struct SecretText(pub Zeroizing<String>);

impl Serialize for SecretText {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(&Zeroizing::new(hex::encode(self.0.as_bytes())))
    }
}

impl<'de> Deserialize<'de> for SecretText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Hexadecimal;
        impl Visitor<'_> for Hexadecimal {
            type Value = SecretText;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("text in hexadecimal")
            }

            fn visit_str<E: serde::de::Error>(self, digits: &str) -> std::result::Result<SecretText, E> {
                let bytes = hex::decode(digits).map_err(|_| E::custom("not hexadecimal"))?;
                let text = String::from_utf8(bytes).map_err(|_| E::custom("not UTF-8"))?;
                Ok(SecretText(Zeroizing::new(text)))
            }
        }
        deserializer.deserialize_str(Hexadecimal).map_err(D::Error::custom)
    }
}

/// In one piece, in memory that is wiped: it may hold a PIN.
pub(super) fn write(mut to: impl Write, message: &impl Serialize) -> Result<()> {
    let mut frame = Zeroizing::new(Vec::with_capacity(MAX_BYTES));
    frame.extend([0; 4]);
    serde_json::to_writer(&mut *frame, message)?;
    let length = frame.len().saturating_sub(4);
    let (Ok(prefix), true) = (u32::try_from(length), frame.len() <= MAX_BYTES) else {
        return Err(Error::new(ErrorKind::InvalidData, "a message is too long"));
    };
    for (place, byte) in frame.iter_mut().zip(prefix.to_be_bytes()) {
        *place = byte;
    }
    to.write_all(&frame)
}

/// The document of the next frame; nothing where the other side has ended between two of them.
pub(super) fn read_frame(mut from: impl Read) -> Result<Option<Zeroizing<Vec<u8>>>> {
    let mut prefix = [0; 4];
    let (first, rest) = prefix.split_at_mut(1);
    if from.read(first)? == 0 {
        return Ok(None);
    }
    from.read_exact(rest)?;
    let length = u32::from_be_bytes(prefix) as usize;
    if length > MAX_BYTES {
        return Err(Error::new(ErrorKind::InvalidData, "a message is too long"));
    }
    let mut frame = Zeroizing::new(vec![0; length]);
    from.read_exact(&mut frame)?;
    Ok(Some(frame))
}

pub(super) fn parse<T: DeserializeOwned>(frame: &[u8]) -> Result<T> {
    Ok(serde_json::from_slice(frame)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_reads_back_as_written_and_a_pin_is_not_in_it_as_it_is() {
        let mut written = Vec::new();
        let pin = SecretText(Zeroizing::new("56\"78ä".to_owned()));
        write(&mut written, &SessionRequest::Login { pin }).unwrap();
        assert!(!String::from_utf8_lossy(&written).contains("78ä"));
        let mut rest = written.as_slice();
        let frame = read_frame(&mut rest).unwrap().unwrap();
        let SessionRequest::Login { pin } = parse(&frame).unwrap() else { panic!("another request") };
        assert_eq!(*pin.0, "56\"78ä");
        assert!(read_frame(&mut rest).unwrap().is_none());
    }

    #[test]
    fn what_is_too_long_or_cut_off_is_refused() {
        let long = SessionReply::PinRefused("x".repeat(MAX_BYTES));
        assert!(write(Vec::new(), &long).is_err());
        assert!(read_frame([0xff, 0, 0, 0, 1].as_slice()).is_err());
        assert!(read_frame([0, 0, 0, 9, 1].as_slice()).is_err());
        assert!(read_frame([0, 0].as_slice()).is_err());
        assert!(parse::<SessionReply>(b"{}").is_err());
    }
}
