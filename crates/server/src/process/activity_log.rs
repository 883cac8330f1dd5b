//! The log's line about what was done: one for each act of an operator, each enrollment and each alert. Ids and names
//! only; what a command carries beyond them may be secret or long. An unauthenticated caller causes none without a token.

use lifecycle::registry::event::EventKind;
use lifecycle::registry::{Claim, Command, ConfigTarget, Envelope, NodeState, State};

/// What a line says of a command that was granted: the audit trail's word for it, and what it is about.
pub struct Activity {
    event: &'static str,
    about: String,
    actor: String,
    request_id: String,
}

impl Activity {
    /// Nothing for what hosts do all the time, and for housekeeping.
    pub fn of(envelope: &Envelope, state: &State) -> Option<Self> {
        let (event, about) = line(&envelope.command, state)?;
        let request_id = envelope.request_id.as_ref().map(ToString::to_string);
        Some(Self {
            event: event.name(),
            about,
            actor: envelope.actor.to_string(),
            request_id: request_id.unwrap_or_else(|| envelope.id.to_string()),
        })
    }

    pub fn write(&self) {
        let Self { event, about, actor, request_id } = self;
        tracing::info!(event, about, actor, request_id, "done");
    }
}

/// The kind names the event: the trail's own table has its word, so the two cannot differ.
fn line(command: &Command, state: &State) -> Option<(EventKind, String)> {
    Some(match command {
        Command::CreateToken(create) => (EventKind::TokenCreated, format!("tenant {}", create.tenant)),
        Command::RevokeToken { token } => (EventKind::TokenRevoked, format!("token {token}")),
        Command::Enroll(enroll) => {
            let id = &enroll.prepared.as_ref()?.node;
            let active = state.nodes.get(id).is_some_and(|node| node.state == NodeState::Active);
            let replaced = if active { ", which was active: its host is replaced" } else { "" };
            (EventKind::NodeEnrolled, format!("node {id}{replaced}"))
        }
        Command::Register(register) => match &register.claim {
            Claim::Tenant(tenant) => {
                (EventKind::NodeRegistered, format!("node {} of tenant {tenant}", register.node))
            }
            // Its pin, which is not known here, may have decided the id.
            Claim::Token(_) => (EventKind::NodeRegistered, "the node of a token".to_owned()),
        },
        Command::RegisterHardware(register) => (EventKind::HardwareRegistered, about(&register.node)),
        Command::CreateVcluster(create) => {
            (EventKind::VclusterCreated, format!("vCluster {}", create.vcluster))
        }
        Command::RemoveVcluster { vcluster } => (EventKind::VclusterRemoved, format!("vCluster {vcluster}")),
        Command::SetConfig(set) => match &set.target {
            ConfigTarget::Defaults => (EventKind::Configured, "the domain's defaults".to_owned()),
            ConfigTarget::Vcluster(vcluster) => (EventKind::Configured, format!("vCluster {vcluster}")),
            ConfigTarget::Node(node) => (EventKind::NodeConfigured, about(node)),
        },
        Command::Assign { node, .. } => (EventKind::NodeAssigned, about(node)),
        Command::Unassign { node } => (EventKind::NodeUnassigned, about(node)),
        Command::Move { node, .. } => (EventKind::NodeMoved, about(node)),
        Command::Describe(describe) => (EventKind::NodeDescribed, about(&describe.node)),
        Command::Drain { node, .. } => (EventKind::NodeDraining, about(node)),
        Command::Undrain { node } => (EventKind::NodeUndrained, about(node)),
        Command::Quarantine { node, .. } => (EventKind::NodeQuarantined, about(node)),
        Command::Release { node } if is_quarantined(state, node) => (EventKind::NodeReleased, about(node)),
        // All that a release ends there is the suspicion of a copy.
        Command::Release { node } => (EventKind::AlertCleared, about(node)),
        Command::Decommission { node, .. } => (EventKind::NodeDecommissioned, about(node)),
        Command::Revoke { node, .. } => (EventKind::NodeRevoked, about(node)),
        Command::Reinstate { node, .. } => (EventKind::NodeReinstated, about(node)),
        Command::Rotate { node } => (EventKind::RotationOrdered, about(node)),
        Command::OrderRekey { node, .. } => (EventKind::RekeyOrdered, about(node)),
        Command::Import(import) => (EventKind::NodeImported, about(&import.node)),
        Command::Recover(recover) => (EventKind::RecoveryIssued, about(&recover.prepared.as_ref()?.node)),
        Command::IssueRepairBundle(issue) => (EventKind::RepairBundleIssued, about(&issue.node)),
        Command::RevokeRecoveryTokens { node } => (EventKind::RecoveryTokensRevoked, about(node)),
        Command::EndRepair { node } => (EventKind::NodeReleased, about(node)),
        Command::CreateTenant(create) => (EventKind::TenantCreated, format!("tenant {}", create.tenant)),
        Command::AddOperator(add) => (EventKind::OperatorAdded, format!("operator {}", add.name)),
        Command::RenewOperator(renew) => (EventKind::OperatorRenewed, format!("operator {}", renew.name)),
        Command::UseRenewedCertificate { name } => {
            (EventKind::OperatorCertificateReplaced, format!("operator {name}"))
        }
        Command::RemoveOperator { name, .. } => (EventKind::OperatorRemoved, format!("operator {name}")),
        Command::CreateOperatorKey(create) => {
            (EventKind::OperatorKeyCreated, format!("operator {}", create.name))
        }
        Command::RevokeOperatorKey { key } => (EventKind::OperatorKeyRevoked, format!("key {key}")),
        Command::IssueBootstrap(issue) => {
            (EventKind::BootstrapIssued, format!("bootstrap identity {}", issue.name))
        }
        Command::RevokeBootstrap { name } => {
            (EventKind::BootstrapRevoked, format!("bootstrap identity {name}"))
        }
        Command::SetPolicy(set) => (EventKind::PolicyChanged, format!("key {}", set.key)),
        Command::PrepareRoll(_) => (EventKind::RollPrepared, "a request".to_owned()),
        Command::CertifyRoll(issuer) => (EventKind::RollCertified, format!("issuer {}", issuer.id)),
        Command::ActivateIssuer(activate) => {
            (EventKind::IssuerActivated, format!("issuer {}", activate.issuer))
        }
        Command::RetireIssuer { issuer, also } => {
            let others: String = also.iter().map(|other| format!(", {other}")).collect();
            (EventKind::IssuerRetired, format!("issuer {issuer}{others}"))
        }
        Command::RevokeIssuer { issuer, .. } => (EventKind::IssuerRevoked, format!("issuer {issuer}")),
        Command::PublishIssuer(publish) => {
            (EventKind::IssuerPublished, format!("issuer {} of replica {}", publish.issuer, publish.replica))
        }
        Command::BeginRoll(begin) => {
            let what = if begin.new_root { "issuers and a new root" } else { "issuers" };
            (EventKind::RollBegun, what.to_owned())
        }
        Command::AnswerRoll(answer) => {
            let ids: Vec<&str> = answer.issuers.iter().map(|issuer| issuer.id.as_str()).collect();
            (EventKind::IssuerPrepared, format!("issuers {}", ids.join(", ")))
        }
        Command::AbandonRoll => (EventKind::RollAbandoned, "the roll".to_owned()),
        Command::RetireRoot { root, .. } => (EventKind::RootRetired, format!("root {}", root.labelled())),
        Command::ImportRootList(import) => {
            (EventKind::RootListImported, format!("list {}", import.list.number))
        }
        Command::ChangeStepCa(new) => {
            (EventKind::StepCaChanged, format!("issuer {} at {}", new.issuer.id, new.access.url))
        }
        Command::Rewrap(_) => (EventKind::Rewrapped, "every sealed key".to_owned()),
        Command::AcceptClock(accept) => {
            (EventKind::ClockAccepted, format!("from {} to {}", accept.from, accept.to))
        }
        Command::CorroborateClock(found) => (
            EventKind::ClockAccepted,
            format!("of replica {} from {} to {}", found.replica, found.from, found.to),
        ),
        Command::RepairClock(repair) => (EventKind::ClockRepaired, format!("to {}", repair.to)),
        Command::AcknowledgeAlert { alert, .. } => (EventKind::AlertAcknowledged, format!("alert {alert}")),
        Command::RaiseAlert(raise) => {
            let node = raise.node.as_ref().map(|node| format!(" about node {node}"));
            (EventKind::AlertRaised, format!("{}{}", raise.kind, node.unwrap_or_default()))
        }
        Command::RecordDeniedCertificate(seen) => {
            (EventKind::AlertRaised, format!("denied_certificate_seen about node {}", seen.node))
        }
        Command::AcceptRollback(_) => {
            (EventKind::RollbackAccepted, "every token of before is void".to_owned())
        }
        Command::CreateReplicaToken { token, .. } => {
            (EventKind::ReplicaTokenCreated, format!("token {token}"))
        }
        Command::JoinReplica(join) => {
            (EventKind::ReplicaJoined, format!("replica {} at {}", join.replica, join.peer))
        }
        Command::AnnounceReplica(announce) => {
            (EventKind::ReplicaAnnounced, format!("replica {} at {}", announce.replica, announce.peer))
        }
        Command::RemoveReplica { replica, .. } => (EventKind::ReplicaRemoved, format!("replica {replica}")),
        Command::InitializeDomain(_)
        | Command::Confirm(_)
        | Command::RecordServerCertificate(_)
        | Command::RecordRefusals(_)
        | Command::RecordCheckpoint(_)
        | Command::RecordAuditGap(_)
        | Command::RecordForwarded(_)
        | Command::SkipForwarding(_)
        | Command::BeginIssuance(_)
        | Command::EndIssuance(_)
        | Command::RecordDeliveredRevocations { .. }
        | Command::Tidy
        | Command::Expire
        | Command::Renew(_)
        | Command::Contact { .. }
        | Command::Observe(_)
        | Command::MarkInactive(_)
        | Command::MintRecovery { .. }
        | Command::ReportSessions(_)
        | Command::ClaimOverlay(_)
        | Command::ClearAlert { .. } => return None,
    })
}

fn about(node: &lifecycle::names::NodeId) -> String {
    format!("node {node}")
}

fn is_quarantined(state: &State, node: &lifecycle::names::NodeId) -> bool {
    state.nodes.get(node).is_some_and(|node| node.quarantined)
}
