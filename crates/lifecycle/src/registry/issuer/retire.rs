//! Retiring an issuer once no good certificate depends on it.

use crate::names::{IssuerId, NodeId, ReplicaId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{
    Certificate, CertificateStatus, Envelope, Event, Issuer, IssuerState, Owner, Rejection,
    ServerCertificate, State,
};
use std::collections::BTreeSet;

/// How many holders a refusal names.
const HOLDERS: usize = 10;

/// All that are named, or none of them.
pub(in crate::registry) fn retire(state: &State, id: &IssuerId, also: &[IssuerId]) -> Decision {
    let (mut events, mut used) = (Vec::new(), Vec::new());
    let named: BTreeSet<&IssuerId> = also.iter().filter(|other| *other != id).collect();
    for id in [id].into_iter().chain(named) {
        match state.issuers.get(id) {
            None => return Rejection::IssuerNotFound { issuer: id.clone() }.into(),
            Some(issuer) if issuer.state == IssuerState::Retired => {}
            Some(issuer) if issuer.state != IssuerState::Retiring => {
                return not_retiring(state, issuer).into();
            }
            Some(_) if state.good_certificates(id).next().is_none() && !state.presents_leaf_of(id) => {
                events.push(Event::IssuerRetired(IssuerRetired { issuer: id.clone() }));
            }
            Some(issuer) => used.push(issuer),
        }
    }
    match in_use(state, &used, WhoseUse::All) {
        Some(refused) => refused.into(),
        None => Decision::granted(events),
    }
}

pub(in crate::registry) fn not_retiring(state: &State, issuer: &Issuer) -> Rejection {
    Rejection::IssuerInUse {
        issuer: issuer.id.clone(),
        others: Box::default(),
        leaves: state.leaves(&issuer.id),
        holders: Box::default(),
        own: false,
        drained_at: None,
        state: Some(issuer.state),
    }
}

/// Whose certificates keep an issuer in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::registry) enum WhoseUse {
    All,
    /// The control plane's own, by which replicas know each other and clients know them: nobody else is waited for.
    ControlPlane,
}

impl State {
    /// Whether a replica presents a certificate of this issuer, to clients or to other replicas.
    pub(in crate::registry) fn control_plane_uses(&self, issuer: &IssuerId) -> bool {
        self.presents_leaf_of(issuer) || self.good_certificates(issuer).any(is_replicas)
    }
}

/// Whether it is what a replica uses among replicas: one that its successor has taken the place of does not count.
fn is_replicas(held: &Certificate) -> bool {
    matches!(held.owner, Owner::Replica(_)) && held.grace_end().is_none()
}

/// Names some of those that have to renew before these issuers can be retired, and until when the certificates are valid
/// whose holders have renewed. None if there is no issuer.
pub(in crate::registry) fn in_use(state: &State, issuers: &[&Issuer], whose: WhoseUse) -> Option<Rejection> {
    let (first, others) = issuers.split_first()?;
    // Each replica of a cluster is one that can be started or removed; one alone is the control plane that was asked.
    let presented =
        |own: &&ServerCertificate| issuers.iter().any(|issuer| own.is_presented_of(&issuer.id, state.at));
    let own: Vec<ReplicaId> = state.server_certificates().filter(presented).map(|own| own.replica).collect();
    let (mut holders, mut drained_at, mut leaves) = (BTreeSet::new(), None, own.len() as u64);
    let mut replicas: BTreeSet<ReplicaId> =
        own.iter().copied().filter(|id| state.replicas.contains_key(id)).collect();
    let counted = |held: &&Certificate| whose == WhoseUse::All || is_replicas(held);
    for held in issuers.iter().flat_map(|issuer| state.good_certificates(&issuer.id)).filter(counted) {
        leaves = leaves.saturating_add(1);
        match (&held.owner, held.status) {
            // What a replica had before ends with another renewal of it, not with time.
            (Owner::Replica(id), _) => drop(replicas.insert(*id)),
            (_, CertificateStatus::Superseded { until }) => {
                drained_at = drained_at.max(Some(until.min(held.not_after)))
            }
            (Owner::Node(id), _) => drop(holders.insert(id.to_string())),
            (Owner::Operator(name), _) => drop(holders.insert(format!("operator {name}"))),
            (Owner::Bootstrap(name), _) => drop(holders.insert(format!("bootstrap identity {name}"))),
        }
    }
    Some(Rejection::IssuerInUse {
        issuer: first.id.clone(),
        others: others.iter().map(|issuer| issuer.id.clone()).collect(),
        leaves,
        holders: replicas.iter().map(|id| format!("replica {id}")).chain(holders).take(HOLDERS).collect(),
        own: own.iter().any(|id| !replicas.contains(id)),
        drained_at,
        state: None,
    })
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerRetired {
    pub issuer: IssuerId,
}

impl Happened for IssuerRetired {
    const NAME: &'static str = "ca.retired";

    fn fields(&self) -> AuditFields {
        vec![("issuer", AuditField::text(&self.issuer))]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.end_issuer(&self.issuer, IssuerState::Retired);
    }
}
