//! The log's line about what was done: one for each act of an operator, each enrollment and each alert. Ids and names
//! only; what a command carries beyond them may be secret or long. An unauthenticated caller causes none without a token.

use lifecycle::registry::{Claim, Command, Envelope};

/// What a line says of a command that was granted: the audit trail's word for it, and what it is about.
pub struct Activity {
    event: &'static str,
    about: String,
    actor: String,
    request_id: String,
}

impl Activity {
    /// Nothing for what hosts do all the time, and for housekeeping.
    pub fn of(envelope: &Envelope) -> Option<Self> {
        let (event, about) = line(&envelope.command)?;
        let request_id = envelope.request_id.as_ref().map(ToString::to_string);
        Some(Self {
            event,
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

fn line(command: &Command) -> Option<(&'static str, String)> {
    Some(match command {
        Command::CreateToken(create) => ("enrollment_token.created", format!("tenant {}", create.tenant)),
        Command::RevokeToken { token } => ("enrollment_token.revoked", format!("token {token}")),
        Command::Enroll(enroll) => ("host.enrolled", format!("node {}", enroll.prepared.as_ref()?.node)),
        Command::Register(register) => match &register.claim {
            Claim::Tenant(tenant) => {
                ("host.registered", format!("node {} of tenant {tenant}", register.node))
            }
            // Its pin, which is not known here, may have decided the id.
            Claim::Token(_) => ("host.registered", "the node of a token".to_owned()),
        },
        Command::Describe(describe) => ("host.described", about(&describe.node)),
        Command::Drain { node, .. } => ("host.draining", about(node)),
        Command::Undrain { node } => ("host.undrained", about(node)),
        Command::Quarantine { node, .. } => ("host.quarantined", about(node)),
        Command::Release { node } => ("host.released", about(node)),
        Command::Decommission { node } => ("host.decommissioned", about(node)),
        Command::Revoke { node, .. } => ("host.revoked", about(node)),
        Command::Reinstate { node } => ("host.reinstated", about(node)),
        Command::Rotate { node } => ("certificate.rotation_ordered", about(node)),
        Command::Import(import) => ("host.imported", about(&import.node)),
        Command::Recover(recover) => ("recovery.issued", about(&recover.prepared.as_ref()?.node)),
        Command::IssueRepairBundle(issue) => ("repair_bundle.issued", about(&issue.node)),
        Command::RevokeRecoveryTokens { node } => ("recovery_token.revoked", about(node)),
        Command::EndRepair { node } => ("host.released", about(node)),
        Command::CreateTenant(create) => ("tenant.created", format!("tenant {}", create.tenant)),
        Command::AddOperator(add) => ("operator.added", format!("operator {}", add.name)),
        Command::RenewOperator(renew) => ("operator.renewed", format!("operator {}", renew.name)),
        Command::UseRenewedCertificate { name } => {
            ("operator.certificate_replaced", format!("operator {name}"))
        }
        Command::RemoveOperator { name } => ("operator.removed", format!("operator {name}")),
        Command::CreateOperatorKey(create) => ("operator_key.created", format!("operator {}", create.name)),
        Command::RevokeOperatorKey { key } => ("operator_key.revoked", format!("key {key}")),
        Command::SetPolicy(set) => ("policy.changed", format!("key {}", set.key)),
        Command::PrepareRoll(_) => ("ca.requested", "a request".to_owned()),
        Command::CertifyRoll(issuer) => ("ca.prepared", format!("issuer {}", issuer.id)),
        Command::ActivateIssuer(activate) => ("ca.activated", format!("issuer {}", activate.issuer)),
        Command::RetireIssuer { issuer } => ("ca.retired", format!("issuer {issuer}")),
        Command::RevokeIssuer { issuer, .. } => ("ca.revoked", format!("issuer {issuer}")),
        Command::Rewrap(_) => ("ca.rewrapped", "every sealed key".to_owned()),
        Command::AcknowledgeAlert { alert, .. } => ("alert.acknowledged", format!("alert {alert}")),
        Command::RaiseAlert(raise) => {
            let node = raise.node.as_ref().map(|node| format!(" about node {node}"));
            ("alert.raised", format!("{}{}", raise.kind, node.unwrap_or_default()))
        }
        Command::RecordDeniedCertificate(seen) => {
            ("alert.raised", format!("denied_certificate_seen about node {}", seen.node))
        }
        Command::InitializeDomain(_)
        | Command::Confirm(_)
        | Command::RecordServerCertificate(_)
        | Command::RecordRefusals(_)
        | Command::RecordCheckpoint(_)
        | Command::RecordAuditGap(_)
        | Command::Tidy
        | Command::Renew(_)
        | Command::Contact { .. }
        | Command::Observe(_)
        | Command::MarkInactive(_)
        | Command::MintRecovery { .. }
        | Command::ClearAlert { .. } => return None,
    })
}

fn about(node: &lifecycle::names::NodeId) -> String {
    format!("node {node}")
}
