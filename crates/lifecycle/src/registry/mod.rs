//! What the control plane knows, and the only way to change it.
//!
//! A [`Command`] in its [`Envelope`] goes through [`apply`]: `authorize` (may this actor do this act at all?),
//! `decide` (does the state allow it? which events follow?), `fold` (the events change the state). Only `fold`
//! changes state, so there is no change without an event, and every event is a line of the audit trail, except observations of
//! liveness and how far the trail itself has been forwarded.

mod alert;
mod apply;
mod audit;
mod authorize;
mod bootstrap;
mod certificate;
mod command;
mod confirmation;
mod domain;
mod door;
pub mod event;
mod hardware;
mod invariant;
mod issuance;
mod issuer;
mod node;
mod operator;
pub mod overlay;
mod policy;
mod recovery;
mod rejection;
mod replica;
mod roll;
mod root;
mod session;
mod state;
mod subject;
mod tenant;
mod tidy;
mod timing;
mod token;
mod vcluster;

pub use crate::names::KeyKind;
pub use alert::raise::RaiseAlert;
pub use alert::{Alert, AlertIndex, AlertKind, REPORTED};
pub use apply::{Applied, apply, would_apply};
pub use audit::checkpoint::Checkpoint;
pub use audit::forwarded::Forwarded;
pub use audit::forwarding_gap::{ForwardingGapCause, SkipForwarding};
pub use audit::gap::AuditGap;
pub use audit::refusals::{Refusals, RefusedRecovery, RefusedRenewal};
pub use audit::rollback::AcceptRollback;
pub use audit::{AuditSigner, AuditSink};
pub use authorize::{
    Act, NodeReach, Permissions, Role, Tenants, Vclusters, Who, authorize, by_svid, may_reach, may_read,
    permissions,
};
pub use bootstrap::Bootstrap;
pub use bootstrap::issue::{BOOTSTRAP_LONGEST, BOOTSTRAP_SHORTEST, IssueBootstrap};
pub use bootstrap::read::{BootConfig, boot_config};
pub use certificate::denied::DeniedSighting;
pub use certificate::presented::Presented;
pub use certificate::renew::{Renew, Renewal, has_place_by_svid, renewable, svid_renewable};
pub use certificate::revocation_list::{Revocation, RevocationReason};
pub use certificate::server::ServerCertificate;
pub use certificate::verdict::{Denial, Verdict};
pub use certificate::{Certificate, CertificateStatus, Issued, Owner};
pub use command::{Actor, Answer, Command, Envelope, Outcome};
pub use confirmation::Confirmation;
pub use domain::Domain;
pub use domain::accept_clock::{AcceptClock, EndsByThen};
pub use domain::corroborate_clock::CorroborateClock;
pub use domain::initialize::InitializeDomain;
pub use domain::repair_clock::RepairClock;
pub use door::Door;
pub use event::{AuditField, Event, audit_event_names};
pub use hardware::register::RegisterHardware;
pub use hardware::{HardwareFault, HardwareIdentifier, HardwareIdentity, HardwareText, is_placeholder};
pub use invariant::{Violation, check as check_invariants};
pub use issuance::begin::BeginIssuance;
pub use issuance::end::{EndIssuance, IntentEnd};
pub use issuance::{EXTERNAL_SKEW, ExternalIssuance, INTENT_LAPSE, Intent, UndeliveredRevocation};
pub use issuer::activate::ActivateIssuer;
pub use issuer::prepare::PrepareRoll;
pub use issuer::publish::{EPHEMERAL_LEAF, EPHEMERAL_LIFE, PublishIssuer};
pub use issuer::rewrap::Rewrap;
pub use issuer::step_ca::{INTERMEDIATES, NewStepCa, StepCa, StepCaAccess, StepCaIntermediate};
pub use issuer::{Issuer, IssuerKind, IssuerState, NewIssuer, NodeSigner};
pub use node::confirm::{Confirm, ConfirmStatus};
pub use node::contact::contact_changes;
pub use node::copied::{
    OVERLAP, are_two_hosts, is_earlier_start, remember_earlier_start, remember_start, remembered_starts,
};
pub use node::credential::{Attestor, Credential};
pub use node::describe::{Change, Describe, Relabel};
pub use node::enroll::{
    Admission, ClaimConflict, Enroll, NodeChoice, Prepared, Refusal, RefusalEffect, admit, check_hardware,
    check_token,
};
pub use node::import::Import;
pub use node::mark_inactive::Silence;
pub use node::observe::Sighting;
pub use node::register::{Claim, Register};
pub use node::report::{Attempt, FreeSpace, OverlayReason, OverlayReport, OverlayState, Place, Report};
pub use node::scheduling::PRESSURE;
pub use node::{Account, Hardware, Node, NodeState, Rotation};
pub use operator::add::AddOperator;
pub use operator::key::CreateOperatorKey;
pub use operator::renew::{RenewOperator, operator_renewable};
pub use operator::{Operator, OperatorKey};
pub use overlay::address::Addresses;
pub use overlay::claim::ClaimOverlay;
pub use overlay::{Families, Overlay, OverlayGroup, Peer, Peers, Underlay, Wireguard};
pub use policy::set::SetPolicy;
pub use policy::{
    BootstrapRead, CertificateProfile, CloneRule, Fraction, OverlayScope, Policy, PolicyError,
    PolicyKeyReference, UnderlayProbe,
};
pub use recovery::mint::{Keeping, Mint, is_due as recovery_is_due};
pub use recovery::recover::{Recover, Recoverable, check_recovery_token, needs_only_addresses, recoverable};
pub use recovery::repair::{BundleClaim, BundleEndpoint, BundleRecord, IssueRepairBundle, check_bundle};
pub use recovery::{Recovery, RecoveryKind, RecoveryState, RecoveryToken, Refused};
pub use rejection::Rejection;
pub use replica::announce::AnnounceReplica;
pub use replica::join::{JoinReplica, check_join, check_replica_token};
pub use replica::membership::{MembershipChange, next_change};
pub use replica::{MOST_REPLICAS, Replica, ReplicaState, ReplicaToken};
pub use roll::answer::{AnswerRoll, NewRoot};
pub use roll::{IssuerRequest, PendingRoll};
pub use root::import_list::ImportRootList;
pub use root::{Root, RootList, RootState};
pub use session::close::CloseReason;
pub use session::report::{ClosedSession, ReportSessions, SessionChanges, SessionReport};
pub use session::{MOST_SESSIONS, NodeSessions, Session, SessionKind, SessionMark};
pub use state::{Recorded, State};
pub use subject::Subject;
pub use tenant::Tenant;
pub use tenant::create::CreateTenant;
pub use token::create::{CreateToken, NodeConnection};
pub use token::{Token, TokenState};
pub use vcluster::configure::{ConfigTarget, EMPTY_DOCUMENT, MAINTENANCE_DEFAULTS, SetConfig};
pub use vcluster::create::CreateVcluster;
pub use vcluster::documents::{ConfigChange, ConfigDocument, DOCUMENT_MAX, Documents};
pub use vcluster::{Assignment, ConfigNews, NodeConfig, Vcluster};
