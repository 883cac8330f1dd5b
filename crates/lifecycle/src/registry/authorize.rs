//! Who may do what: one table.

use super::{Actor, Claim, Command, Register, Rejection, State};
use crate::names::{NodeId, TenantId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What an operator may do, each role including the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    Viewer,
    Operator,
    PlatformAdmin,
}

impl Role {
    pub const ALL: [Role; 3] = [Role::Viewer, Role::Operator, Role::PlatformAdmin];

    pub fn as_str(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Operator => "operator",
            Role::PlatformAdmin => "platform-admin",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }
}

/// Whose nodes and tokens an operator may see and touch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tenants {
    All,
    Only(BTreeSet<TenantId>),
}

impl Tenants {
    pub fn include(&self, tenant: &TenantId) -> bool {
        match self {
            Tenants::All => true,
            Tenants::Only(names) => names.contains(tenant),
        }
    }
}

/// Everything that can be done, reading included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Act {
    Found,
    ReadTokens,
    CreateToken,
    RevokeToken,
    Enroll,
    Confirm,
    Renew,
    Recover,
    ReadNodes,
    DrainNode,
    QuarantineNode,
    RotateNode,
    RevokeNode,
    DecommissionNode,
    ReinstateNode,
    RepairNode,
    RegisterNode,
    DescribeNode,
    ImportNode,
    ReadAlerts,
    AcknowledgeAlert,
    ReadTenants,
    CreateTenant,
    ReadOperators,
    AddOperator,
    RenewOperator,
    RemoveOperator,
    CreateOperatorKey,
    RevokeOperatorKey,
    ReadPolicy,
    SetPolicy,
    ReadCa,
    ManageCa,
    ReadAudit,
    ReadMetrics,
    KeepHouse,
}

/// Who may do an act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// Whoever brings the credential that the command holds.
    Anyone,
    /// The node that the command is about.
    TheNode,
    /// The operator that the command is about, with its certificate.
    TheOperator,
    /// An operator of at least this role, for the tenants it has.
    Within(Role),
    /// An operator of at least this role and of all tenants.
    Everywhere(Role),
    /// The control plane itself.
    System,
    /// Whoever runs the program that founds the domain.
    Local,
}

impl Who {
    /// What an operator would have to be.
    fn needs(self) -> Option<String> {
        match self {
            Who::Within(role) => Some(format!("role {}", role.as_str())),
            Who::Everywhere(role) => Some(format!("role {} for all tenants", role.as_str())),
            Who::TheOperator => Some("the certificate of the operator itself".to_owned()),
            Who::Anyone | Who::TheNode | Who::System | Who::Local => None,
        }
    }
}

/// The table.
pub const TABLE: &[(Act, Who)] = &[
    (Act::Found, Who::Local),
    (Act::ReadTokens, Who::Within(Role::Viewer)),
    (Act::CreateToken, Who::Within(Role::Operator)),
    (Act::RevokeToken, Who::Within(Role::Operator)),
    (Act::Enroll, Who::Anyone),
    (Act::Confirm, Who::TheNode),
    (Act::Renew, Who::TheNode),
    (Act::Recover, Who::Anyone),
    (Act::ReadNodes, Who::Within(Role::Viewer)),
    (Act::DrainNode, Who::Within(Role::Operator)),
    (Act::QuarantineNode, Who::Within(Role::Operator)),
    (Act::RotateNode, Who::Within(Role::Operator)),
    (Act::RevokeNode, Who::Within(Role::Operator)),
    (Act::DecommissionNode, Who::Within(Role::PlatformAdmin)),
    (Act::ReinstateNode, Who::Within(Role::PlatformAdmin)),
    (Act::RepairNode, Who::Within(Role::PlatformAdmin)),
    (Act::RegisterNode, Who::Within(Role::Operator)),
    (Act::DescribeNode, Who::Within(Role::Operator)),
    (Act::ImportNode, Who::Everywhere(Role::PlatformAdmin)),
    (Act::ReadAlerts, Who::Within(Role::Viewer)),
    (Act::AcknowledgeAlert, Who::Within(Role::Operator)),
    (Act::ReadTenants, Who::Within(Role::Viewer)),
    (Act::CreateTenant, Who::Everywhere(Role::PlatformAdmin)),
    (Act::ReadOperators, Who::Everywhere(Role::PlatformAdmin)),
    (Act::AddOperator, Who::Everywhere(Role::PlatformAdmin)),
    (Act::RenewOperator, Who::TheOperator),
    (Act::RemoveOperator, Who::Everywhere(Role::PlatformAdmin)),
    (Act::CreateOperatorKey, Who::Everywhere(Role::PlatformAdmin)),
    (Act::RevokeOperatorKey, Who::Everywhere(Role::PlatformAdmin)),
    (Act::ReadPolicy, Who::Within(Role::Viewer)),
    (Act::SetPolicy, Who::Everywhere(Role::PlatformAdmin)),
    (Act::ReadCa, Who::Within(Role::Viewer)),
    (Act::ManageCa, Who::Everywhere(Role::PlatformAdmin)),
    (Act::ReadAudit, Who::Everywhere(Role::Viewer)),
    (Act::ReadMetrics, Who::Everywhere(Role::Viewer)),
    (Act::KeepHouse, Who::System),
];

impl Act {
    pub fn who(self) -> Who {
        TABLE.iter().find(|(act, _)| *act == self).map_or(Who::System, |(_, who)| *who)
    }
}

impl Command {
    pub fn act(&self) -> Act {
        match self {
            Command::Found(_) => Act::Found,
            Command::CreateToken(_) => Act::CreateToken,
            Command::RevokeToken { .. } => Act::RevokeToken,
            Command::Enroll(_) => Act::Enroll,
            Command::Confirm(_) => Act::Confirm,
            Command::CreateTenant(_) => Act::CreateTenant,
            Command::AddOperator(_) => Act::AddOperator,
            Command::RenewOperator(_) | Command::UseRenewedCertificate { .. } => Act::RenewOperator,
            Command::RemoveOperator { .. } => Act::RemoveOperator,
            Command::CreateOperatorKey(_) => Act::CreateOperatorKey,
            Command::RevokeOperatorKey { .. } => Act::RevokeOperatorKey,
            Command::SetPolicy(_) => Act::SetPolicy,
            Command::RecordServerCertificate(_)
            | Command::RecordRefusals(_)
            | Command::RecordCheckpoint(_)
            | Command::RecordAuditGap(_)
            | Command::Observe(_)
            | Command::MarkInactive(_)
            | Command::RaiseAlert(_)
            | Command::ClearAlert { .. }
            | Command::EndRepair { .. }
            | Command::Tidy => Act::KeepHouse,
            Command::Contact { .. } | Command::MintRecovery { .. } => Act::Confirm,
            Command::Renew(_) => Act::Renew,
            Command::Drain { .. } | Command::Undrain { .. } => Act::DrainNode,
            Command::Quarantine { .. } | Command::Release { .. } => Act::QuarantineNode,
            Command::Rotate { .. } => Act::RotateNode,
            Command::Revoke { .. } => Act::RevokeNode,
            Command::Decommission { .. } => Act::DecommissionNode,
            Command::Reinstate { .. } => Act::ReinstateNode,
            Command::Import(_) => Act::ImportNode,
            Command::AcknowledgeAlert { .. } => Act::AcknowledgeAlert,
            Command::PrepareRoll(_)
            | Command::CertifyRoll(_)
            | Command::ActivateIssuer(_)
            | Command::RetireIssuer { .. }
            | Command::RevokeIssuer { .. }
            | Command::Rewrap(_) => Act::ManageCa,
            Command::Register(register) => match register.claim {
                Claim::Tenant(_) => Act::RegisterNode,
                Claim::Token(_) => Act::Enroll,
            },
            Command::Describe(_) => Act::DescribeNode,
            Command::Recover(_) => Act::Recover,
            Command::IssueRepairBundle(_) => Act::RepairNode,
        }
    }

    /// The node that an operator's command is about, where it is about one.
    fn node(&self) -> Option<&NodeId> {
        match self {
            Command::Drain { node, .. }
            | Command::Undrain { node }
            | Command::Quarantine { node, .. }
            | Command::Release { node }
            | Command::Decommission { node }
            | Command::Revoke { node, .. }
            | Command::Reinstate { node }
            | Command::Rotate { node } => Some(node),
            Command::Describe(describe) => Some(&describe.node),
            Command::IssueRepairBundle(issue) => Some(&issue.node),
            _ => None,
        }
    }

    /// Whether it is about something that belongs to no tenant.
    fn is_domain_wide(&self, state: &State) -> bool {
        match self {
            Command::AcknowledgeAlert { alert } => {
                state.alerts.get(alert).is_some_and(|alert| alert.node.is_none())
            }
            _ => false,
        }
    }

    /// The tenant a command is about, where it is about one.
    fn tenant<'a>(&'a self, state: &'a State) -> Option<&'a TenantId> {
        match self {
            Command::CreateToken(create) => Some(&create.tenant),
            Command::Register(register) => match &register.claim {
                Claim::Tenant(tenant) => Some(tenant),
                Claim::Token(_) => None,
            },
            Command::RevokeToken { token } => state.tokens.get(token).map(|token| &token.tenant),
            Command::AcknowledgeAlert { alert } => {
                let node = state.alerts.get(alert)?.node.as_ref()?;
                state.nodes.get(node).map(|node| &node.tenant)
            }
            _ => state.nodes.get(self.node()?).map(|node| &node.tenant),
        }
    }
}

/// What an operator is allowed, as the registry knows it now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    pub role: Role,
    pub tenants: Tenants,
}

/// The standing of an actor that is an operator; none for those that are not, or no longer.
pub fn standing(state: &State, actor: &Actor) -> Option<Standing> {
    match actor {
        Actor::Local { .. } => Some(Standing { role: Role::PlatformAdmin, tenants: Tenants::All }),
        Actor::Operator { name, serial } => {
            let operator = state.operators.get(name)?;
            let live = state.is_good(serial);
            (live && operator.holds(serial))
                .then(|| Standing { role: operator.role, tenants: operator.tenants.clone() })
        }
        Actor::Key { id } => {
            let key = state.operator_keys.get(id).filter(|key| key.is_good(state.at))?;
            Some(Standing { role: key.role, tenants: key.tenants.clone() })
        }
        Actor::Node { .. } | Actor::Stranger | Actor::Reconciler => None,
    }
}

/// May this actor give this command?
pub fn authorize(state: &State, actor: &Actor, command: &Command) -> Result<(), Rejection> {
    let who = command.act().who();
    let refused = || Rejection::NotAllowed { actor: actor.to_string(), needs: who.needs() };
    match who {
        Who::Anyone => Ok(()),
        Who::System => matches!(actor, Actor::Reconciler).then_some(()).ok_or_else(refused),
        Who::Local => matches!(actor, Actor::Local { .. }).then_some(()).ok_or_else(refused),
        Who::TheNode => the_node(state, actor, command),
        Who::TheOperator => {
            operator(state, actor)?;
            the_operator(actor, command).then_some(()).ok_or_else(refused)
        }
        Who::Within(role) => {
            let standing = operator(state, actor)?;
            // The role comes first: who may not do the act at all learns nothing of what exists.
            if standing.role < role {
                return Err(refused());
            }
            match command.tenant(state) {
                // What lies in another tenant does not exist for this operator: the act itself says so.
                Some(tenant) if !standing.tenants.include(tenant) => Err(outside(command)),
                None if standing.tenants != Tenants::All && command.is_domain_wide(state) => {
                    Err(outside(command))
                }
                _ => Ok(()),
            }
        }
        Who::Everywhere(role) => {
            let standing = operator(state, actor)?;
            (standing.role >= role && standing.tenants == Tenants::All).then_some(()).ok_or_else(refused)
        }
    }
}

/// May this actor read this? Answers with the tenants it may see.
pub fn may_read(state: &State, actor: &Actor, act: Act) -> Result<Tenants, Rejection> {
    let refused = || Rejection::NotAllowed { actor: actor.to_string(), needs: act.who().needs() };
    let standing = operator(state, actor)?;
    match act.who() {
        Who::Within(role) if standing.role >= role => Ok(standing.tenants),
        Who::Everywhere(role) if standing.role >= role && standing.tenants == Tenants::All => {
            Ok(Tenants::All)
        }
        _ => Err(refused()),
    }
}

fn operator(state: &State, actor: &Actor) -> Result<Standing, Rejection> {
    match actor {
        Actor::Node { .. } | Actor::Reconciler => {
            Err(Rejection::NotAllowed { actor: actor.to_string(), needs: None })
        }
        _ => standing(state, actor).ok_or(Rejection::Unauthenticated),
    }
}

fn outside(command: &Command) -> Rejection {
    match command {
        Command::RevokeToken { token } => Rejection::TokenNotFound { token: *token },
        Command::CreateToken(create) => Rejection::TenantNotFound { tenant: create.tenant.clone() },
        Command::AcknowledgeAlert { alert } => Rejection::AlertNotFound { alert: *alert },
        Command::Register(Register { claim: Claim::Tenant(tenant), .. }) => {
            Rejection::TenantNotFound { tenant: tenant.clone() }
        }
        _ => command
            .node()
            .map_or(Rejection::Unauthenticated, |node| Rejection::NodeNotFound { node: node.clone() }),
    }
}

/// A node speaks for itself only, and only with a live certificate of its own.
fn the_node(state: &State, actor: &Actor, command: &Command) -> Result<(), Rejection> {
    let Actor::Node { id, serial } = actor else {
        return Err(Rejection::Unauthenticated);
    };
    let about = match command {
        Command::Confirm(confirm) => &confirm.node,
        Command::Renew(renew) => &renew.node,
        Command::Contact { node } | Command::MintRecovery { node, .. } => node,
        _ => return Err(Rejection::NotAllowed { actor: actor.to_string(), needs: None }),
    };
    if about != id {
        return Err(Rejection::NotAllowed { actor: actor.to_string(), needs: None });
    }
    let live = state.certificates.get(serial).is_some_and(|certificate| {
        state.is_good(serial) && certificate.owner == super::Owner::Node(id.clone())
    });
    if live { Ok(()) } else { Err(Rejection::Unauthenticated) }
}

/// An operator renews its own certificate only; an API key and the operator socket have none.
fn the_operator(actor: &Actor, command: &Command) -> bool {
    let Actor::Operator { name, .. } = actor else { return false };
    match command {
        Command::RenewOperator(renew) => renew.name == *name,
        Command::UseRenewedCertificate { name: about } => about == name,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{AlertId, KeyId, OperatorName, SecretHash, Timestamp, Ulid};
    use crate::registry::{Alert, AlertKind, OperatorKey};

    #[test]
    fn every_act_stands_in_the_table_once() {
        for (position, (act, _)) in TABLE.iter().enumerate() {
            assert_eq!(TABLE.iter().position(|(other, _)| other == act), Some(position), "{act:?}");
        }
    }

    #[test]
    fn an_alert_about_the_domain_is_acknowledged_by_those_of_all_tenants() {
        let ulid = |byte| Ulid::new(Timestamp::from_secs(1), [byte; 10]);
        let (key, alert) = (KeyId(ulid(1)), AlertId(ulid(2)));
        let with = |tenants| {
            let mut state = State::default();
            let made = OperatorKey {
                id: key,
                hash: SecretHash::new([0; 32]),
                name: OperatorName::parse("ci").expect("a name"),
                role: Role::Operator,
                tenants,
                created_by: String::new(),
                created_at: Timestamp::from_secs(0),
                expires_at: Timestamp::from_secs(9),
                revoked_at: None,
            };
            state.operator_keys.insert(key, made);
            let raised = Alert {
                id: alert,
                kind: AlertKind::IssuerExpiring,
                node: None,
                since: Timestamp::from_secs(1),
                count: 1,
                detail: String::new(),
                acknowledged: false,
                again: None,
            };
            state.alerts.insert(alert, raised);
            authorize(&state, &Actor::Key { id: key }, &Command::AcknowledgeAlert { alert })
        };
        assert_eq!(with(Tenants::All), Ok(()));
        let some = Tenants::Only([TenantId::default_tenant()].into());
        assert_eq!(with(some), Err(Rejection::AlertNotFound { alert }));
    }
}
