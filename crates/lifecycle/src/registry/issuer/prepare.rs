//! Preparing a roll: the request for the next issuer's certificate goes out.

use crate::names::{KeyHash, NodeId};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::{Envelope, Event, IssuerState, Rejection, State};
use serde::{Deserialize, Serialize};

/// The key of the next issuer, and the request for its certificate that goes to wherever the root key is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrepareRoll {
    pub key: KeyHash,
    pub request: String,
    #[serde(with = "serde_bytes")]
    pub sealed_key: Vec<u8>,
}

/// One roll at a time. Asked again, the request that is out stays the one.
pub(in crate::registry) fn prepare(state: &State, prepare: &PrepareRoll) -> Decision {
    if let Some(issuer) = state.domain_issuers_in(IssuerState::Prepared).next() {
        return Rejection::RollUnderway { issuer: issuer.id.clone() }.into();
    }
    // Of a version that knew one issuer for both uses: its log holds no roll of another kind.
    if state.pending_roll.is_some() || state.is_divided() {
        let what = "the domain has issuers of their own for nodes and for the control plane".to_owned();
        return Rejection::RollInProgress { what, active: false }.into();
    }
    match &state.roll {
        Some(_) => Decision::granted(Vec::new()),
        None => Decision::granted(vec![Event::RollPrepared(prepare.clone())]),
    }
}

impl Happened for PrepareRoll {
    const NAME: &'static str = "ca.requested";

    fn fields(&self) -> AuditFields {
        vec![("key_hash", AuditField::text(self.key.hex()))]
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.roll = Some(self.clone());
    }
}
