//! The domain's certificate authority: what is trusted, what signs, how far it has spread.

use lifecycle::registry::{Issuer, IssuerKind, IssuerState, Owner, State};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// The trust bundle that hosts get. It counts up with every change; founding makes the first.
const FIRST_BUNDLE: u64 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ca {
    pub root: RootItem,
    pub issuers: Vec<IssuerItem>,
    pub bundle_version: u64,
    pub adoption: Adoption,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RootItem {
    /// `sha256:` and 64 hex digits: what `--ca-pin` takes.
    pub fingerprint: String,
    pub not_after: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IssuerItem {
    pub id: String,
    /// `sealed` or `imported`.
    pub kind: String,
    /// `active`.
    pub state: String,
    pub subject: String,
    pub fingerprint: String,
    pub not_after: String,
    /// How many live certificates hang on it.
    pub leaves: u64,
}

/// How many nodes have the newest bundle, of those that need it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Adoption {
    pub current: u64,
    pub total: u64,
}

/// Which of the two bundles, never mixed: a CA that may issue node certificates cannot play the control plane.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct BundleQuery {
    /// What hosts trust to reach the control plane, instead of what verifies nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<bool>,
}

impl Ca {
    /// None before the domain is founded.
    pub fn of(state: &State) -> Option<Self> {
        let root = state.roots.last()?;
        let holders = state.nodes.values().filter(|node| !node.state.is_gone() && !node.serials.is_empty());
        // There is one bundle so far, and every node got it with its certificate.
        let holders = u64::try_from(holders.count()).unwrap_or(u64::MAX);
        Some(Self {
            root: RootItem { fingerprint: root.fingerprint.pin(), not_after: root.not_after.to_string() },
            issuers: state.issuers.values().map(|issuer| IssuerItem::of(state, issuer)).collect(),
            bundle_version: FIRST_BUNDLE,
            adoption: Adoption { current: holders, total: holders },
        })
    }
}

impl IssuerItem {
    fn of(state: &State, issuer: &Issuer) -> Self {
        let leaves = state.certificates.iter().filter(|(serial, certificate)| {
            certificate.issuer == issuer.id
                && matches!(certificate.owner, Owner::Node(_))
                && certificate.is_live(state.at)
                && !state.is_denied(serial)
        });
        Self {
            id: issuer.id.to_string(),
            kind: match issuer.kind {
                IssuerKind::Sealed => "sealed",
                IssuerKind::Imported => "imported",
            }
            .to_owned(),
            state: match issuer.state {
                IssuerState::Active => "active",
            }
            .to_owned(),
            subject: issuer.subject.clone(),
            fingerprint: issuer.fingerprint.pin(),
            not_after: issuer.not_after.to_string(),
            leaves: u64::try_from(leaves.count()).unwrap_or(u64::MAX),
        }
    }
}
