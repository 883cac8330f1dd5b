//! Rolls: the next issuers, and with a new root the root above them, from the request to the certificate. Activating and
//! retiring are acts of issuers and roots.

pub(super) mod abandon;
pub(super) mod answer;
pub(super) mod begin;

use super::{Issuer, IssuerKind, IssuerState, State};
use crate::names::{IssuerUse, KeyHash};
use serde::{Deserialize, Serialize};

/// The key of a next issuer, and the request for its certificate that goes to wherever the root key is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuerRequest {
    #[serde(rename = "use")]
    pub usage: IssuerUse,
    pub kind: IssuerKind,
    pub key: KeyHash,
    /// PEM.
    pub request: String,
    #[serde(with = "serde_bytes")]
    pub sealed_key: Vec<u8>,
}

/// A roll whose certificates are awaited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingRoll {
    pub requests: Vec<IssuerRequest>,
    /// Whether a new root comes with them.
    pub new_root: bool,
}

impl State {
    /// Issuers whose key the domain holds, in a state of a roll.
    pub fn domain_issuers_in(&self, wanted: IssuerState) -> impl Iterator<Item = &Issuer> {
        self.issuers.values().filter(move |issuer| issuer.state == wanted && issuer.is_of_domain())
    }

    /// The same in an order that says something: issuers of nodes before those of the control plane alone, not by their ids.
    pub fn issuers_by_use(&self, wanted: IssuerState) -> Vec<&Issuer> {
        let mut issuers: Vec<&Issuer> = self.domain_issuers_in(wanted).collect();
        issuers.sort_by_key(|issuer| issuer.usage);
        issuers
    }

    /// Whether nodes and the control plane have issuers of their own. A domain of before has not until its next roll is
    /// activated.
    pub fn is_divided(&self) -> bool {
        let for_both = self.domain_issuers_in(IssuerState::Active).any(|issuer| issuer.usage.is_both());
        !for_both && self.issuers.values().any(|issuer| issuer.is_of_domain() && !issuer.usage.is_both())
    }
}
