//! The key that authenticates what is stored: without it nobody can write a row that is taken for one of this log.

use aws_lc_rs::{constant_time, hmac};
use std::sync::Arc;

/// An HMAC-SHA-256 over a row and its place.
pub type RowCode = [u8; 32];

/// Drawn for one log, so that it also says whose row it is: one of another domain does not verify.
#[derive(Clone)]
pub struct LogKey(Arc<hmac::Key>);

impl LogKey {
    pub fn new(bytes: &[u8; 32]) -> Self {
        Self(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, bytes)))
    }

    /// Whether another one is the same key.
    pub fn is(&self, other: &LogKey) -> bool {
        let place = RowPlace::of("key");
        self.begin(&place).verify(&other.begin(&place).finish())
    }

    /// Begins a code that is bound to a place; what is stored there follows.
    pub(crate) fn begin(&self, place: &RowPlace<'_>) -> Authenticator {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(b"enlist log v2\0");
        context.update(place.kind.as_bytes());
        // No kind has a NUL in it, and what follows is of fixed length: no two places begin alike.
        context.update(&[0]);
        context.update(&place.index.to_be_bytes());
        context.update(place.after);
        Authenticator(context)
    }
}

impl std::fmt::Debug for LogKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LogKey(hidden)")
    }
}

/// Where something is stored. A row that is good in one place is good in no other.
pub struct RowPlace<'a> {
    pub kind: &'static str,
    pub index: u64,
    /// The code of the entry before, so that none can be left out or put in; zeros for what follows nothing.
    pub after: &'a RowCode,
}

/// Of what follows nothing.
pub const NO_CODE: RowCode = [0; 32];

impl RowPlace<'static> {
    /// Of a value that is stored once, under its name.
    pub fn of(kind: &'static str) -> Self {
        Self { kind, index: 0, after: &NO_CODE }
    }
}

/// A code in the making.
pub struct Authenticator(hmac::Context);

impl Authenticator {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn finish(self) -> RowCode {
        let mut code = NO_CODE;
        for (to, from) in code.iter_mut().zip(self.0.sign().as_ref()) {
            *to = *from;
        }
        code
    }

    /// Compared in constant time.
    pub fn verify(self, code: &RowCode) -> bool {
        constant_time::verify_slices_are_equal(&self.finish(), code).is_ok()
    }
}
