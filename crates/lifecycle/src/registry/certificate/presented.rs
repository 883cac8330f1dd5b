//! What the record says of a certificate that a peer presents. A serial alone names none: another issuer may have given it
//! out as well, and whoever also has the key of an imported CA can sign any. The fingerprint covers issuer and serial.

use super::verdict::Verdict;
use crate::names::{Fingerprint, Serial, Timestamp};
use crate::registry::{Certificate, State};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presented<'a> {
    /// Exactly this certificate is on record.
    Recorded(&'a Certificate, Verdict),
    /// Nothing is on record under its serial. It may not have arrived from the leader yet.
    Unknown,
    /// Another certificate is on record under its serial, so this one was never issued here and never will be.
    Forged,
}

impl Presented<'_> {
    /// Whether something is known against it.
    pub fn is_refused(self) -> bool {
        match self {
            Presented::Recorded(_, verdict) => verdict.is_refused(),
            Presented::Unknown => false,
            Presented::Forged => true,
        }
    }
}

impl State {
    /// The record of a certificate with this serial and this fingerprint, and the verdict on it at a moment.
    pub fn presented(&self, serial: &Serial, fingerprint: &Fingerprint, at: Timestamp) -> Presented<'_> {
        match self.certificates.get(serial) {
            Some(held) if held.fingerprint == *fingerprint => {
                Presented::Recorded(held, self.verdict_on(held, at))
            }
            Some(_) => Presented::Forged,
            None => Presented::Unknown,
        }
    }
}
