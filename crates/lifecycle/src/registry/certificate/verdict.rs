//! The one verdict on a certificate. Handshakes, requests, open connections, live streams, renewals, rotations,
//! metrics and revocation lists all ask here, so that none of them accepts what another refuses.

use crate::names::{Serial, Timestamp};
use crate::registry::{Certificate, CertificateStatus, NodeState, Owner, ReplicaState, State};

/// What is known about a serial at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Accepted, and no newer certificate of its holder is in use.
    Good,
    /// Accepted until then: a newer certificate is in use, and this one may finish what it began.
    Grace { until: Timestamp },
    /// A newer certificate is in use and the grace ended then.
    Superseded { since: Timestamp },
    /// Never again accepted.
    Denied(Denial),
    /// Its time is over, or that of its issuer, and nothing else was wrong with it.
    Expired,
    /// On no record here. It may not have arrived from the leader yet, so it is never taken for revoked.
    Unknown,
}

/// Why a certificate is denied. What ended its holder is said before what ended the certificate alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denial {
    NodeRevoked,
    NodeDecommissioned,
    OperatorRemoved,
    ReplicaRemoved,
    IssuerRevoked,
    BootstrapRevoked,
    /// This certificate alone: replaced by an enrollment, a recovery or a renewal.
    Replaced,
}

impl Verdict {
    /// Whether its holder may authenticate with it.
    pub fn is_accepted(self) -> bool {
        match self {
            Verdict::Good | Verdict::Grace { .. } => true,
            Verdict::Superseded { .. } | Verdict::Denied(_) | Verdict::Expired | Verdict::Unknown => false,
        }
    }

    /// Whether something is known against it. A serial that is on no record is not held against anybody.
    pub fn is_refused(self) -> bool {
        match self {
            Verdict::Superseded { .. } | Verdict::Denied(_) | Verdict::Expired => true,
            Verdict::Good | Verdict::Grace { .. } | Verdict::Unknown => false,
        }
    }

    /// Whether a newer certificate of its holder is in use, its grace over or not.
    pub fn has_successor(self) -> bool {
        match self {
            Verdict::Grace { .. } | Verdict::Superseded { .. } => true,
            Verdict::Good | Verdict::Denied(_) | Verdict::Expired | Verdict::Unknown => false,
        }
    }

    pub fn is_denied(self) -> bool {
        match self {
            Verdict::Denied(_) => true,
            Verdict::Good
            | Verdict::Grace { .. }
            | Verdict::Superseded { .. }
            | Verdict::Expired
            | Verdict::Unknown => false,
        }
    }
}

impl State {
    /// The verdict on a serial at a moment.
    pub fn verdict(&self, serial: &Serial, at: Timestamp) -> Verdict {
        self.certificates.get(serial).map_or(Verdict::Unknown, |held| self.verdict_on(held, at))
    }

    pub(in crate::registry) fn verdict_on(&self, held: &Certificate, at: Timestamp) -> Verdict {
        if let Some(denial) = self.denial(held) {
            return Verdict::Denied(denial);
        }
        match held.status {
            _ if held.not_after <= at => Verdict::Expired,
            CertificateStatus::Superseded { until } if until <= at => Verdict::Superseded { since: until },
            // Retired with the root above it although this was valid: nobody verifies it any more.
            _ if self.issuer_is_retired(&held.issuer) => Verdict::Expired,
            CertificateStatus::Superseded { until } => Verdict::Grace { until: until.min(held.not_after) },
            CertificateStatus::Live => Verdict::Good,
            CertificateStatus::Denied => Verdict::Denied(Denial::Replaced),
        }
    }

    fn denial(&self, held: &Certificate) -> Option<Denial> {
        let holder = match &held.owner {
            Owner::Node(id) => match self.nodes.get(id).map(|node| node.state) {
                None | Some(NodeState::Revoked) => Some(Denial::NodeRevoked),
                Some(NodeState::Decommissioned) => Some(Denial::NodeDecommissioned),
                Some(
                    NodeState::Registered | NodeState::Enrolled | NodeState::Active | NodeState::Inactive,
                ) => None,
            },
            Owner::Operator(name) => (!self.operators.contains_key(name)).then_some(Denial::OperatorRemoved),
            Owner::Bootstrap(_) => {
                (held.status == CertificateStatus::Denied).then_some(Denial::BootstrapRevoked)
            }
            Owner::Replica(id) => match self.replicas.get(id).map(|replica| replica.state) {
                Some(ReplicaState::Member) => None,
                None | Some(ReplicaState::Removed) => Some(Denial::ReplicaRemoved),
            },
        };
        let issuer = || self.issuer_is_revoked(&held.issuer).then_some(Denial::IssuerRevoked);
        let alone = || (held.status == CertificateStatus::Denied).then_some(Denial::Replaced);
        holder.or_else(issuer).or_else(alone)
    }

    /// Whether a serial is accepted now.
    pub fn is_good(&self, serial: &Serial) -> bool {
        self.verdict(serial, self.at).is_accepted()
    }

    /// Whether a serial is denied, by whatever it may be denied. Time does not change it.
    pub fn is_denied(&self, serial: &Serial) -> bool {
        self.verdict(serial, self.at).is_denied()
    }
}
