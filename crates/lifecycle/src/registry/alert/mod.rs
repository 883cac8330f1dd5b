//! What wants an operator's attention.

pub(super) mod acknowledge;
pub(super) mod clear;
mod index;
pub(super) mod raise;

pub use index::AlertIndex;

use super::{Envelope, Event, Node, State};
use crate::names::{AlertId, NodeId, Span, TenantId, Timestamp};
use crate::registry::event::{AlertCleared, AlertRaised};
use serde::{Deserialize, Serialize};

/// `KIND "word"` makes a variant and its stable word.
macro_rules! kinds {
    ($($name:ident $word:literal)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum AlertKind {
            $($name),*
        }

        impl AlertKind {
            pub const ALL: &[AlertKind] = &[$(AlertKind::$name),*];

            pub fn as_str(self) -> &'static str {
                match self {
                    $(AlertKind::$name => $word),*
                }
            }
        }
    };
}

kinds! {
    EnrollmentStuck "enrollment_stuck"
    EnrollmentNotPersisted "enrollment_not_persisted"
    CloneSuspected "clone_suspected"
    IssuerExpiring "issuer_expiring"
    UnderlayUnreachable "underlay_unreachable"
    CertExpiring "cert_expiring"
    RecoveryNotNeeded "recovery_not_needed"
    RenewalFailing "renewal_failing"
    ClockSkew "clock_skew"
    EndpointProfileDrift "endpoint_profile_drift"
    DiskFull "disk_full"
    NodeReplaced "node_replaced"
    DeniedCertificateSeen "denied_certificate_seen"
    NodeSilent "node_silent"
    WireguardKeyConflict "wireguard_key_conflict"
    AlreadyActive "already_active"
    RepeatedFailures "repeated_failures"
    HardwareIdentityConflict "hardware_identity_conflict"
    AuditForwardingFailing "audit_forwarding_failing"
    ClaimedElsewhere "claimed_elsewhere"
    OverlayUnavailable "overlay_unavailable"
    OverlayDrift "overlay_drift"
    IssuerMisbehaved "issuer_misbehaved"
    HardwareGuessed "hardware_guessed"
    HardwareConflict "hardware_conflict"
    NoActiveIssuer "no_active_issuer"
    AuditAnchorFailing "audit_anchor_failing"
}

/// The kinds that follow from what a host says of itself, and end when it says otherwise.
pub const REPORTED: [AlertKind; 6] = [
    AlertKind::RenewalFailing,
    AlertKind::ClockSkew,
    AlertKind::EndpointProfileDrift,
    AlertKind::DiskFull,
    AlertKind::OverlayUnavailable,
    AlertKind::OverlayDrift,
];

impl std::fmt::Display for AlertKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Something an operator should look at. One open alert per kind and node, counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alert {
    pub id: AlertId,
    pub kind: AlertKind,
    pub node: Option<NodeId>,
    pub since: Timestamp,
    pub count: u64,
    pub detail: String,
    pub acknowledged: bool,
    /// When it was last raised, if more than once.
    #[serde(default)]
    pub again: Option<Timestamp>,
    /// When it was acknowledged; none if that was before the moment was kept.
    #[serde(default)]
    pub acknowledged_at: Option<Timestamp>,
    /// Whose operators it is for, where it is about no node and not about the whole domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
}

impl Alert {
    pub(super) fn cleared(&self) -> Event {
        Event::AlertCleared(AlertCleared { alert: self.id, kind: self.kind, node: self.node.clone() })
    }

    /// Since when nothing new was said.
    pub(super) fn quiet_since(&self) -> Timestamp {
        self.again.map_or(self.since, |again| again.max(self.since))
    }

    /// Since when an operator knows of it and nothing new was said.
    pub(super) fn at_rest_since(&self) -> Timestamp {
        self.acknowledged_at.map_or(self.quiet_since(), |at| at.max(self.quiet_since()))
    }
}

impl State {
    /// The open alert of a kind about a node, or about the domain.
    pub fn open_alert(&self, kind: AlertKind, node: Option<&NodeId>) -> Option<&Alert> {
        self.alerts.with_subject(kind, node, None)
    }

    /// What follows when a command shows something that wants attention about a node.
    pub(super) fn raising(
        &self,
        envelope: &Envelope,
        kind: AlertKind,
        node: &NodeId,
        (detail, count): (String, u64),
    ) -> Event {
        let open = self.open_alert(kind, Some(node));
        let alert = open.map_or(AlertId(envelope.id.0), |open| open.id);
        Event::AlertRaised(AlertRaised { alert, kind, node: Some(node.clone()), tenant: None, detail, count })
    }

    /// What follows when these kinds want no attention any more about a node.
    pub(super) fn clearing<'a>(
        &'a self,
        kinds: &'a [AlertKind],
        node: &'a NodeId,
    ) -> impl Iterator<Item = Event> + 'a {
        kinds.iter().filter_map(|kind| self.open_alert(*kind, Some(node))).map(Alert::cleared)
    }

    /// Why a node's certificate wants attention at a moment: its holder should have renewed it long ago. Says the
    /// same until the certificate has ended, so that each of the two is raised once.
    pub fn expiring(&self, node: &Node, at: Timestamp) -> Option<String> {
        let (serial, certificate) = self.current_certificate(node).filter(|_| !node.state.is_gone())?;
        let (due, end) = (certificate.renew_at, certificate.not_after);
        if self.is_denied(serial) {
            None
        } else if end <= at {
            Some(format!("certificate {serial} ended at {end} and was not renewed"))
        } else {
            let half = Span::from_millis(end.since(due).millis() / 2);
            let late = due.plus(half) <= at;
            late.then(|| format!("certificate {serial} ends at {end} and was to be renewed at {due}"))
        }
    }
}
