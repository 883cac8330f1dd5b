//! What happened: the only thing that changes state, and the lines of the audit trail.
//!
//! The list below names every kind. What a kind holds, its name, its audit fields and what it changes stand with the
//! act that it follows from, in the folder of its aggregate.

pub use super::alert::acknowledge::AlertAcknowledged;
pub use super::alert::clear::AlertCleared;
pub use super::alert::raise::AlertRaised;
pub use super::audit::forwarding_gap::ForwardingGap;
pub use super::audit::refusals::{CertificateRefused, RecoveryRefused};
pub use super::audit::rollback::RollbackAccepted;
pub use super::bootstrap::issue::BootstrapIssued;
pub use super::bootstrap::revoke::BootstrapRevoked;
pub use super::certificate::renew::CertificateRenewed;
pub use super::certificate::supersede::{CertificateSeen, CertificateSuperseded};
pub use super::domain::accept_clock::ClockAccepted;
pub use super::domain::repair_clock::ClockRepaired;
pub use super::hardware::register::HardwareRegistered;
pub use super::issuance::begin::IssuanceBegun;
pub use super::issuance::deliver::RevocationsDelivered;
pub use super::issuance::end::IssuanceEnded;
pub use super::issuance::lapse::IssuancesLapsed;
pub use super::issuer::activate::IssuerActivated;
pub use super::issuer::change_step_ca::StepCaChanged;
pub use super::issuer::publish::IssuerPublished;
pub use super::issuer::retire::IssuerRetired;
pub use super::issuer::revoke::IssuerRevoked;
pub use super::node::confirm::NodeConfirmed;
pub use super::node::contact::NodeActive;
pub use super::node::decommission::NodeDecommissioned;
pub use super::node::describe::NodeDescribed;
pub use super::node::drain::{NodeDraining, NodeUndrained};
pub use super::node::enrolled::NodeEnrolled;
pub use super::node::import::NodeImported;
pub use super::node::mark_inactive::NodeInactive;
pub use super::node::quarantine::{NodeQuarantined, NodeReleased};
pub use super::node::register::NodeRegistered;
pub use super::node::reinstate::NodeReinstated;
pub use super::node::revoke::NodeRevoked;
pub use super::node::rotate::{RotationExpired, RotationOrdered};
pub use super::operator::add::OperatorAdded;
pub use super::operator::key::OperatorKeyRevoked;
pub use super::operator::remove::OperatorRemoved;
pub use super::operator::renew::{OperatorCertificateReplaced, OperatorRenewed};
pub use super::overlay::endpoint::EndpointChanged;
pub use super::overlay::join::OverlayJoined;
pub use super::overlay::rekey::{RekeyExpired, RekeyOrdered, Rekeyed};
pub use super::policy::set::PolicyChanged;
pub use super::recovery::mint::{RecoveryTokenKept, RecoveryTokenRotated};
pub use super::recovery::recover::{RecoveryIssued, RecoveryRequested, RecoveryResolved};
pub use super::recovery::repair::RepairBundleIssued;
pub use super::recovery::revoke::RecoveryTokensRevoked;
pub use super::replica::announce::ReplicaAnnounced;
pub use super::replica::join::ReplicaJoined;
pub use super::replica::remove::ReplicaRemoved;
pub use super::roll::abandon::RollAbandoned;
pub use super::roll::answer::IssuerPrepared;
pub use super::root::activated::RootActivated;
pub use super::root::retire::RootRetired;
pub use super::session::close::SessionClosed;
pub use super::session::open::SessionOpened;
pub use super::session::report::SessionsReported;
pub use super::tidy::Tidied;
pub use super::token::burn::TokenBurned;
pub use super::token::expire::TokenExpired;
pub use super::token::revoke::TokenRevoked;
pub use super::vcluster::assign::{NodeAssigned, NodeMoved, NodeUnassigned};
pub use super::vcluster::configure::{Configured, NodeConfigured};
pub use super::vcluster::remove::VclusterRemoved;

use super::{
    AuditGap, Checkpoint, Envelope, Forwarded, ImportRootList, InitializeDomain, NewIssuer, NewRoot,
    OperatorKey, PendingRoll, PrepareRoll, Refusals, ReplicaToken, Rewrap, ServerCertificate, Sighting,
    State, Tenant, Token, Vcluster,
};
use crate::names::NodeId;
use serde::Serialize;
use std::collections::BTreeSet;

/// What an audit line says beyond who, when and from where, in order.
pub type AuditFields = Vec<(&'static str, AuditField)>;

/// What every kind of event must say of itself. Nothing here has a default that a new kind could forget, except that
/// it is audited.
pub(super) trait Happened {
    /// Its name in the audit trail.
    const NAME: &'static str;
    /// Whether it is a line of the trail. Observations of liveness are not, nor is how far the trail was forwarded.
    const AUDITED: bool = true;

    /// Public data only: no secret and no hash of one.
    fn fields(&self) -> AuditFields;

    /// The node that may have become a peer of its overlay by this, or ceased to be one.
    fn peer(&self) -> Option<&NodeId>;

    fn fold(&self, state: &mut State, envelope: &Envelope);
}

impl<T: Happened> Happened for Box<T> {
    const NAME: &'static str = T::NAME;
    const AUDITED: bool = T::AUDITED;

    fn fields(&self) -> AuditFields {
        self.as_ref().fields()
    }

    fn peer(&self) -> Option<&NodeId> {
        self.as_ref().peer()
    }

    fn fold(&self, state: &mut State, envelope: &Envelope) {
        self.as_ref().fold(state, envelope);
    }
}

/// `Variant(Type)` makes a kind of event of a type that says what it must.
macro_rules! events {
    ($($variant:ident($kind:ty))*) => {
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Event {
            $($variant($kind)),*
        }

        /// The kinds, by which others speak of events that they do not hold.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum EventKind {
            $($variant),*
        }

        impl EventKind {
            pub const ALL: &[EventKind] = &[$(EventKind::$variant),*];

            /// Its name in the audit trail.
            pub fn name(self) -> &'static str {
                match self {
                    $(EventKind::$variant => <$kind>::NAME),*
                }
            }

            /// Whether it is a line of the audit trail.
            pub fn is_audited(self) -> bool {
                match self {
                    $(EventKind::$variant => <$kind>::AUDITED),*
                }
            }
        }

        impl Event {
            pub fn kind(&self) -> EventKind {
                match self {
                    $(Event::$variant(_) => EventKind::$variant),*
                }
            }

            /// Its name in the audit trail.
            pub fn name(&self) -> &'static str {
                self.kind().name()
            }

            /// Whether it is a line of the audit trail.
            pub fn is_audited(&self) -> bool {
                self.kind().is_audited()
            }

            /// What its audit line says.
            pub fn fields(&self) -> AuditFields {
                match self {
                    $(Event::$variant(event) => event.fields()),*
                }
            }

            pub(super) fn peer(&self) -> Option<&NodeId> {
                match self {
                    $(Event::$variant(event) => event.peer()),*
                }
            }

            pub(super) fn fold(&self, state: &mut State, envelope: &Envelope) {
                match self {
                    $(Event::$variant(event) => event.fold(state, envelope)),*
                }
            }
        }

        /// Every name that a line of the audit trail can have.
        pub fn audit_event_names() -> BTreeSet<&'static str> {
            EventKind::ALL.iter().filter(|kind| kind.is_audited()).map(|kind| kind.name()).collect()
        }
    };
}

events! {
    DomainInitialized(Box<InitializeDomain>)
    TokenCreated(Token)
    TokenRevoked(TokenRevoked)
    TokenExpired(TokenExpired)
    TokenBurned(TokenBurned)
    NodeRegistered(Box<NodeRegistered>)
    HardwareRegistered(Box<HardwareRegistered>)
    NodeEnrolled(Box<NodeEnrolled>)
    NodeImported(Box<NodeImported>)
    NodeConfirmed(NodeConfirmed)
    NodeActive(NodeActive)
    NodeInactive(NodeInactive)
    NodeSeen(Sighting)
    NodeDescribed(NodeDescribed)
    NodeDraining(NodeDraining)
    NodeUndrained(NodeUndrained)
    NodeQuarantined(NodeQuarantined)
    NodeReleased(NodeReleased)
    NodeDecommissioned(NodeDecommissioned)
    NodeRevoked(NodeRevoked)
    NodeReinstated(NodeReinstated)
    NodeAssigned(NodeAssigned)
    NodeUnassigned(NodeUnassigned)
    NodeMoved(NodeMoved)
    NodeConfigured(NodeConfigured)
    VclusterCreated(Vcluster)
    VclusterRemoved(VclusterRemoved)
    Configured(Configured)
    RotationOrdered(RotationOrdered)
    RotationExpired(RotationExpired)
    CertificateSeen(CertificateSeen)
    CertificateRenewed(CertificateRenewed)
    CertificateSuperseded(CertificateSuperseded)
    ServerCertificateIssued(ServerCertificate)
    RecoveryTokenRotated(RecoveryTokenRotated)
    RecoveryTokenKept(RecoveryTokenKept)
    RecoveryTokensRevoked(RecoveryTokensRevoked)
    RecoveryRequested(RecoveryRequested)
    RecoveryIssued(Box<RecoveryIssued>)
    RecoveryResolved(RecoveryResolved)
    RepairBundleIssued(RepairBundleIssued)
    RollPrepared(PrepareRoll)
    RollCertified(Box<NewIssuer>)
    IssuerActivated(IssuerActivated)
    IssuerRetired(IssuerRetired)
    IssuerRevoked(IssuerRevoked)
    Rewrapped(Rewrap)
    RollBegun(PendingRoll)
    IssuerPrepared(Box<IssuerPrepared>)
    RollAbandoned(RollAbandoned)
    RootPrepared(NewRoot)
    RootActivated(RootActivated)
    RootRetired(RootRetired)
    RootListImported(Box<ImportRootList>)
    IssuerPublished(Box<IssuerPublished>)
    AlertRaised(AlertRaised)
    AlertCleared(AlertCleared)
    AlertAcknowledged(AlertAcknowledged)
    TenantCreated(Tenant)
    OperatorAdded(OperatorAdded)
    OperatorRemoved(OperatorRemoved)
    OperatorRenewed(OperatorRenewed)
    OperatorCertificateReplaced(OperatorCertificateReplaced)
    OperatorKeyCreated(OperatorKey)
    OperatorKeyRevoked(OperatorKeyRevoked)
    PolicyChanged(PolicyChanged)
    EnrollmentRefused(Refusals)
    RecoveryRefused(RecoveryRefused)
    CertificateRefused(CertificateRefused)
    CheckpointRecorded(Checkpoint)
    AuditGapFound(AuditGap)
    AuditForwarded(Forwarded)
    ForwardingGapFound(ForwardingGap)
    RollbackAccepted(RollbackAccepted)
    ClockAccepted(ClockAccepted)
    ClockRepaired(ClockRepaired)
    Tidied(Tidied)
    SessionOpened(SessionOpened)
    SessionClosed(SessionClosed)
    SessionsReported(SessionsReported)
    ReplicaTokenCreated(ReplicaToken)
    ReplicaJoined(Box<ReplicaJoined>)
    ReplicaAnnounced(Box<ReplicaAnnounced>)
    ReplicaRemoved(ReplicaRemoved)
    OverlayJoined(OverlayJoined)
    Rekeyed(Rekeyed)
    RekeyOrdered(RekeyOrdered)
    RekeyExpired(RekeyExpired)
    EndpointChanged(EndpointChanged)
    IssuanceBegun(Box<IssuanceBegun>)
    IssuanceEnded(Box<IssuanceEnded>)
    IssuancesLapsed(IssuancesLapsed)
    RevocationsDelivered(RevocationsDelivered)
    BootstrapIssued(Box<BootstrapIssued>)
    BootstrapRevoked(BootstrapRevoked)
    StepCaChanged(Box<StepCaChanged>)
}

/// A value in an audit line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum AuditField {
    Text(String),
    Number(u64),
    Flag(bool),
    Texts(Vec<String>),
    Null,
}

impl AuditField {
    pub(super) fn text(value: impl ToString) -> Self {
        AuditField::Text(value.to_string())
    }

    pub(super) fn maybe(value: Option<impl ToString>) -> Self {
        value.map_or(AuditField::Null, |value| AuditField::text(value))
    }

    pub(super) fn texts<T: ToString>(values: &[T]) -> Self {
        AuditField::Texts(values.iter().map(ToString::to_string).collect())
    }
}

/// A node, under the name of the plfm document and under ours, and what else a line says of it.
pub(super) fn host<const N: usize>(node: &NodeId, more: [(&'static str, AuditField); N]) -> AuditFields {
    let named = [("host_id", AuditField::text(node)), ("node_id", AuditField::text(node))];
    named.into_iter().chain(more).collect()
}
