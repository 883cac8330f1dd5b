//! A newer certificate takes over from the older ones: it was seen in use, and they may finish what they began.

use crate::names::{NodeId, Serial, Timestamp};
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{CertificateStatus, Envelope, Event, Node, Owner, State};
use std::sync::Arc;

/// The serials before this one that are still good: they may finish what they began.
pub(in crate::registry) fn superseded<'a>(
    state: &'a State,
    node: &'a Node,
    by: &'a Serial,
) -> impl Iterator<Item = Event> + 'a {
    let until = state.at.plus(state.policy.renew_drain);
    let older = node.serials.iter().take_while(move |serial| *serial != by);
    older
        .filter(|serial| {
            state.certificates.get(*serial).is_some_and(|certificate| {
                certificate.status == CertificateStatus::Live && state.at < certificate.not_after
            })
        })
        .map(move |serial| {
            Event::CertificateSuperseded(CertificateSuperseded {
                node: node.id.clone(),
                serial: serial.clone(),
                by: by.clone(),
                until,
            })
        })
}

/// A certificate was used for the first time; what it takes over from are events of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateSeen {
    pub serial: Serial,
}

impl Happened for CertificateSeen {
    const NAME: &'static str = "certificate.seen";
    const AUDITED: bool = false;

    fn fields(&self) -> AuditFields {
        vec![("cert_serial", AuditField::text(&self.serial))]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        // The holder has what was sent: from now on only serial, fingerprint and dates are kept, and nothing is said again.
        let Some(certificate) = state.certificates.get_mut(&self.serial).map(Arc::make_mut) else { return };
        certificate.der = None;
        let bundle = certificate.bundle;
        if let Owner::Node(id) = certificate.owner.clone() {
            state.change_node(&id, |node| {
                node.idempotency = None;
                // A host that says itself what it has stored may have refused this one.
                if !node.says_bundle {
                    node.stored_bundle = node.stored_bundle.max(bundle);
                }
            });
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateSuperseded {
    pub node: NodeId,
    pub serial: Serial,
    pub by: Serial,
    pub until: Timestamp,
}

impl Happened for CertificateSuperseded {
    const NAME: &'static str = "certificate.superseded";

    fn fields(&self) -> AuditFields {
        vec![
            ("node_id", AuditField::text(&self.node)),
            ("cert_serial", AuditField::text(&self.serial)),
            ("superseded_by", AuditField::text(&self.by)),
            ("until", AuditField::text(self.until)),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        if let Some(old) = state.certificates.get_mut(&self.serial).map(Arc::make_mut) {
            old.status = CertificateStatus::Superseded { until: self.until };
        }
    }
}
