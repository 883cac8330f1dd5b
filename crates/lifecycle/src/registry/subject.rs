//! What each command is about: one row per command, and no wildcard, so that a new command does not compile before
//! somebody has said whom it concerns. Its act, the tenant it touches and the words of a refusal follow from the row.

use super::{Act, Claim, Command, ConfigTarget, Rejection, State};
use crate::names::{AlertId, NodeId, OperatorName, ReplicaId, TenantId, TokenId, VclusterId};

/// What a command is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject<'a> {
    /// Something of the whole domain, which no tenant owns.
    Domain,
    /// Something that is to be made in a tenant.
    Tenant(&'a TenantId),
    Token(TokenId),
    Node(&'a NodeId),
    Alert(AlertId),
    Vcluster(&'a VclusterId),
    /// A node that comes into a vCluster, or into none.
    Assignment {
        node: &'a NodeId,
        to: Option<&'a VclusterId>,
    },
    /// The node that gives the command itself.
    OwnNode(&'a NodeId),
    /// The operator that gives the command itself.
    OwnOperator(&'a OperatorName),
    /// The replica that gives the command itself.
    OwnReplica(ReplicaId),
    /// Whatever the credential in the command is for.
    Credential,
}

/// Where the subject of a command lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SubjectScope<'a> {
    Tenant(&'a TenantId),
    /// In no tenant: for those of all tenants.
    Domain,
    /// It does not exist: the act says so, to everybody in the same words.
    Nowhere,
    /// Not a matter of tenants: no operator's role gives a right to it.
    Own,
}

impl Command {
    pub fn act(&self) -> Act {
        self.row().0
    }

    pub fn subject(&self) -> Subject<'_> {
        self.row().1
    }

    /// The table.
    fn row(&self) -> (Act, Subject<'_>) {
        match self {
            Command::InitializeDomain(_) => (Act::InitializeDomain, Subject::Domain),
            Command::CreateToken(create) => (Act::CreateToken, Subject::Tenant(&create.tenant)),
            Command::RevokeToken { token } => (Act::RevokeToken, Subject::Token(*token)),
            Command::Enroll(_) => (Act::Enroll, Subject::Credential),
            Command::Recover(_) => (Act::Recover, Subject::Credential),
            Command::Register(register) => match &register.claim {
                Claim::Tenant(tenant) => (Act::RegisterNode, Subject::Tenant(tenant)),
                Claim::Token(_) => (Act::Enroll, Subject::Credential),
            },
            Command::RegisterHardware(register) => {
                let act = if register.alert.is_some() {
                    Act::RegisterHardware
                } else {
                    Act::RegisterHardwareAsBefore
                };
                (act, Subject::Tenant(&register.tenant))
            }
            Command::CreateVcluster(create) => (Act::ManageVclusters, Subject::Tenant(&create.tenant)),
            Command::RemoveVcluster { vcluster } => (Act::ManageVclusters, Subject::Vcluster(vcluster)),
            Command::SetConfig(set) => match &set.target {
                ConfigTarget::Defaults => (Act::Configure, Subject::Domain),
                ConfigTarget::Vcluster(vcluster) => (Act::Configure, Subject::Vcluster(vcluster)),
                ConfigTarget::Node(node) => (Act::Configure, Subject::Node(node)),
            },
            Command::Assign { node, vcluster } => {
                (Act::AssignNode, Subject::Assignment { node, to: Some(vcluster) })
            }
            Command::Unassign { node } => (Act::AssignNode, Subject::Assignment { node, to: None }),
            Command::Move { node, vcluster } => {
                (Act::AssignNode, Subject::Assignment { node, to: Some(vcluster) })
            }
            Command::Confirm(confirm) => (Act::Confirm, Subject::OwnNode(&confirm.node)),
            Command::Contact { node } => (Act::Confirm, Subject::OwnNode(node)),
            Command::MintRecovery { node, .. } => (Act::Confirm, Subject::OwnNode(node)),
            Command::ReportSessions(report) => (Act::ReportSessions, Subject::OwnNode(&report.node)),
            Command::ClaimOverlay(claim) => (Act::ClaimOverlay, Subject::OwnNode(&claim.node)),
            Command::OrderRekey { node, .. } => (Act::RotateNode, Subject::Node(node)),
            Command::Renew(renew) => (Act::Renew, Subject::OwnNode(&renew.node)),
            Command::Describe(describe) => (Act::DescribeNode, Subject::Node(&describe.node)),
            Command::Drain { node, .. } => (Act::DrainNode, Subject::Node(node)),
            Command::Undrain { node } => (Act::DrainNode, Subject::Node(node)),
            Command::Quarantine { node, .. } => (Act::QuarantineNode, Subject::Node(node)),
            Command::Release { node } => (Act::QuarantineNode, Subject::Node(node)),
            Command::Rotate { node } => (Act::RotateNode, Subject::Node(node)),
            Command::Revoke { node, .. } => (Act::RevokeNode, Subject::Node(node)),
            Command::Decommission { node, .. } => (Act::DecommissionNode, Subject::Node(node)),
            Command::Reinstate { node, .. } => (Act::ReinstateNode, Subject::Node(node)),
            Command::IssueRepairBundle(issue) => (Act::RepairNode, Subject::Node(&issue.node)),
            Command::RevokeRecoveryTokens { node } => (Act::RevokeRecoveryTokens, Subject::Node(node)),
            Command::AcknowledgeAlert { alert, .. } => (Act::AcknowledgeAlert, Subject::Alert(*alert)),
            Command::Import(_) => (Act::ImportNode, Subject::Domain),
            Command::CreateTenant(_) => (Act::CreateTenant, Subject::Domain),
            Command::AddOperator(_) => (Act::AddOperator, Subject::Domain),
            Command::RemoveOperator { .. } => (Act::RemoveOperator, Subject::Domain),
            Command::RenewOperator(renew) => (Act::RenewOperator, Subject::OwnOperator(&renew.name)),
            Command::UseRenewedCertificate { name } => (Act::RenewOperator, Subject::OwnOperator(name)),
            Command::CreateOperatorKey(_) => (Act::CreateOperatorKey, Subject::Domain),
            Command::RevokeOperatorKey { .. } => (Act::RevokeOperatorKey, Subject::Domain),
            Command::SetPolicy(_) => (Act::SetPolicy, Subject::Domain),
            Command::PrepareRoll(_) => (Act::ManageCa, Subject::Domain),
            Command::CertifyRoll(_) => (Act::ManageCa, Subject::Domain),
            Command::ActivateIssuer(_) => (Act::ManageCa, Subject::Domain),
            Command::RetireIssuer { .. } => (Act::ManageCa, Subject::Domain),
            Command::RevokeIssuer { .. } => (Act::ManageCa, Subject::Domain),
            Command::Rewrap(_) => (Act::ManageCa, Subject::Domain),
            Command::ChangeStepCa(_) => (Act::ManageCa, Subject::Domain),
            Command::BeginRoll(_) => (Act::ManageCa, Subject::Domain),
            Command::AnswerRoll(_) => (Act::ManageCa, Subject::Domain),
            Command::AbandonRoll => (Act::ManageCa, Subject::Domain),
            Command::RetireRoot { .. } => (Act::ManageCa, Subject::Domain),
            Command::ImportRootList(_) => (Act::ManageCa, Subject::Domain),
            Command::IssueBootstrap(_) => (Act::ManageCa, Subject::Domain),
            Command::RevokeBootstrap { .. } => (Act::ManageCa, Subject::Domain),
            Command::PublishIssuer(publish) => (Act::PublishIssuer, Subject::OwnReplica(publish.replica)),
            Command::BeginIssuance(begin) => (Act::AskIssuer, Subject::OwnReplica(begin.replica)),
            Command::EndIssuance(end) => (Act::AskIssuer, Subject::OwnReplica(end.replica)),
            Command::RecordDeliveredRevocations { .. } => (Act::KeepHouse, Subject::Domain),
            Command::CreateReplicaToken { .. } => (Act::ManageCluster, Subject::Domain),
            Command::JoinReplica(_) => (Act::JoinCluster, Subject::Credential),
            Command::AnnounceReplica(announce) => {
                (Act::AnnounceReplica, Subject::OwnReplica(announce.replica))
            }
            Command::RemoveReplica { .. } => (Act::ManageCluster, Subject::Domain),
            Command::AcceptClock(_) => (Act::AcceptClock, Subject::Domain),
            Command::CorroborateClock(_) => (Act::CorroborateClock, Subject::Domain),
            Command::RepairClock(_) => (Act::RepairClock, Subject::Domain),
            Command::RecordServerCertificate(_) => (Act::KeepHouse, Subject::Domain),
            Command::RecordRefusals(_) => (Act::KeepHouse, Subject::Domain),
            Command::RecordCheckpoint(_) => (Act::KeepHouse, Subject::Domain),
            Command::RecordAuditGap(_) => (Act::KeepHouse, Subject::Domain),
            Command::RecordForwarded(_) => (Act::KeepHouse, Subject::Domain),
            Command::SkipForwarding(_) => (Act::KeepHouse, Subject::Domain),
            Command::AcceptRollback(_) => (Act::KeepHouse, Subject::Domain),
            Command::Observe(_) => (Act::KeepHouse, Subject::Domain),
            Command::MarkInactive(_) => (Act::KeepHouse, Subject::Domain),
            Command::RecordDeniedCertificate(_) => (Act::KeepHouse, Subject::Domain),
            Command::RaiseAlert(_) => (Act::KeepHouse, Subject::Domain),
            Command::ClearAlert { alert } => (Act::KeepHouse, Subject::Alert(*alert)),
            Command::EndRepair { node } => (Act::KeepHouse, Subject::Node(node)),
            Command::Tidy | Command::Expire => (Act::KeepHouse, Subject::Domain),
        }
    }
}

impl<'a> Subject<'a> {
    pub(super) fn scope(self, state: &'a State) -> SubjectScope<'a> {
        let of_node = |id: &NodeId| {
            state.nodes.get(id).map_or(SubjectScope::Nowhere, |node| SubjectScope::Tenant(&node.tenant))
        };
        match self {
            Subject::Domain => SubjectScope::Domain,
            Subject::Tenant(tenant) => SubjectScope::Tenant(tenant),
            Subject::Token(id) => state
                .tokens
                .get(&id)
                .map_or(SubjectScope::Nowhere, |token| SubjectScope::Tenant(&token.tenant)),
            Subject::Node(id) => of_node(id),
            // The vCluster must be of the node's own tenant: the act says so.
            Subject::Assignment { node, .. } => of_node(node),
            Subject::Vcluster(id) => state
                .vclusters
                .get(id)
                .map_or(SubjectScope::Nowhere, |vcluster| SubjectScope::Tenant(&vcluster.tenant)),
            Subject::Alert(id) => match state.alerts.get(&id).map(|alert| (&alert.node, &alert.tenant)) {
                None => SubjectScope::Nowhere,
                Some((Some(node), _)) => of_node(node),
                Some((None, Some(tenant))) => SubjectScope::Tenant(tenant),
                Some((None, None)) => SubjectScope::Domain,
            },
            Subject::OwnNode(_) | Subject::OwnOperator(_) | Subject::OwnReplica(_) | Subject::Credential => {
                SubjectScope::Own
            }
        }
    }

    /// What lies in another tenant does not exist for an operator: refused in the words of the act itself. None where
    /// nobody is told that something does not exist.
    pub(super) fn not_found(self) -> Option<Rejection> {
        match self {
            Subject::Tenant(tenant) => Some(Rejection::TenantNotFound { tenant: tenant.clone() }),
            Subject::Token(token) => Some(Rejection::TokenNotFound { token }),
            Subject::Vcluster(vcluster) => Some(Rejection::VclusterNotFound { vcluster: vcluster.clone() }),
            Subject::Node(node) | Subject::Assignment { node, .. } => {
                Some(Rejection::NodeNotFound { node: node.clone() })
            }
            Subject::Alert(alert) => Some(Rejection::AlertNotFound { alert }),
            Subject::Domain
            | Subject::OwnNode(_)
            | Subject::OwnOperator(_)
            | Subject::OwnReplica(_)
            | Subject::Credential => None,
        }
    }
}
