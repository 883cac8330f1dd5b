//! Operators and the API keys of their automation.

use crate::names::{NodeId, OperatorName, SpiffeId, VclusterId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Actor, Envelope, Event, Issued, Operator, Rejection, Role, State, Tenants, Vclusters};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddOperator {
    pub name: OperatorName,
    pub role: Role,
    pub tenants: Tenants,
    pub certificate: Option<Issued>,
    /// What the role is narrowed to.
    #[serde(default, skip_serializing_if = "Vclusters::is_all")]
    pub vclusters: Vclusters,
}

pub(in crate::registry) fn add(state: &State, actor: &Actor, add: &AddOperator) -> Decision {
    if state.operators.contains_key(&add.name) {
        return Rejection::OperatorExists { name: add.name.clone() }.into();
    }
    if let Err(rejection) = check_scope(state, add.role, &add.tenants, &add.vclusters) {
        return rejection.into();
    }
    if let Some(certificate) = &add.certificate {
        let subject = state.domain.as_ref().map(|domain| SpiffeId::operator(&domain.name, &add.name));
        if Some(&certificate.subject) != subject.as_ref() || !certificate.may_be_recorded(state) {
            return Rejection::PreparedStale.into();
        }
    }
    let operator = Operator {
        name: add.name.clone(),
        role: add.role,
        tenants: add.tenants.clone(),
        added_by: actor.to_string(),
        added_at: state.at,
        serial: add.certificate.as_ref().map(|certificate| certificate.serial.clone()),
        renewed: None,
        replaced: Vec::new(),
        vclusters: add.vclusters.clone(),
    };
    Decision::granted(vec![Event::OperatorAdded(OperatorAdded {
        operator,
        certificate: add.certificate.clone(),
    })])
}

/// Do the tenants and vClusters exist that a role is to be for?
pub(super) fn check_scope(
    state: &State,
    role: Role,
    tenants: &Tenants,
    vclusters: &Vclusters,
) -> Result<(), Rejection> {
    check_tenants(state, tenants)?;
    let Vclusters::Only(names) = vclusters else { return Ok(()) };
    if role != Role::Operator {
        return Err(Rejection::NarrowedRole);
    }
    let known = |name: &&VclusterId| {
        state.vclusters.get(*name).is_some_and(|vcluster| tenants.include(&vcluster.tenant))
    };
    match names.iter().find(|name| !known(name)) {
        Some(vcluster) => Err(Rejection::VclusterNotFound { vcluster: vcluster.clone() }),
        None => Ok(()),
    }
}

fn check_tenants(state: &State, tenants: &Tenants) -> Result<(), Rejection> {
    match tenants {
        Tenants::All => Ok(()),
        Tenants::Only(names) => match names.iter().find(|name| !state.tenants.contains_key(*name)) {
            Some(tenant) => Err(Rejection::TenantNotFound { tenant: tenant.clone() }),
            None => Ok(()),
        },
    }
}

/// Said only where there is something to say: lines of old logs are made again from their commands.
pub(super) fn vclusters_field(vclusters: &Vclusters) -> Option<(&'static str, AuditField)> {
    match vclusters {
        Vclusters::All => None,
        Vclusters::Only(names) => {
            Some(("vclusters", AuditField::Texts(names.iter().map(ToString::to_string).collect())))
        }
    }
}

pub(super) fn tenants_field(tenants: &Tenants) -> AuditField {
    match tenants {
        Tenants::All => AuditField::text("*"),
        Tenants::Only(names) => AuditField::Texts(names.iter().map(ToString::to_string).collect()),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorAdded {
    pub operator: Operator,
    pub certificate: Option<Issued>,
}

impl Happened for OperatorAdded {
    const NAME: &'static str = "operator.added";

    fn fields(&self) -> AuditFields {
        [
            ("operator", AuditField::text(&self.operator.name)),
            ("role", AuditField::text(self.operator.role.as_str())),
            ("tenants", tenants_field(&self.operator.tenants)),
            ("cert_serial", AuditField::maybe(self.operator.serial.as_ref())),
        ]
        .into_iter()
        .chain(vclusters_field(&self.operator.vclusters))
        .collect()
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        if let Some(issued) = &self.certificate {
            state.record_operator_certificate(&self.operator.name, issued);
        }
        state.operators.insert(self.operator.name.clone(), self.operator.clone());
    }
}
