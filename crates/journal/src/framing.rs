//! How stored forms are framed: since version 2 with a code of the log key, before with a checksum.

use crate::log_key::{LogKey, NO_CODE, RowCode, RowPlace};
use crate::stored::{self, RowFault};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub const AUTHENTICATED: u8 = 2;
/// One byte of version, then the code.
const HEADER: usize = 1 + 32;

#[derive(Clone, Debug)]
pub enum Framing {
    /// Version 1: what versions before authentication wrote. Read and written only until the directory is taken in.
    Checksummed,
    Authenticated(LogKey),
}

impl Framing {
    /// A frame with room for what vouches for it; the payload is written behind it, then [`Framing::finish`]ed.
    pub fn begin(&self, capacity: usize) -> Vec<u8> {
        match self {
            Framing::Checksummed => stored::begin(capacity),
            Framing::Authenticated(_) => {
                let mut row = Vec::with_capacity(HEADER + capacity);
                row.push(AUTHENTICATED);
                row.extend_from_slice(&NO_CODE);
                row
            }
        }
    }

    pub fn finish(&self, row: &mut [u8], place: &RowPlace<'_>) {
        match self {
            Framing::Checksummed => stored::finish(row),
            Framing::Authenticated(key) => {
                if let Some(([_, code @ ..], payload)) = row.split_first_chunk_mut::<HEADER>() {
                    *code = code_of(key, place, payload).finish();
                }
            }
        }
    }

    pub fn seal<T: Serialize>(
        &self,
        value: &T,
        place: &RowPlace<'_>,
    ) -> Result<Vec<u8>, rmp_serde::encode::Error> {
        let mut row = self.begin(256);
        rmp_serde::encode::write_named(&mut row, value)?;
        self.finish(&mut row, place);
        Ok(row)
    }

    /// Nothing is decoded before the frame is found good.
    pub fn open<T: DeserializeOwned>(&self, row: &[u8], place: &RowPlace<'_>) -> Result<T, RowFault> {
        let key = match (self, row.first()) {
            (_, None) => return Err(RowFault::Short),
            (_, Some(&version)) if version > AUTHENTICATED => return Err(RowFault::Newer { version }),
            (Framing::Checksummed, Some(&AUTHENTICATED)) => return Err(RowFault::Authenticated),
            (Framing::Checksummed, Some(_)) => return stored::open(row),
            (Framing::Authenticated(key), Some(&AUTHENTICATED)) => key,
            (Framing::Authenticated(_), Some(_)) => return Err(RowFault::Unauthenticated),
        };
        let ([_, code @ ..], payload) = row.split_first_chunk::<HEADER>().ok_or(RowFault::Short)?;
        if !code_of(key, place, payload).verify(code) {
            return Err(RowFault::Code);
        }
        stored::decode(payload).map_err(|error| RowFault::Undecodable(error.to_string()))
    }

    /// The code in a row's header, which the next entry follows.
    pub fn code(&self, row: &[u8]) -> RowCode {
        match (self, row.split_first_chunk::<HEADER>()) {
            (Framing::Authenticated(_), Some(([_, code @ ..], _))) => *code,
            (Framing::Authenticated(_), None) | (Framing::Checksummed, _) => NO_CODE,
        }
    }

    pub fn is_authenticated(&self) -> bool {
        matches!(self, Framing::Authenticated(_))
    }
}

fn code_of(key: &LogKey, place: &RowPlace<'_>, payload: &[u8]) -> crate::log_key::Authenticator {
    let mut code = key.begin(place);
    code.update(payload);
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framing(byte: u8) -> Framing {
        Framing::Authenticated(LogKey::new(&[byte; 32]))
    }

    #[test]
    fn a_row_is_good_in_its_place_and_under_its_key_only() {
        let place = || RowPlace { kind: "entry", index: 7, after: &[3; 32] };
        let row = framing(1).seal(&("text", 7u64), &place()).expect("encodes");
        let open = |framing: &Framing, place: &RowPlace<'_>| framing.open::<(String, u64)>(&row, place);
        assert_eq!(open(&framing(1), &place()), Ok(("text".to_owned(), 7)));
        for elsewhere in [
            RowPlace { kind: "vote", ..place() },
            RowPlace { index: 8, ..place() },
            RowPlace { after: &NO_CODE, ..place() },
        ] {
            assert_eq!(open(&framing(1), &elsewhere), Err(RowFault::Code));
        }
        assert_eq!(open(&framing(2), &place()), Err(RowFault::Code));
        assert_eq!(open(&Framing::Checksummed, &place()), Err(RowFault::Authenticated));
        let plain = Framing::Checksummed.seal(&7u64, &place()).expect("encodes");
        assert_eq!(framing(1).open::<u64>(&plain, &place()), Err(RowFault::Unauthenticated));
    }

    #[test]
    fn every_changed_bit_of_a_row_is_noticed() {
        let row = framing(1).seal(&("text", 7u64), &RowPlace::of("vote")).expect("encodes");
        for bit in 0..row.len() * 8 {
            let mut changed = row.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(framing(1).open::<(String, u64)>(&changed, &RowPlace::of("vote")).is_err(), "bit {bit}");
        }
        assert_eq!(framing(1).open::<u64>(&row[..20], &RowPlace::of("vote")), Err(RowFault::Short));
    }
}
