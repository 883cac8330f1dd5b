//! Roots: what hosts trust to reach the control plane, and what those roots deny.

pub(super) mod activated;
pub(super) mod import_list;
pub(super) mod retire;

use super::{Issuer, State};
use crate::names::{Fingerprint, Serial, Timestamp};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    #[serde(with = "serde_bytes")]
    pub certificate: Vec<u8>,
    pub fingerprint: Fingerprint,
    pub not_after: Timestamp,
    #[serde(default)]
    pub state: RootState,
    /// The same root certified by the one before it, so that whoever trusts that one can follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cross_certificate: Option<serde_bytes::ByteBuf>,
    /// The first trust bundle that holds it.
    #[serde(default)]
    pub since_bundle: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retired_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RootState {
    /// Trusted, and nothing is issued under it yet.
    Prepared,
    /// The issuers that sign are below it.
    #[default]
    Active,
    /// Trusted for what was issued under it.
    Retiring,
    /// Trusted by nobody who has the newest trust bundle.
    Retired,
}

impl RootState {
    pub fn as_str(self) -> &'static str {
        match self {
            RootState::Prepared => "prepared",
            RootState::Active => "active",
            RootState::Retiring => "retiring",
            RootState::Retired => "retired",
        }
    }

    pub fn is_trusted(self) -> bool {
        match self {
            RootState::Prepared | RootState::Active | RootState::Retiring => true,
            RootState::Retired => false,
        }
    }
}

/// The revocation list of a root: the issuers that hosts must refuse, signed where the root key is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootList {
    pub number: u64,
    /// Serials of the issuers' certificates.
    pub denied: Vec<Serial>,
    #[serde(with = "serde_bytes")]
    pub der: Vec<u8>,
}

impl RootList {
    pub fn denies_any(&self) -> bool {
        !self.denied.is_empty()
    }
}

impl State {
    /// What hosts trust to reach the control plane (`server_trust`), the oldest first.
    pub fn trusted_roots(&self) -> impl Iterator<Item = &Root> {
        self.roots.iter().filter(|root| root.state.is_trusted())
    }

    /// Their certificates.
    pub fn server_trust(&self) -> impl Iterator<Item = &[u8]> {
        self.trusted_roots().map(|root| root.certificate.as_slice())
    }

    /// The root under which issuers sign now.
    pub fn active_root(&self) -> Option<&Root> {
        self.root_in(RootState::Active)
    }

    pub fn root_in(&self, wanted: RootState) -> Option<&Root> {
        self.roots.iter().find(|root| root.state == wanted)
    }

    /// The root above an issuer. One of before there were several is below the first.
    pub fn root_of(&self, issuer: &Issuer) -> Option<&Root> {
        match issuer.root {
            Some(fingerprint) => self.roots.iter().find(|root| root.fingerprint == fingerprint),
            None => self.roots.first(),
        }
    }

    /// Certificates by which a host that trusts a root of before comes to trust one of now: each until the root that signed it
    /// is retired, and after that as long as a recovery token may live, even if its own root is retired by then: it leads on
    /// to the next.
    pub fn cross_certificates(&self, now: Timestamp) -> impl Iterator<Item = &[u8]> {
        let before = |place: usize| place.checked_sub(1).and_then(|place| self.roots.get(place));
        self.roots.iter().enumerate().filter_map(move |(place, root)| {
            let needed = before(place).is_some_and(|before| {
                before.retired_at.is_none_or(|at| now < at.plus(self.policy.recovery_ttl))
            });
            let cross = root.cross_certificate.as_ref().filter(|_| needed)?;
            Some(cross.as_slice())
        })
    }

    /// The revocation lists of the roots that hosts trust, for whoever verifies a whole chain by lists.
    pub fn root_lists(&self) -> impl Iterator<Item = &RootList> {
        self.trusted_roots().filter_map(|root| self.lists.get(&root.fingerprint))
    }

    /// Those that hosts and operators' command lines are sent: a list that denies no issuer tells them nothing.
    pub fn denying_lists(&self) -> impl Iterator<Item = &RootList> {
        self.root_lists().filter(|list| list.denies_any())
    }
}
