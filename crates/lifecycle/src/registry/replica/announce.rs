//! Announcing: what a replica says of itself. The first one is on record by it, and every other by joining.

use super::{Replica, ReplicaState};
use crate::names::{NodeId, ReplicaId, Serial, Timestamp};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{CertificateStatus, Envelope, Event, Issued, Rejection, State};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnnounceReplica {
    pub replica: ReplicaId,
    /// `HOST:PORT` where other replicas reach it.
    pub peer: String,
    pub urls: Vec<String>,
    /// A certificate that it made for itself; none if it goes on with the one in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<Issued>,
}

/// Nothing, if it is all known.
pub(in crate::registry) fn decide(state: &State, announce: &AnnounceReplica) -> Decision {
    let id = announce.replica;
    let founds_cluster = state.replicas.is_empty() && id == ReplicaId::FIRST;
    let known = match state.member(id) {
        Ok(replica) => Some(replica),
        Err(_) if founds_cluster => None,
        Err(rejection) => return rejection.into(),
    };
    if state.peer_is_taken(&announce.peer, Some(id)) {
        return Rejection::PeerAddressInUse { peer: announce.peer.clone() }.into();
    }
    let current = known.and_then(|replica| replica.serial.as_ref());
    // The same again after a lost answer is the certificate in use by now.
    let renewed = announce.certificate.as_ref().filter(|issued| !is_on_record(state, issued, current));
    if renewed.is_some_and(|issued| !state.fits_replica(id, issued)) {
        return Rejection::PreparedStale.into();
    }
    let same = known.is_some_and(|known| known.peer == announce.peer && known.urls == announce.urls);
    if same && renewed.is_none() {
        return Decision::granted(Vec::new());
    }
    let held = current.and_then(|serial| state.certificates.get(serial)).map(|held| held.not_after);
    let announced = ReplicaAnnounced {
        replica: id,
        peer: announce.peer.clone(),
        urls: announce.urls.clone(),
        certificate: renewed.cloned(),
        serial: renewed.map(|issued| &issued.serial).or(current).cloned(),
        not_after: renewed.map(|issued| issued.not_after).or(held),
        denied: renewed.and(known).and_then(|known| unended(state, known.previous.as_ref()?)),
    };
    Decision::granted(vec![Event::ReplicaAnnounced(Box::new(announced))])
}

fn is_on_record(state: &State, issued: &Issued, current: Option<&Serial>) -> bool {
    let held = state.certificates.get(&issued.serial);
    current == Some(&issued.serial) && held.is_some_and(|held| held.fingerprint == issued.fingerprint)
}

/// A certificate that would still be accepted.
fn unended(state: &State, serial: &Serial) -> Option<Serial> {
    let held = state.certificates.get(serial)?;
    let unended = held.not_after > state.at && held.status != CertificateStatus::Denied;
    unended.then(|| serial.clone())
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaAnnounced {
    pub replica: ReplicaId,
    pub peer: String,
    pub urls: Vec<String>,
    /// A new one.
    pub certificate: Option<Issued>,
    /// The one in use from now on, and its end.
    pub serial: Option<Serial>,
    pub not_after: Option<Timestamp>,
    /// The one before the one before.
    pub denied: Option<Serial>,
}

impl Happened for ReplicaAnnounced {
    const NAME: &'static str = "cluster.announced";

    fn fields(&self) -> AuditFields {
        [
            ("replica_id", AuditField::text(self.replica)),
            ("peer", AuditField::text(&self.peer)),
            ("urls", AuditField::texts(&self.urls)),
            ("cert_serial", AuditField::maybe(self.serial.as_ref())),
            ("not_after", AuditField::maybe(self.not_after)),
        ]
        .into_iter()
        .chain(self.denied.as_ref().map(|serial| ("denied_serials", AuditField::texts(&[serial]))))
        .collect()
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        let at = state.at;
        if let Some(issued) = &self.certificate {
            state.deny(&self.denied);
            state.record_replica_certificate(self.replica, issued);
        }
        let replica = state.replicas.entry(self.replica).or_insert_with(|| Replica {
            id: self.replica,
            state: ReplicaState::Member,
            peer: String::new(),
            urls: Vec::new(),
            joined_at: at,
            removed_at: None,
            removed_by_force: false,
            serial: None,
            previous: None,
        });
        (replica.peer, replica.urls) = (self.peer.clone(), self.urls.clone());
        if let Some(issued) = &self.certificate {
            replica.previous = replica.serial.replace(issued.serial.clone());
            let previous = replica.previous.clone();
            supersede(state, previous);
        }
    }
}

/// It stays good to its end: the replica may stop before it has stored the new one.
fn supersede(state: &mut State, serial: Option<Serial>) {
    let held = serial.and_then(|serial| state.certificates.get_mut(&serial)).map(Arc::make_mut);
    if let Some(held) = held.filter(|held| held.status == CertificateStatus::Live) {
        held.status = CertificateStatus::Superseded { until: held.not_after };
    }
}
