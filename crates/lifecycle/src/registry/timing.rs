//! Which commands need to know what time it is: one row per command, and no wildcard. While the clock of a control
//! plane is not believed, it refuses these, and no others: what ends something must always work.

use super::{AlertKind, Claim, Command};

impl Command {
    /// Whether it begins something that ends by the clock, or judges by the clock that something has ended.
    pub fn needs_time(&self) -> bool {
        match self {
            // A certificate, a token or a key with an end; or a token whose end is judged.
            Command::CreateToken(_)
            | Command::Enroll(_)
            | Command::Renew(_)
            | Command::Recover(_)
            | Command::Import(_)
            | Command::AddOperator(_)
            | Command::RenewOperator(_)
            | Command::CreateOperatorKey(_)
            | Command::IssueBootstrap(_)
            | Command::IssueRepairBundle(_)
            | Command::MintRecovery { .. }
            | Command::RecordServerCertificate(_)
            // An order to renew, which nobody could obey.
            | Command::Rotate { .. }
            // A key that rests until a moment, an address that has rested for long enough, an order that lapses.
            | Command::ClaimOverlay(_)
            | Command::OrderRekey { .. }
            // An issuer begins, or is found to have nothing left that is good.
            | Command::PrepareRoll(_)
            | Command::CertifyRoll(_)
            | Command::ActivateIssuer(_)
            | Command::RetireIssuer { .. }
            | Command::PublishIssuer(_)
            | Command::BeginIssuance(_)
            | Command::CreateReplicaToken { .. }
            | Command::JoinReplica(_)
            | Command::BeginRoll(_)
            | Command::AnswerRoll(_)
            | Command::RetireRoot { .. }
            // Housekeeping that goes by how long something has lasted.
            | Command::MarkInactive(_)
            | Command::EndRepair { .. }
            | Command::Tidy
            | Command::Expire => true,
            Command::Register(register) => match register.claim {
                Claim::Token(_) => true,
                Claim::Tenant(_) => false,
            },
            Command::RaiseAlert(raise) => raise.kind.goes_by_time(),
            Command::AnnounceReplica(announce) => announce.certificate.is_some(),
            // The first words of a host whose certificate is on record already: a token that comes with them ends
            // too early or too late by as much as the clock is wrong, and the host is not left half enrolled.
            Command::Confirm(_)
            | Command::Contact { .. }
            | Command::UseRenewedCertificate { .. }
            // What ends or holds something.
            | Command::RevokeToken { .. }
            | Command::RemoveOperator { .. }
            | Command::RevokeOperatorKey { .. }
            | Command::RevokeBootstrap { .. }
            | Command::Drain { .. }
            | Command::Undrain { .. }
            | Command::Quarantine { .. }
            | Command::Release { .. }
            | Command::Decommission { .. }
            | Command::Revoke { .. }
            | Command::RevokeIssuer { .. }
            | Command::ImportRootList(_)
            | Command::AbandonRoll
            | Command::EndIssuance(_)
            | Command::RecordDeliveredRevocations { .. }
            | Command::RevokeRecoveryTokens { .. }
            | Command::RemoveReplica { .. }
            | Command::Reinstate { .. }
            // What has no end.
            | Command::InitializeDomain(_)
            | Command::CreateTenant(_)
            | Command::SetPolicy(_)
            | Command::Describe(_)
            | Command::Rewrap(_)
            | Command::ChangeStepCa(_)
            | Command::RegisterHardware(_)
            | Command::CreateVcluster(_)
            | Command::RemoveVcluster { .. }
            | Command::SetConfig(_)
            | Command::Assign { .. }
            | Command::Unassign { .. }
            | Command::Move { .. }
            | Command::ClearAlert { .. }
            | Command::AcknowledgeAlert { .. }
            | Command::RecordRefusals(_)
            | Command::RecordCheckpoint(_)
            | Command::RecordAuditGap(_)
            | Command::RecordForwarded(_)
            | Command::SkipForwarding(_)
            | Command::RecordDeniedCertificate(_)
            | Command::Observe(_)
            | Command::ReportSessions(_)
            | Command::AcceptRollback(_)
            // What sets the clock right.
            | Command::AcceptClock(_)
            | Command::CorroborateClock(_)
            | Command::RepairClock(_) => false,
        }
    }
}

impl AlertKind {
    /// Whether it says that something has lasted too long, or is about to end.
    fn goes_by_time(self) -> bool {
        match self {
            AlertKind::EnrollmentStuck
            | AlertKind::IssuerExpiring
            | AlertKind::NoActiveIssuer
            | AlertKind::CertExpiring
            | AlertKind::NodeSilent => true,
            AlertKind::EnrollmentNotPersisted
            | AlertKind::CloneSuspected
            | AlertKind::UnderlayUnreachable
            | AlertKind::RecoveryNotNeeded
            | AlertKind::RenewalFailing
            | AlertKind::ClockSkew
            | AlertKind::EndpointProfileDrift
            | AlertKind::DiskFull
            | AlertKind::NodeReplaced
            | AlertKind::WireguardKeyConflict
            | AlertKind::AlreadyActive
            | AlertKind::RepeatedFailures
            | AlertKind::HardwareIdentityConflict
            | AlertKind::AuditForwardingFailing
            | AlertKind::AuditAnchorFailing
            | AlertKind::ClaimedElsewhere
            | AlertKind::IssuerMisbehaved
            | AlertKind::DeniedCertificateSeen
            | AlertKind::OverlayUnavailable
            | AlertKind::OverlayDrift
            | AlertKind::HardwareGuessed
            | AlertKind::HardwareConflict => false,
        }
    }
}
