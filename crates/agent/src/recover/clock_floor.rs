//! The earliest time that the clock may show: when the newest certificate here was issued. By a clock that is behind it,
//! an expired server certificate would verify, so nothing is sent.

use lifecycle::names::{Span, Timestamp};
use rustls_pki_types::CertificateDer;

use crate::failed_call::FailedCall;

pub fn check(issued: Option<Timestamp>, at: Timestamp, tolerance: Span) -> Result<(), FailedCall> {
    match issued {
        Some(issued) if at.plus(tolerance) < issued => Err(FailedCall::early(issued, at)),
        _ => Ok(()),
    }
}

/// When the newest of these was issued, as far as it can be read.
pub fn newest<'a>(certificates: impl IntoIterator<Item = &'a CertificateDer<'static>>) -> Option<Timestamp> {
    let began = |der: &CertificateDer<'_>| pki::describe::facts(der).ok().map(|facts| facts.not_before);
    certificates.into_iter().filter_map(began).max()
}

#[cfg(test)]
mod tests {
    use lifecycle::host::FailureKind;

    use super::*;

    #[test]
    fn a_clock_behind_the_newest_certificate_is_wrong_and_any_other_may_be_right() {
        let (issued, tolerance) = (Timestamp::from_secs(10_000), Span::from_secs(300));
        let check = |issued, at| check(issued, Timestamp::from_secs(at), tolerance);
        let failed = check(Some(issued), 9_699).unwrap_err();
        assert_eq!((failed.kind, failed.clock), (FailureKind::ClockSkew, Some(-301_000)));
        assert!(check(Some(issued), 9_700).is_ok());
        assert!(check(Some(issued), 1_000_000).is_ok());
        assert!(check(None, 0).is_ok());
    }
}
