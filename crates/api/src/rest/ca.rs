//! The domain's certificate authority: what is trusted, what signs, how far it has spread.

use lifecycle::names::{Fingerprint, IssuerUse};
use lifecycle::registry::{
    Issuer, IssuerKind, IssuerState, Owner, Root, RootList, RootState, State, Tenants,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use utoipa::{IntoParams, ToSchema};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ca {
    /// The active one.
    pub root: RootItem,
    /// Every root that is or was trusted, the oldest first.
    #[serde(default)]
    pub roots: Vec<RootItem>,
    pub issuers: Vec<IssuerItem>,
    pub bundle_version: u64,
    pub adoption: Adoption,
    /// The revocation lists of the roots, by which hosts refuse issuers.
    #[serde(default)]
    pub lists: Vec<RootListItem>,
    /// Whether `leaves`, `other_leaves` and `adoption` count everything; otherwise they count the nodes of the operator's tenants only.
    #[serde(default = "every_tenant")]
    pub all_tenants: bool,
}

/// Of a control plane of before, which did not say.
fn every_tenant() -> bool {
    true
}

/// The newest revocation list of a root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RootListItem {
    /// The fingerprint of the root that signed it.
    pub root: String,
    pub number: u64,
    /// Serials of issuer certificates that hosts refuse.
    pub denied: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RootItem {
    /// `sha256:` and 64 hex digits: what `--ca-pin` takes.
    pub fingerprint: String,
    pub not_after: String,
    /// `prepared`, `active`, `retiring` or `retired`.
    #[serde(default)]
    pub state: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IssuerItem {
    pub id: String,
    /// `sealed`, `imported`, `pkcs11` (in an HSM), `ephemeral` (in the memory of one replica, for certificates of nodes only) or
    /// `spire`: a CA of another trust domain whose SVIDs this replica accepts; nothing is issued by it.
    pub kind: String,
    /// `node` (certificates of nodes and operators), `server` (the control plane's own) or `both`.
    #[serde(rename = "use", default)]
    pub usage: String,
    /// `prepared`, `active`, `retiring`, `retired` or `revoked`.
    pub state: String,
    pub subject: String,
    pub fingerprint: String,
    /// Of its certificate, in hex, as revocation lists name it.
    #[serde(default)]
    pub serial: String,
    pub not_after: String,
    /// How many valid certificates of nodes it has issued; for an operator of some tenants, of their nodes.
    pub leaves: u64,
    /// How many other valid certificates it has issued: operators', and those of the control plane and its replicas. It can be retired when both are 0.
    /// For an operator of some tenants always 0: none of these belongs to a tenant.
    #[serde(default)]
    pub other_leaves: u64,
    /// Whether it signs a revocation list. An ephemeral one never does: the control plane itself refuses what is revoked.
    pub crl: bool,
    /// Of an ephemeral one: the replica whose memory holds its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<String>,
    /// The fingerprint of the root above it; an ephemeral one has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// Of an active or prepared one whose key is in an HSM: why it does not sign now, in `GET /v1/ca` for operators of all tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
    /// Of a CA of another trust domain: that domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust_domain: Option<String>,
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
    /// Without issuers that verify no node: those of the control plane's own certificates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<bool>,
    /// Only the certificate of this issuer, whatever its state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
}

/// What the control plane offers to be verified by. Whoever takes it holds it against what they trust already.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OfferedTrust {
    /// The roots, and the cross-certificates by which one that was trusted before vouches for them; PEM.
    pub bundle: String,
    /// The revocation lists of the roots, which name issuers to refuse, PEM; empty if there is none.
    pub root_crls: String,
}

/// The progress of a roll.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Roll {
    /// `none`, `requested` (certificates are awaited), `prepared` (ready to be activated) or `retiring` (the
    /// previous issuers or the previous root still have valid certificates).
    pub stage: String,
    /// Whether a new root comes with the issuers, or the previous root is retiring.
    #[serde(default)]
    pub new_root: bool,
    /// What the issuers of the roll are for: `node`, `server` or both of them, in this order.
    #[serde(default)]
    pub uses: Vec<String>,
    /// Where the keys of the next issuers are kept, one for each of `uses`: `sealed` or `pkcs11`; nothing unless `requested` or
    /// `prepared`.
    #[serde(default)]
    pub kinds: Vec<String>,
    /// The pending CSRs, PEM, one after the other.
    #[schema(required)]
    pub request: Option<String>,
    /// The issuer that is being rolled in or out, the first of `issuers`.
    #[schema(required)]
    pub issuer: Option<String>,
    /// Issuers of nodes first.
    #[serde(default)]
    pub issuers: Vec<String>,
    /// The issuers of before that are not retired yet, at any stage: another roll may begin before they are.
    #[serde(default)]
    pub retiring: Vec<String>,
    /// The fingerprint of the root of before, while it is not retired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retiring_root: Option<String>,
    pub bundle_version: u64,
    pub adoption: Adoption,
    /// Nodes that do not have the new trust bundle yet, at most 100; for an operator of some tenants, of theirs.
    pub missing: Vec<String>,
    /// The uses for which no issuer signs now, `node` or `server`: nothing of that use can be issued until one is activated.
    #[serde(default)]
    pub without_issuer: Vec<String>,
    /// Issuers, active or prepared, that the revocation list of their root denies.
    #[serde(default)]
    pub denied: Vec<String>,
    /// The uses whose active issuer is denied, `node` or `server`: with `server`, hosts that have the list refuse the control plane
    /// until another issuer is activated.
    #[serde(default)]
    pub denied_uses: Vec<String>,
}

/// What is left of a roll that was given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AbandonedRoll {
    #[serde(flatten)]
    pub roll: Roll,
    /// The new root of the roll, if its certificates had come back. It is trusted by nobody, and another root has certified it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certified_root: Option<AbandonedRoot>,
}

/// A root that was given up, and the certificate by which hosts would follow it still.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AbandonedRoot {
    pub fingerprint: String,
    /// The fingerprint of the root that signed the cross-certificate, and whose revocation list can deny it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certified_by: Option<String>,
    pub cross_certificate: CrossCertificate,
}

/// A root's key, certified by another root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CrossCertificate {
    /// In hex, as revocation lists name it.
    pub serial: String,
    pub fingerprint: String,
    pub not_after: String,
    pub pem: String,
}

const MISSING: usize = 100;

impl Roll {
    /// As an operator of these tenants sees it; `serial` reads the certificate of an issuer.
    pub fn of(state: &State, tenants: &Tenants, serial: impl Fn(&Issuer) -> String) -> Self {
        let (prepared, retiring) =
            (state.issuers_by_use(IssuerState::Prepared), state.issuers_by_use(IssuerState::Retiring));
        let old_root = state.root_in(RootState::Retiring);
        let (stage, issuers, new_root) = if !prepared.is_empty() {
            ("prepared", prepared.as_slice(), state.root_in(RootState::Prepared).is_some())
        } else if let Some(pending) = &state.pending_roll {
            ("requested", [].as_slice(), pending.new_root)
        } else if state.roll.is_some() {
            ("requested", [].as_slice(), false)
        } else if !retiring.is_empty() || old_root.is_some() {
            ("retiring", retiring.as_slice(), old_root.is_some())
        } else {
            ("none", [].as_slice(), false)
        };
        let requests = state.pending_roll.iter().flat_map(|pending| &pending.requests);
        let next = requests.clone().map(|request| (request.usage, request.kind));
        let next = next.chain(prepared.iter().map(|issuer| (issuer.usage, issuer.kind)));
        let next: BTreeMap<IssuerUse, IssuerKind> = next.collect();
        let uses: BTreeSet<IssuerUse> = if next.is_empty() {
            issuers.iter().map(|issuer| issuer.usage).collect()
        } else {
            next.keys().copied().collect()
        };
        let before = state.roll.iter().map(|roll| roll.request.as_str());
        let pem: String = requests.map(|request| request.request.as_str()).chain(before).collect();
        let (current, total) = state.adoption_in(tenants);
        let missing = state.lagging().filter(|node| tenants.include(&node.tenant));
        let active = state.issuers_by_use(IssuerState::Active);
        let is_denied = |issuer: &&Issuer| is_denied(state, issuer, &serial(issuer));
        let signs_denied = |signs: fn(IssuerUse) -> bool| {
            active.iter().copied().any(|issuer| signs(issuer.usage) && is_denied(&issuer))
        };
        let denied_uses = [
            (IssuerUse::Node, signs_denied(IssuerUse::signs_clients)),
            (IssuerUse::Server, signs_denied(IssuerUse::signs_servers)),
        ];
        let denied_uses = denied_uses.into_iter().filter(|(_, is_denied)| *is_denied);
        let issuers = ids(issuers.iter().copied());
        Self {
            stage: stage.to_owned(),
            new_root,
            uses: uses.iter().map(ToString::to_string).collect(),
            kinds: next.values().map(|kind| kind.as_str().to_owned()).collect(),
            request: Some(pem).filter(|pem| !pem.is_empty()),
            issuer: issuers.first().cloned(),
            issuers,
            retiring: ids(retiring.iter().copied()),
            retiring_root: old_root.map(|root| root.fingerprint.pin()),
            bundle_version: state.bundle_version,
            adoption: Adoption { current, total },
            missing: missing.take(MISSING).map(|node| node.id.to_string()).collect(),
            without_issuer: state.uses_without_issuer(state.at).iter().map(ToString::to_string).collect(),
            denied: ids(active.iter().chain(&prepared).copied().filter(is_denied)),
            denied_uses: denied_uses.map(|(usage, _)| usage.to_string()).collect(),
        }
    }
}

fn ids<'a>(issuers: impl Iterator<Item = &'a Issuer>) -> Vec<String> {
    issuers.map(|issuer| issuer.id.to_string()).collect()
}

/// Whether the list of its root names the certificate of an issuer.
fn is_denied(state: &State, issuer: &Issuer, serial: &str) -> bool {
    let list = state.root_of(issuer).and_then(|root| state.lists.get(&root.fingerprint));
    list.is_some_and(|list| list.denied.iter().any(|denied| denied.to_string() == serial))
}

/// Begins a roll, or installs the issuer's signed certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = PrepareRoll)]
pub struct PrepareRollRequest {
    /// The issuers' certificates, signed by the root, PEM; with a new root, that root and its cross-certificate too. When absent,
    /// the CSRs are returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// What the next issuer is for: `node` (default), `server`, or `both` for one of each. A domain that has one issuer for both gets
    /// one for each; a new root always brings one of each, and takes no `use`. With `certificate` it is compared with the roll in progress.
    #[serde(rename = "use", default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<String>,
    /// Roll the root as well, and both issuers with it.
    #[serde(default)]
    pub new_root: bool,
    /// Where the new keys are kept: `sealed` or `pkcs11`; as those of the active issuer, if absent. Not with `certificate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
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
    /// Everything that was active before, if none is named: issuers, and with a new root the root above them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// Retire the previous root even if nodes depend on it: these have to recover. Refused where no root is retiring.
    #[serde(default)]
    pub force: bool,
    /// The fingerprint of the root that retires, where `confirmation_needed` asks for it: a forced retirement that leaves nodes behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = AbandonRoll)]
pub struct AbandonRollRequest {
    /// The id of the first prepared issuer (`issuer` in `GET /v1/ca/roll`), where `confirmation_needed` asks for it: certificates have
    /// come back for this roll.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
}

/// A revocation list that a root has signed: the issuers that hosts refuse.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ImportRootList)]
pub struct ImportRootListRequest {
    /// PEM, as `enlist ca sign-crl` writes it.
    pub list: String,
    /// The issuer's id, where `confirmation_needed` asks for it: the list denies an issuer that signs or is about to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeIssuer {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The issuer's id again, where `confirmation_needed` asks for it: the issuer is the only active one, or nodes or operators use
    /// certificates of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
}

/// How step-ca is asked; what is left out stays as it is.
#[derive(Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StepCaSettings {
    /// `https://HOST[:PORT]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The root certificate, PEM. Another one is another issuer; the one before verifies what it has signed until that has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// Name of the JWK provisioner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioner: Option<String>,
    /// The provisioner's private key, base64 of what `enlist` reads from its JWK; together with `key_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// By which step-ca knows that key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_id: Option<String>,
}

/// The key is in no log.
impl std::fmt::Debug for StepCaSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StepCaSettings")
            .field("url", &self.url)
            .field("provisioner", &self.provisioner)
            .finish_non_exhaustive()
    }
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
    /// Only the list of this issuer. Without it, DER is the list of the issuer that signs for nodes now, and PEM are the lists of all
    /// trusted issuers, that one first, and then those of the roots: what a verifier wants who checks every certificate of a chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// Only the lists of the roots, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub roots: Option<bool>,
}

impl Ca {
    /// As an operator of these tenants sees it; `serial` reads the certificate of an issuer. None before the domain is founded.
    pub fn of(state: &State, tenants: &Tenants, serial: impl Fn(&Issuer) -> String) -> Option<Self> {
        let root = state.active_root()?;
        let (current, total) = state.adoption_in(tenants);
        Some(Self {
            root: RootItem::of(root),
            roots: state.roots.iter().map(RootItem::of).collect(),
            issuers: in_order(state)
                .into_iter()
                .map(|issuer| IssuerItem { serial: serial(issuer), ..IssuerItem::of(state, issuer, tenants) })
                .collect(),
            bundle_version: state.bundle_version,
            adoption: Adoption { current, total },
            lists: state.lists.iter().map(|(root, list)| RootListItem::of(root, list)).collect(),
            all_tenants: *tenants == Tenants::All,
        })
    }
}

/// Issuers of nodes first, and of each use what signs first.
fn in_order(state: &State) -> Vec<&Issuer> {
    let rank = |issuer: &&Issuer| {
        let place = match issuer.state {
            IssuerState::Active => 0,
            IssuerState::Prepared => 1,
            IssuerState::Retiring => 2,
            IssuerState::Retired => 3,
            IssuerState::Revoked => 4,
        };
        (issuer.issues_for() == IssuerUse::Server, place, !issuer.is_of_domain())
    };
    let mut issuers: Vec<&Issuer> = state.issuers.values().collect();
    issuers.sort_by_key(rank);
    issuers
}

impl RootItem {
    fn of(root: &Root) -> Self {
        Self {
            fingerprint: root.fingerprint.pin(),
            not_after: root.not_after.to_string(),
            state: root.state.as_str().to_owned(),
        }
    }
}

impl RootListItem {
    fn of(root: &Fingerprint, list: &RootList) -> Self {
        let denied = list.denied.iter().map(ToString::to_string).collect();
        Self { root: root.pin(), number: list.number, denied }
    }
}

impl IssuerItem {
    fn of(state: &State, issuer: &Issuer, tenants: &Tenants) -> Self {
        let all = *tenants == Tenants::All;
        let (mut leaves, mut other_leaves) = (0, if all { state.presented_leaves(&issuer.id) } else { 0 });
        for owner in state.good_leaves(&issuer.id) {
            match owner {
                Owner::Node(id) => {
                    let node = state.nodes.get(id).filter(|node| tenants.include(&node.tenant));
                    leaves += u64::from(node.is_some());
                }
                Owner::Operator(_) | Owner::Replica(_) | Owner::Bootstrap(_) => {
                    other_leaves += u64::from(all)
                }
            }
        }
        Self {
            id: issuer.id.to_string(),
            kind: issuer.kind.as_str().to_owned(),
            usage: issuer.issues_for().to_string(),
            state: issuer.state.as_str().to_owned(),
            subject: issuer.subject.clone(),
            fingerprint: issuer.fingerprint.pin(),
            serial: String::new(),
            not_after: issuer.not_after.to_string(),
            leaves,
            other_leaves,
            crl: !issuer.sealed_key.is_empty() && issuer.is_of_domain(),
            replica: issuer.replica.map(|replica| replica.to_string()),
            root: state.root_of(issuer).filter(|_| issuer.is_of_domain()).map(|root| root.fingerprint.pin()),
            unavailable: None,
            trust_domain: None,
        }
    }
}
