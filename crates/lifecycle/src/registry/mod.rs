//! What the control plane knows, and the only way to change it.
//!
//! A [`Command`] in its [`Envelope`] goes through [`apply`]: `authorize` (may this actor do this act at all?),
//! `decide` (does the state allow it? which events follow?), `fold` (the events change the state). Only `fold`
//! changes state, so there is no change without an event, and every event is a line of the audit trail.

mod alert;
mod apply;
mod audit;
mod authorize;
mod certificate;
mod command;
mod domain;
mod event;
mod event_names;
mod fold;
mod invariant;
mod issuer;
mod node;
mod operator;
pub mod overlay;
mod policy;
mod profile;
mod recovery;
mod rejection;
mod state;
mod tenant;
mod tidy;
mod token;

pub use crate::names::KeyKind;
pub use alert::{Alert, AlertKind, REPORTED};
pub use apply::{Applied, apply, would_apply};
pub use authorize::{Act, Role, Standing, TABLE, Tenants, Who, authorize, may_read, standing};
pub use certificate::renew::{Renewal, renewable};
pub use certificate::revocation_list::{Revocation, RevocationReason};
pub use certificate::verdict::{Denial, Verdict};
pub use certificate::{Certificate, CertificateStatus, Issued, Owner};
pub use command::{
    ActivateIssuer, Actor, AddOperator, Answer, AuditGap, Change, Checkpoint, Claim, Command, Confirm,
    ConfirmStatus, CreateOperatorKey, CreateTenant, CreateToken, Describe, Door, Enroll, Envelope, Found,
    FoundIssuer, Hardware, Import, Outcome, PrepareRoll, Prepared, RaiseAlert, Refusals, RefusedRecovery,
    Register, Renew, RenewOperator, Rewrap, ServerCertificate, SetPolicy, Sighting, Silence, Underlay,
    Wireguard,
};
pub use event::{Event, Field, NodeEnrolled, NodeImported, NodeRegistered, RecoveryIssued};
pub use event_names::AUDIT_EVENTS;
pub use invariant::{Violation, check as check_invariants};
pub use node::copied::STARTS as INSTANCES;
pub use node::copied::{are_two_hosts, is_earlier_start, remember_start};
pub use node::enroll::{Admission, NodeChoice, Refusal, admit, check_token};
pub use node::report::{Attempt, FreeSpace, Place, Report};
pub use node::scheduling::PRESSURE;
pub use node::{Account, Node, NodeState, Rotation};
pub use operator::renew::operator_renewable;
pub use operator::{Operator, OperatorKey};
pub use overlay::address::Addresses;
pub use overlay::{Overlay, Peer, Peers};
pub use policy::{CloneRule, Policy, PolicyError, Probe};
pub use profile::{Fraction, Profile};
pub use recovery::mint::is_due as recovery_is_due;
pub use recovery::recover::{Recoverable, check_recovery_token, recoverable};
pub use recovery::repair::{BundleRecord, check_bundle};
pub use recovery::{
    IssueRepairBundle, Keeping, Mint, Recover, Recovery, RecoveryKind, RecoveryState, RecoveryToken, Refused,
};
pub use rejection::Rejection;
pub use state::{AuditSigner, Domain, Issuer, IssuerKind, IssuerState, Recorded, Root, State, Tenant};
pub use token::{Token, TokenState};
