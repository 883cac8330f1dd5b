//! The latest moment that has certainly been: something that lies here was made then. A clock that says it is earlier is
//! wrong, and by it a certificate that ended long ago would look good: nothing is sent to whoever shows one.

use lifecycle::names::{Span, Timestamp};
use rustls_pki_types::CertificateDer;

use crate::failed_call::FailedCall;

pub fn check(made: Option<Timestamp>, at: Timestamp, tolerance: Span) -> Result<(), FailedCall> {
    match made {
        Some(made) if at.plus(tolerance) < made => Err(FailedCall::early(made, at)),
        _ => Ok(()),
    }
}

/// When the newest of these was made, as far as it can be read.
pub fn newest<'a>(certificates: impl IntoIterator<Item = &'a CertificateDer<'static>>) -> Option<Timestamp> {
    let began = |der: &CertificateDer<'_>| pki::describe::facts(der).ok().map(|facts| facts.not_before);
    certificates.into_iter().filter_map(began).max()
}

#[cfg(test)]
mod tests {
    use lifecycle::host::FailureKind;

    use super::*;

    #[test]
    fn a_clock_that_is_behind_what_lies_here_is_wrong_and_any_other_may_be_right() {
        let (made, tolerance) = (Timestamp::from_secs(10_000), Span::from_secs(300));
        let check = |made, at| check(made, Timestamp::from_secs(at), tolerance);
        let failed = check(Some(made), 9_699).unwrap_err();
        assert_eq!((failed.kind, failed.clock), (FailureKind::ClockSkew, Some(-301_000)));
        assert!(check(Some(made), 9_700).is_ok());
        assert!(check(Some(made), 1_000_000).is_ok());
        assert!(check(None, 0).is_ok());
    }
}
