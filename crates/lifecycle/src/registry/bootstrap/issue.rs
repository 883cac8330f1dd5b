//! Issuing a bootstrap identity, or another certificate of one.

use super::Bootstrap;
use crate::names::{BootstrapName, NodeId, Span, SpiffeId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Actor, Envelope, Event, Issued, Rejection, State};
use serde::{Deserialize, Serialize};

pub const BOOTSTRAP_SHORTEST: Span = Span::from_minutes(1);
/// It lies in images that are copied: once a year it is made anew.
pub const BOOTSTRAP_LONGEST: Span = Span::from_days(365);
/// Certificates of all names on record.
const MOST: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssueBootstrap {
    pub name: BootstrapName,
    pub certificate: Issued,
}

pub(in crate::registry) fn decide(state: &State, actor: &Actor, issue: &IssueBootstrap) -> Decision {
    let certificate = &issue.certificate;
    let lifetime = certificate.not_after.since(certificate.signed_at);
    if !(BOOTSTRAP_SHORTEST..=BOOTSTRAP_LONGEST).contains(&lifetime) {
        return Rejection::BootstrapTtl { min: BOOTSTRAP_SHORTEST, max: BOOTSTRAP_LONGEST }.into();
    }
    let on_record: usize = state.bootstraps.values().map(|bootstrap| bootstrap.serials.len()).sum();
    if on_record >= MOST {
        return Rejection::TooManyBootstraps { max: MOST }.into();
    }
    let subject = state.domain.as_ref().map(|domain| SpiffeId::bootstrap(&domain.name, &issue.name));
    if Some(&certificate.subject) != subject.as_ref() || !certificate.may_be_recorded(state) {
        return Rejection::PreparedStale.into();
    }
    Decision::granted(vec![Event::BootstrapIssued(Box::new(BootstrapIssued {
        name: issue.name.clone(),
        certificate: certificate.clone(),
        by: actor.to_string(),
    }))])
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootstrapIssued {
    pub name: BootstrapName,
    pub certificate: Issued,
    pub by: String,
}

impl Happened for BootstrapIssued {
    const NAME: &'static str = "bootstrap.issued";

    fn fields(&self) -> AuditFields {
        vec![
            ("bootstrap", AuditField::text(&self.name)),
            ("cert_serial", AuditField::text(&self.certificate.serial)),
            ("mtls_cert_fingerprint", AuditField::text(self.certificate.fingerprint.labelled())),
            ("not_after", AuditField::text(self.certificate.not_after)),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.record_bootstrap_certificate(&self.name, &self.certificate);
        let before = state.bootstraps.get(&self.name);
        let mut serials = before.map(|before| before.serials.clone()).unwrap_or_default();
        serials.push(self.certificate.serial.clone());
        let expires_at = self.certificate.not_after;
        let bootstrap = Bootstrap {
            name: self.name.clone(),
            serials,
            issued_by: self.by.clone(),
            issued_at: state.at,
            expires_at: before.map_or(expires_at, |before| before.expires_at.max(expires_at)),
        };
        state.bootstraps.insert(self.name.clone(), bootstrap);
    }
}
