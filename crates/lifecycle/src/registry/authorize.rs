//! Who may do what: one table.

use super::subject::{Subject, SubjectScope};
use super::{Actor, Command, Node, Owner, Rejection, State};
use crate::names::{NodeId, TenantId, VclusterId};
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

/// What the role operator may be narrowed to: then it is for assigning nodes to these, and for reading what is in them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Vclusters {
    #[default]
    All,
    Only(BTreeSet<VclusterId>),
}

impl Vclusters {
    pub fn is_all(&self) -> bool {
        *self == Vclusters::All
    }

    /// Narrowed to these; none at all is not narrowed.
    pub fn narrowed(names: BTreeSet<VclusterId>) -> Self {
        if names.is_empty() { Vclusters::All } else { Vclusters::Only(names) }
    }

    /// Of one that is narrowed; with none left it is for nothing.
    pub(super) fn exclude(&mut self, vcluster: &VclusterId) {
        if let Vclusters::Only(names) = self {
            names.remove(vcluster);
        }
    }

    pub fn include(&self, vcluster: &VclusterId) -> bool {
        match self {
            Vclusters::All => true,
            Vclusters::Only(names) => names.contains(vcluster),
        }
    }
}

/// Which nodes and vClusters an operator may read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeReach {
    pub tenants: Tenants,
    pub vclusters: Vclusters,
}

impl NodeReach {
    pub fn includes(&self, node: &Node) -> bool {
        let within = match &self.vclusters {
            Vclusters::All => true,
            Vclusters::Only(names) => node.vcluster.as_ref().is_some_and(|vcluster| names.contains(vcluster)),
        };
        within && self.tenants.include(&node.tenant)
    }
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
    /// The replica that the command is about.
    TheReplica,
    /// An operator of at least this role, for the tenants it has.
    Within(Role),
    /// An operator of at least this role and of all tenants.
    Everywhere(Role),
    /// One of at least this role and of all tenants, or for the tenants that policy `hardware.tenants` names: hardware belongs to whoever
    /// registers it first, in the whole domain.
    HardwareTenants(Role),
    /// The control plane itself.
    System,
    /// Whoever runs the program that initializes the domain.
    Local,
}

impl Who {
    /// What an operator would have to be.
    pub(super) fn needs(self) -> Option<String> {
        match self {
            Who::Within(role) => Some(format!("role {}", role.as_str())),
            Who::Everywhere(role) => Some(format!("role {} for all tenants", role.as_str())),
            Who::HardwareTenants(role) => Some(format!(
                "role {} for all tenants, or for a tenant that policy hardware.tenants names",
                role.as_str()
            )),
            Who::TheOperator => Some("the certificate of the operator itself".to_owned()),
            Who::Anyone | Who::TheNode | Who::TheReplica | Who::System | Who::Local => None,
        }
    }
}

/// `Act => Who;` makes an act and says who may do it: none is without.
macro_rules! acts {
    ($($act:ident => $who:expr;)*) => {
        /// Everything that can be done, reading included.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Act {
            $($act),*
        }

        impl Act {
            pub const ALL: &[Act] = &[$(Act::$act),*];

            pub fn who(self) -> Who {
                match self {
                    $(Act::$act => $who),*
                }
            }
        }
    };
}

// The table.
acts! {
    InitializeDomain => Who::Local;
    ReadTokens => Who::Within(Role::Viewer);
    CreateToken => Who::Within(Role::Operator);
    RevokeToken => Who::Within(Role::Operator);
    Enroll => Who::Anyone;
    Confirm => Who::TheNode;
    Renew => Who::TheNode;
    ReportSessions => Who::TheNode;
    ClaimOverlay => Who::TheNode;
    Recover => Who::Anyone;
    ReadNodes => Who::Within(Role::Viewer);
    DrainNode => Who::Within(Role::Operator);
    QuarantineNode => Who::Within(Role::Operator);
    RotateNode => Who::Within(Role::Operator);
    RevokeNode => Who::Within(Role::Operator);
    DecommissionNode => Who::Within(Role::PlatformAdmin);
    ReinstateNode => Who::Within(Role::PlatformAdmin);
    RepairNode => Who::Within(Role::PlatformAdmin);
    RevokeRecoveryTokens => Who::Within(Role::Operator);
    RegisterNode => Who::Within(Role::Operator);
    RegisterHardware => Who::HardwareTenants(Role::PlatformAdmin);
    RegisterHardwareAsBefore => Who::Within(Role::PlatformAdmin);
    AssignNode => Who::Within(Role::Operator);
    ReadVclusters => Who::Within(Role::Viewer);
    ManageVclusters => Who::Within(Role::PlatformAdmin);
    Configure => Who::Within(Role::PlatformAdmin);
    DescribeNode => Who::Within(Role::Operator);
    ImportNode => Who::Everywhere(Role::PlatformAdmin);
    ReadAlerts => Who::Within(Role::Viewer);
    AcknowledgeAlert => Who::Within(Role::Operator);
    ReadTenants => Who::Within(Role::Viewer);
    CreateTenant => Who::Everywhere(Role::PlatformAdmin);
    ReadOperators => Who::Everywhere(Role::PlatformAdmin);
    AddOperator => Who::Everywhere(Role::PlatformAdmin);
    RenewOperator => Who::TheOperator;
    RemoveOperator => Who::Everywhere(Role::PlatformAdmin);
    CreateOperatorKey => Who::Everywhere(Role::PlatformAdmin);
    RevokeOperatorKey => Who::Everywhere(Role::PlatformAdmin);
    ReadPolicy => Who::Within(Role::Viewer);
    SetPolicy => Who::Everywhere(Role::PlatformAdmin);
    ReadCa => Who::Within(Role::Viewer);
    ManageCa => Who::Everywhere(Role::PlatformAdmin);
    PublishIssuer => Who::TheReplica;
    AskIssuer => Who::TheReplica;
    ReadCluster => Who::Everywhere(Role::Viewer);
    ManageCluster => Who::Everywhere(Role::PlatformAdmin);
    JoinCluster => Who::Anyone;
    AnnounceReplica => Who::TheReplica;
    ReadClock => Who::Everywhere(Role::Viewer);
    AcceptClock => Who::Everywhere(Role::PlatformAdmin);
    CorroborateClock => Who::System;
    RepairClock => Who::Local;
    ReadAudit => Who::Everywhere(Role::Viewer);
    ReadMetrics => Who::Everywhere(Role::Viewer);
    KeepHouse => Who::System;
}

/// What an operator is allowed, as the registry knows it now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permissions {
    pub role: Role,
    pub tenants: Tenants,
    pub vclusters: Vclusters,
}

/// What an actor that is an operator may do; none for those that are not, or no longer.
pub fn permissions(state: &State, actor: &Actor) -> Option<Permissions> {
    match actor {
        Actor::Local { .. } => {
            let (role, tenants, vclusters) = (Role::PlatformAdmin, Tenants::All, Vclusters::All);
            Some(Permissions { role, tenants, vclusters })
        }
        Actor::Operator { name, serial } => {
            let operator = state.operators.get(name)?;
            let live = state.is_good(serial);
            (live && operator.holds(serial)).then(|| Permissions {
                role: operator.role,
                tenants: operator.tenants.clone(),
                vclusters: operator.vclusters.clone(),
            })
        }
        Actor::Key { id } => {
            let key = state.operator_keys.get(id).filter(|key| key.is_good(state.at))?;
            let (role, tenants, vclusters) = (key.role, key.tenants.clone(), key.vclusters.clone());
            Some(Permissions { role, tenants, vclusters })
        }
        Actor::Node { .. }
        | Actor::Svid { .. }
        | Actor::Stranger
        | Actor::Reconciler
        | Actor::Replica { .. } => None,
    }
}

/// May this actor give this command?
pub fn authorize(state: &State, actor: &Actor, command: &Command) -> Result<(), Rejection> {
    let (who, subject) = (command.act().who(), command.subject());
    let refused = || Rejection::NotAllowed { actor: actor.to_string(), needs: who.needs() };
    match who {
        Who::Anyone => Ok(()),
        Who::System => matches!(actor, Actor::Reconciler).then_some(()).ok_or_else(refused),
        Who::Local => matches!(actor, Actor::Local { .. }).then_some(()).ok_or_else(refused),
        Who::TheNode => the_node(state, actor, subject),
        Who::TheReplica => the_replica(state, actor, subject),
        Who::TheOperator => {
            operator(state, actor)?;
            is_the_operator(actor, subject).then_some(()).ok_or_else(refused)
        }
        Who::Within(role) | Who::HardwareTenants(role) => {
            let granted = operator(state, actor)?;
            // The role comes first: who may not do the act at all learns nothing of what exists.
            if granted.role < role {
                return Err(refused());
            }
            // So does the vCluster that a narrowed one names: it is told apart from its own before anything is looked up.
            let elsewhere = || Rejection::NotAllowed {
                actor: actor.to_string(),
                needs: Some("an operator of that vCluster, or of all".to_owned()),
            };
            if !may_bring(&granted.vclusters, subject) {
                return Err(elsewhere());
            }
            let within = match subject.scope(state) {
                SubjectScope::Tenant(tenant) => granted.tenants.include(tenant),
                SubjectScope::Domain => granted.tenants == Tenants::All,
                SubjectScope::Nowhere => true,
                SubjectScope::Own => false,
            };
            if !within {
                return Err(subject.not_found().unwrap_or_else(refused));
            }
            if matches!(who, Who::HardwareTenants(_)) && !may_register(state, &granted.tenants, subject) {
                return Err(refused());
            }
            // What is in other vClusters of its tenant is refused and not hidden.
            may_take(state, &granted.vclusters, subject).then_some(()).ok_or_else(elsewhere)
        }
        Who::Everywhere(role) => {
            let granted = operator(state, actor)?;
            let whole = granted.tenants == Tenants::All && granted.vclusters.is_all();
            (granted.role >= role && whole).then_some(()).ok_or_else(refused)
        }
    }
}

/// Whether hardware may be registered by one of these tenants.
fn may_register(state: &State, tenants: &Tenants, subject: Subject<'_>) -> bool {
    let named = |tenant: &TenantId| state.policy.hardware_tenants.contains(tenant);
    *tenants == Tenants::All || matches!(subject, Subject::Tenant(tenant) if named(tenant))
}

/// One that is narrowed to vClusters may bring nodes into these, or into none, and do nothing else.
fn may_bring(vclusters: &Vclusters, subject: Subject<'_>) -> bool {
    match (vclusters, subject) {
        (Vclusters::All, _) => true,
        (Vclusters::Only(_), Subject::Assignment { to, .. }) => to.is_none_or(|to| vclusters.include(to)),
        (
            Vclusters::Only(_),
            Subject::Domain
            | Subject::Tenant(_)
            | Subject::Token(_)
            | Subject::Node(_)
            | Subject::Alert(_)
            | Subject::Vcluster(_)
            | Subject::OwnNode(_)
            | Subject::OwnOperator(_)
            | Subject::OwnReplica(_)
            | Subject::Credential,
        ) => false,
    }
}

/// And it may take them out of these, or from none.
fn may_take(state: &State, vclusters: &Vclusters, subject: Subject<'_>) -> bool {
    let Subject::Assignment { node, .. } = subject else { return true };
    let from = state.nodes.get(node).and_then(|node| node.vcluster.as_ref());
    from.is_none_or(|from| vclusters.include(from))
}

/// May this actor read nodes, or vClusters, and which? One that is narrowed to vClusters reads what is in them.
pub fn may_reach(state: &State, actor: &Actor, act: Act) -> Result<NodeReach, Rejection> {
    let Permissions { role, tenants, vclusters } = operator(state, actor)?;
    match (act, act.who()) {
        (Act::ReadNodes | Act::ReadVclusters, Who::Within(least)) if role >= least => {
            Ok(NodeReach { tenants, vclusters })
        }
        _ => Err(Rejection::NotAllowed { actor: actor.to_string(), needs: act.who().needs() }),
    }
}

/// May this actor read this? Answers with the tenants it may see. Not for one that is narrowed to vClusters: see [`may_reach`].
pub fn may_read(state: &State, actor: &Actor, act: Act) -> Result<Tenants, Rejection> {
    let refused = || Rejection::NotAllowed { actor: actor.to_string(), needs: act.who().needs() };
    let permissions = operator(state, actor)?;
    if !permissions.vclusters.is_all() {
        let needs = Some("an operator that is not narrowed to vClusters".to_owned());
        return Err(Rejection::NotAllowed { actor: actor.to_string(), needs });
    }
    match act.who() {
        Who::Within(role) if permissions.role >= role => Ok(permissions.tenants),
        Who::Everywhere(role) if permissions.role >= role && permissions.tenants == Tenants::All => {
            Ok(Tenants::All)
        }
        Who::HardwareTenants(role) if permissions.role >= role => {
            let named = |tenant: &TenantId| state.policy.hardware_tenants.contains(tenant);
            match permissions.tenants {
                Tenants::All => Ok(Tenants::All),
                Tenants::Only(names) if names.iter().any(named) => {
                    Ok(Tenants::Only(names.into_iter().filter(named).collect()))
                }
                Tenants::Only(_) => Err(refused()),
            }
        }
        Who::Within(_)
        | Who::Everywhere(_)
        | Who::HardwareTenants(_)
        | Who::Anyone
        | Who::TheNode
        | Who::TheOperator
        | Who::TheReplica
        | Who::System
        | Who::Local => Err(refused()),
    }
}

fn operator(state: &State, actor: &Actor) -> Result<Permissions, Rejection> {
    match actor {
        Actor::Node { .. } | Actor::Svid { .. } | Actor::Reconciler | Actor::Replica { .. } => {
            Err(Rejection::NotAllowed { actor: actor.to_string(), needs: None })
        }
        Actor::Local { .. } | Actor::Operator { .. } | Actor::Key { .. } | Actor::Stranger => {
            permissions(state, actor).ok_or(Rejection::Unauthenticated)
        }
    }
}

/// A node speaks for itself only, and only with an accepted certificate of its own.
fn the_node(state: &State, actor: &Actor, subject: Subject<'_>) -> Result<(), Rejection> {
    let (id, certificate) = match actor {
        Actor::Node { id, serial } => (id, Some(serial)),
        // On no record: what the registry knows of the node decides.
        Actor::Svid { id, .. } => (id, None),
        Actor::Local { .. }
        | Actor::Operator { .. }
        | Actor::Key { .. }
        | Actor::Stranger
        | Actor::Reconciler
        | Actor::Replica { .. } => return Err(Rejection::Unauthenticated),
    };
    if subject != Subject::OwnNode(id) {
        return Err(Rejection::NotAllowed { actor: actor.to_string(), needs: None });
    }
    let Some(serial) = certificate else { return by_svid(state, id).map(drop) };
    let own = state.certificates.get(serial).is_some_and(|held| held.owner == Owner::Node(id.clone()));
    if own && state.is_good(serial) { Ok(()) } else { Err(Rejection::Unauthenticated) }
}

/// The node that an SVID stands for: one that is registered, and not gone.
pub fn by_svid<'a>(state: &'a State, id: &NodeId) -> Result<&'a Node, Rejection> {
    match state.nodes.get(id) {
        None => Err(Rejection::NodeNotRegistered { node: id.clone() }),
        Some(node) if node.state.is_gone() => Err(Rejection::NodeRevoked { node: id.clone() }),
        Some(node) => Ok(node),
    }
}

/// A replica speaks for itself only, and no longer once it is removed.
fn the_replica(state: &State, actor: &Actor, subject: Subject<'_>) -> Result<(), Rejection> {
    if let Actor::Replica { id } = actor
        && subject == Subject::OwnReplica(*id)
    {
        return state.check_not_removed(*id);
    }
    Err(Rejection::NotAllowed { actor: actor.to_string(), needs: None })
}

/// An operator renews its own certificate only; an API key and the operator socket have none.
fn is_the_operator(actor: &Actor, subject: Subject<'_>) -> bool {
    matches!(actor, Actor::Operator { name, .. } if subject == Subject::OwnOperator(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{AlertId, KeyId, OperatorName, SecretHash, Timestamp, Ulid};
    use crate::registry::{Alert, AlertKind, OperatorKey};

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
                vclusters: Vclusters::All,
                behind: BTreeSet::new(),
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
                acknowledged_at: None,
                tenant: None,
            };
            state.alerts.insert(alert, raised);
            authorize(&state, &Actor::Key { id: key }, &Command::AcknowledgeAlert { alert, dated: true })
        };
        assert_eq!(with(Tenants::All), Ok(()));
        let some = Tenants::Only([TenantId::default_tenant()].into());
        assert_eq!(with(some), Err(Rejection::AlertNotFound { alert }));
    }
}
