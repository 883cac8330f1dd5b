//! Activating an issuer: it signs from now on, and the one before retires.

use crate::names::{IssuerId, NodeId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Confirmation, Envelope, Event, IssuerState, Rejection, State};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActivateIssuer {
    pub issuer: IssuerId,
    /// Even if nodes have not got the bundle yet.
    pub force: bool,
    /// The audit key, certified by the new issuer.
    #[serde(with = "serde_bytes")]
    pub audit_certificate: Vec<u8>,
    #[serde(default, skip_serializing_if = "Confirmation::is_not_asked")]
    pub confirm: Confirmation,
}

pub(in crate::registry) fn activate(state: &State, activate: &ActivateIssuer) -> Decision {
    match state.issuers.get(&activate.issuer) {
        None => Rejection::IssuerNotFound { issuer: activate.issuer.clone() }.into(),
        Some(issuer) if issuer.state == IssuerState::Active && !issuer.is_ephemeral() => {
            Decision::granted(Vec::new())
        }
        Some(issuer) if issuer.state != IssuerState::Prepared || issuer.not_after <= state.at => {
            Rejection::IssuerNotPrepared { issuer: issuer.id.clone() }.into()
        }
        Some(_) => {
            let (current, total) = state.adoption();
            if current < total && !activate.force {
                return Rejection::NotAdopted { current, total }.into();
            }
            if current < total {
                let consequence = format!(
                    "{current} of {total} nodes have the new trust bundle: those of the others that trust the root go on as before; what trusts only the previous issuer refuses certificates of the new one, also the control plane's own, until it has the bundle"
                );
                let affected = total.saturating_sub(current);
                if let Err(needed) = activate.confirm.check(activate.issuer.as_str(), &consequence, affected)
                {
                    return needed.into();
                }
            }
            let before = state.active_issuer().map(|issuer| issuer.id.clone());
            Decision::granted(vec![Event::IssuerActivated(IssuerActivated {
                activate: activate.clone(),
                before,
            })])
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerActivated {
    pub activate: ActivateIssuer,
    /// What signed until now.
    pub before: Option<IssuerId>,
}

impl Happened for IssuerActivated {
    const NAME: &'static str = "ca.activated";

    fn fields(&self) -> AuditFields {
        vec![
            ("issuer", AuditField::text(&self.activate.issuer)),
            ("before", AuditField::maybe(self.before.as_ref())),
            ("forced", AuditField::Flag(self.activate.force)),
        ]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        if let Some(old) = self.before.as_ref().and_then(|id| state.issuers.get_mut(id)) {
            old.state = IssuerState::Retiring;
        }
        if let Some(new) = state.issuers.get_mut(&self.activate.issuer) {
            new.state = IssuerState::Active;
        }
        if let Some(signer) = &mut state.audit_signer {
            signer.certificate = self.activate.audit_certificate.clone();
        }
    }
}
