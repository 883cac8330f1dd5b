//! The domain's certificate authority: what is trusted, what signs, how far it has spread.

use lifecycle::registry::{Issuer, IssuerState, Owner, State, Tenants};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

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
    /// `sealed`, `imported` or `ephemeral`: in the memory of one replica, for certificates of nodes only.
    pub kind: String,
    /// `prepared`, `active`, `retiring`, `retired` or `revoked`.
    pub state: String,
    pub subject: String,
    pub fingerprint: String,
    pub not_after: String,
    /// How many valid certificates of nodes it has issued; for an operator of some tenants, of their nodes.
    pub leaves: u64,
    /// How many other valid certificates it has issued: operators', and the control plane's own. It can be retired when both are 0.
    /// For an operator of some tenants always 0: none of these belongs to a tenant.
    #[serde(default)]
    pub other_leaves: u64,
    /// Whether it signs a revocation list. An ephemeral one never does: the control plane itself refuses what is revoked.
    pub crl: bool,
    /// Of an ephemeral one: the replica whose memory holds its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<String>,
}

/// How many nodes have the newest bundle, of those that need it; for an operator of some tenants, of their nodes.
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

/// The progress of a roll.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Roll {
    /// `none`, `requested` (a certificate is awaited), `prepared` (ready to be activated) or `retiring` (the
    /// previous issuer still has valid certificates).
    pub stage: String,
    /// The pending CSR, PEM.
    #[schema(required)]
    pub request: Option<String>,
    /// The issuer that is being rolled in or out.
    #[schema(required)]
    pub issuer: Option<String>,
    pub bundle_version: u64,
    pub adoption: Adoption,
    /// Nodes that do not have the new trust bundle yet, at most 100; for an operator of some tenants, of theirs.
    pub missing: Vec<String>,
}

const MISSING: usize = 100;

impl Roll {
    /// As an operator of these tenants sees it.
    pub fn of(state: &State, tenants: &Tenants) -> Self {
        let in_state = |wanted: IssuerState| state.domain_issuer_in(wanted);
        let (stage, issuer) = match (in_state(IssuerState::Prepared), &state.roll) {
            (Some(issuer), _) => ("prepared", Some(issuer)),
            (None, Some(_)) => ("requested", None),
            (None, None) => match in_state(IssuerState::Retiring) {
                Some(issuer) => ("retiring", Some(issuer)),
                None => ("none", None),
            },
        };
        let (current, total) = state.adoption_in(tenants);
        let missing = state.lagging().filter(|node| tenants.include(&node.tenant));
        Self {
            stage: stage.to_owned(),
            request: state.roll.as_ref().map(|roll| roll.request.clone()),
            issuer: issuer.map(|issuer| issuer.id.to_string()),
            bundle_version: state.bundle_version,
            adoption: Adoption { current, total },
            missing: missing.take(MISSING).map(|node| node.id.to_string()).collect(),
        }
    }
}

/// Begins a roll, or installs the issuer's signed certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = PrepareRoll)]
pub struct PrepareRollRequest {
    /// The issuer's certificate, signed by the root, PEM; when absent, the CSR is returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ActivateIssuer)]
pub struct ActivateIssuerRequest {
    /// The prepared one, if none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// Even if some nodes do not have the new trust bundle yet.
    #[serde(default)]
    pub force: bool,
    /// The issuer's id again, where `confirmation_needed` asks for it: a forced activation that some nodes cannot follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RetireIssuer {
    /// The one that was active before, if none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeIssuer {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The issuer's id again, where `confirmation_needed` asks for it: the issuer is the only active one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Rewrap)]
pub struct RewrapRequest {
    /// Where the control plane finds the new key: `file:PATH` (made if missing) or `env:NAME`.
    pub kek: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Rewrapped {
    /// Identifies the key-encryption key without revealing it.
    pub kek_id: String,
    /// What may make the key unreadable at the next start.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// Which list of revocations, and how it is written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct CrlQuery {
    /// `der` (default) or `pem`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// The issuer that signs now, if none is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
}

impl Ca {
    /// As an operator of these tenants sees it. None before the domain is founded.
    pub fn of(state: &State, tenants: &Tenants) -> Option<Self> {
        let root = state.roots.last()?;
        let (current, total) = state.adoption_in(tenants);
        Some(Self {
            root: RootItem { fingerprint: root.fingerprint.pin(), not_after: root.not_after.to_string() },
            issuers: state.issuers.values().map(|issuer| IssuerItem::of(state, issuer, tenants)).collect(),
            bundle_version: state.bundle_version,
            adoption: Adoption { current, total },
        })
    }
}

impl IssuerItem {
    fn of(state: &State, issuer: &Issuer, tenants: &Tenants) -> Self {
        let all = *tenants == Tenants::All;
        let (mut leaves, mut other_leaves) = (0, u64::from(all && state.presents_leaf_of(&issuer.id)));
        for owner in state.good_leaves(&issuer.id) {
            match owner {
                Owner::Node(id) => {
                    let node = state.nodes.get(id).filter(|node| tenants.include(&node.tenant));
                    leaves += u64::from(node.is_some());
                }
                Owner::Operator(_) => other_leaves += u64::from(all),
            }
        }
        Self {
            id: issuer.id.to_string(),
            kind: issuer.kind.as_str().to_owned(),
            state: issuer.state.as_str().to_owned(),
            subject: issuer.subject.clone(),
            fingerprint: issuer.fingerprint.pin(),
            not_after: issuer.not_after.to_string(),
            leaves,
            other_leaves,
            crl: !issuer.sealed_key.is_empty(),
            replica: issuer.replica.map(|replica| replica.to_string()),
        }
    }
}
