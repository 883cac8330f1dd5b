//! What belongs on an issuer's revocation list: what it signed, has not expired and is refused all the same.

use super::verdict::{Denial, Verdict};
use crate::names::{Serial, Timestamp};
use crate::registry::{Certificate, Issuer, Owner, State};

/// One entry of a revocation list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revocation {
    pub serial: Serial,
    /// Since when it is refused.
    pub at: Timestamp,
    pub reason: RevocationReason,
}

/// As RFC 5280 names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RevocationReason {
    Unspecified,
    Superseded,
    CessationOfOperation,
}

impl State {
    /// The entries of an issuer's list at a moment.
    pub fn revocations<'a>(
        &'a self,
        issuer: &'a Issuer,
        at: Timestamp,
    ) -> impl Iterator<Item = Revocation> + 'a {
        let of_issuer = self.certificates.iter().filter(move |(_, held)| held.issuer == issuer.id);
        of_issuer.filter(move |(_, held)| held.not_after > at).filter_map(move |(serial, held)| {
            let (since, reason) = match self.verdict_on(held, at) {
                Verdict::Good | Verdict::Grace { .. } | Verdict::Expired | Verdict::Unknown => return None,
                Verdict::Superseded { since } => (Some(since), RevocationReason::Superseded),
                Verdict::Denied(denial) => (held.grace_end(), reason(held, denial)),
            };
            // Whatever ended it first: a denial that came later does not move the date.
            let first = [held.denied_at, issuer.revoked_at, since].into_iter().flatten().min();
            Some(Revocation { serial: serial.clone(), at: first.unwrap_or(at).min(at), reason })
        })
    }
}

/// Whoever is revoked is not told why in public; a certificate that only was replaced is told apart.
fn reason(held: &Certificate, denial: Denial) -> RevocationReason {
    match (denial, &held.owner) {
        (Denial::NodeDecommissioned, _) => RevocationReason::CessationOfOperation,
        (Denial::Replaced, Owner::Node(_) | Owner::Replica(_)) => RevocationReason::Superseded,
        (Denial::Replaced, Owner::Operator(_) | Owner::Bootstrap(_))
        | (
            Denial::NodeRevoked
            | Denial::OperatorRemoved
            | Denial::ReplicaRemoved
            | Denial::IssuerRevoked
            | Denial::BootstrapRevoked,
            _,
        ) => RevocationReason::Unspecified,
    }
}
