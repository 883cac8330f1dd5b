//! Operators and the API keys of their automation.

use crate::names::{NodeId, OperatorName, SpiffeId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Actor, Envelope, Event, Issued, Operator, Rejection, Role, State, Tenants};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddOperator {
    pub name: OperatorName,
    pub role: Role,
    pub tenants: Tenants,
    pub certificate: Option<Issued>,
}

pub(in crate::registry) fn add(state: &State, actor: &Actor, add: &AddOperator) -> Decision {
    if state.operators.contains_key(&add.name) {
        return Rejection::OperatorExists { name: add.name.clone() }.into();
    }
    if let Err(rejection) = check_tenants(state, &add.tenants) {
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
    };
    Decision::granted(vec![Event::OperatorAdded(OperatorAdded {
        operator,
        certificate: add.certificate.clone(),
    })])
}

pub(super) fn check_tenants(state: &State, tenants: &Tenants) -> Result<(), Rejection> {
    match tenants {
        Tenants::All => Ok(()),
        Tenants::Only(names) => match names.iter().find(|name| !state.tenants.contains_key(*name)) {
            Some(tenant) => Err(Rejection::TenantNotFound { tenant: tenant.clone() }),
            None => Ok(()),
        },
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
        vec![
            ("operator", AuditField::text(&self.operator.name)),
            ("role", AuditField::text(self.operator.role.as_str())),
            ("tenants", tenants_field(&self.operator.tenants)),
            ("cert_serial", AuditField::maybe(self.operator.serial.as_ref())),
        ]
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
