//! Repairing: an operator's recovery token for a node that has nothing left to recover with. The node is held
//! until it has come back with it and stayed.

use super::{RecoveryKind, RecoveryToken};
use crate::names::{Fingerprint, Label, NodeId, Span, Timestamp};
use crate::registry::apply::Decision;
use crate::registry::event::{AuditField, AuditFields, Happened, NodeQuarantined, NodeReleased};
use crate::registry::node::living;
use crate::registry::policy::TOKEN_TTL_MIN;
use crate::registry::{AlertKind, Envelope, Event, Mint, Node, NodeState, Recovery, Rejection, State};
use serde::{Deserialize, Serialize};

/// Gives an operator a recovery token for a node, and holds the node until it has proven itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssueRepairBundle {
    pub node: NodeId,
    pub mint: Mint,
    /// A day when none is named.
    pub ttl: Option<Span>,
    /// Where the node will turn to: recorded only.
    pub profile: Label,
    /// What the bundle says of that place, so that a changed bundle is known by it; none in commands of before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<BundleEndpoint>,
}

/// Where a bundle sends its host, and what the host trusts there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleEndpoint {
    pub url: String,
    /// Of the certificates as they stand in the bundle.
    pub ca: Fingerprint,
}

/// How long a repair bundle is good when nothing is said.
const DEFAULT_TTL: Span = Span::from_hours(24);
const REASON: &str = "repair bundle issued";

/// What is on record of a repair bundle: the line of the audit trail that says that it was issued, by whom, and where
/// the node was to turn to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleRecord {
    pub seq: u64,
    pub hash: String,
    pub profile: String,
    pub issued_by: String,
    /// Not on record of bundles of before.
    pub url: Option<String>,
    pub ca: Option<String>,
}

/// What a repair bundle says of itself, as a host sends it. What an agent of before does not send is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleClaim {
    pub seq: u64,
    pub hash: String,
    pub profile: String,
    pub expires_at: Timestamp,
    pub domain: Option<String>,
    pub issued_by: Option<String>,
    pub issued_at: Option<String>,
    pub url: Option<String>,
    pub ca: Option<String>,
}

/// Whether a token may be redeemed with what came beside it: one from a repair bundle only with the bundle as it was
/// issued. A difference uses nothing up.
pub fn check_bundle(
    state: &State,
    token: &RecoveryToken,
    claimed: Option<&BundleClaim>,
    recorded: Option<&BundleRecord>,
) -> Result<(), Rejection> {
    let unchanged = claimed
        .zip(recorded)
        .is_some_and(|(claimed, recorded)| is_unchanged(state, token, claimed, recorded));
    match token.kind {
        RecoveryKind::Rotated => Ok(()),
        RecoveryKind::Repair if unchanged => Ok(()),
        RecoveryKind::Repair => Err(Rejection::RepairBundleMismatch),
    }
}

fn is_unchanged(
    state: &State,
    token: &RecoveryToken,
    claimed: &BundleClaim,
    recorded: &BundleRecord,
) -> bool {
    // An agent of before says none of these; whoever says one says all.
    let said_all = [&claimed.domain, &claimed.issued_by, &claimed.issued_at, &claimed.url, &claimed.ca];
    let of_before = said_all.into_iter().all(Option::is_none);
    let said = |claimed: &Option<String>, true_one: &str| match claimed {
        Some(word) => word == true_one,
        None => of_before,
    };
    let noted = |claimed: &Option<String>, recorded: &Option<String>| {
        recorded.as_ref().is_none_or(|true_one| said(claimed, true_one))
    };
    let domain = state.domain.as_ref().map(|domain| domain.name.to_string()).unwrap_or_default();
    (claimed.seq, &claimed.hash, &claimed.profile) == (recorded.seq, &recorded.hash, &recorded.profile)
        && claimed.expires_at == token.expires_at
        && said(&claimed.domain, &domain)
        && said(&claimed.issued_by, &recorded.issued_by)
        && said(&claimed.issued_at, &token.minted_at.to_string())
        && noted(&claimed.url, &recorded.url)
        && noted(&claimed.ca, &recorded.ca)
}

pub(in crate::registry) fn issue(state: &State, issue: &IssueRepairBundle) -> Decision {
    match repairable(state, issue) {
        Err(rejection) => rejection.into(),
        Ok((node, life)) => {
            let held = (!node.quarantined).then(|| {
                Event::NodeQuarantined(NodeQuarantined { node: node.id.clone(), reason: REASON.to_owned() })
            });
            let issued = Event::RepairBundleIssued(RepairBundleIssued {
                node: node.id.clone(),
                token: RecoveryToken::of(
                    issue.mint,
                    RecoveryKind::Repair,
                    Some(issue.profile.clone()),
                    state.at,
                    life,
                ),
                profile: issue.profile.clone(),
                endpoint: issue.endpoint.clone(),
                // What else a node is in quarantine for, a repair does not end.
                ends_quarantine: !node.quarantined || node.recovery.repairing,
            });
            Decision::granted(held.into_iter().chain([issued]).collect())
        }
    }
}

/// The node, and for how long its bundle is good.
fn repairable<'a>(state: &'a State, issue: &IssueRepairBundle) -> Result<(&'a Node, Span), Rejection> {
    let node = living(state, &issue.node)?;
    if node.state == NodeState::Registered || node.serials.is_empty() {
        return Err(Rejection::NoCertificate { node: node.id.clone() });
    }
    let longest = state.policy.recovery_ttl;
    let life = issue.ttl.unwrap_or_else(|| DEFAULT_TTL.min(longest));
    if issue.ttl.is_some_and(|ttl| ttl < TOKEN_TTL_MIN) {
        return Err(Rejection::TokenTtlTooShort { min: TOKEN_TTL_MIN });
    }
    if life > longest {
        return Err(Rejection::TokenTtlTooLong { max: longest });
    }
    let Mint { token, hash } = issue.mint;
    let taken = state.recovery_by_hash.contains_key(&hash)
        || state.token_by_hash.contains_key(&hash)
        || node.recovery.token(token).is_some();
    if taken { Err(Rejection::PreparedStale) } else { Ok((node, life)) }
}

/// The repair has proven itself. Whoever is suspected of being a copy stays where it is.
pub(in crate::registry) fn end(state: &State, id: &NodeId) -> Decision {
    match living(state, id) {
        Err(rejection) => rejection.into(),
        Ok(node) => {
            let proven = node.quarantined
                && node.state == NodeState::Active
                && node.recovery.is_repaired()
                && state.open_alert(AlertKind::CloneSuspected, Some(id)).is_none();
            let released = proven.then(|| Event::NodeReleased(NodeReleased { node: id.clone() }));
            Decision::granted(released.into_iter().collect())
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairBundleIssued {
    pub node: NodeId,
    pub token: RecoveryToken,
    pub profile: Label,
    pub endpoint: Option<BundleEndpoint>,
    /// Whether the node's quarantine is over when it has come back with it.
    pub ends_quarantine: bool,
}

impl Happened for RepairBundleIssued {
    const NAME: &'static str = "repair_bundle.issued";

    fn fields(&self) -> AuditFields {
        let mut fields = vec![
            ("node_id", AuditField::text(&self.node)),
            ("recovery_token_id", AuditField::text(self.token.id)),
            ("expires_at", AuditField::text(self.token.expires_at)),
            ("recovery_profile_id", AuditField::text(&self.profile)),
        ];
        if let Some(endpoint) = &self.endpoint {
            fields.push(("recovery_url", AuditField::text(&endpoint.url)));
            fields.push(("recovery_ca_sha256", AuditField::text(endpoint.ca.pin())));
        }
        fields
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        state.mint_recovery(&self.node, &self.token, Recovery::repair);
        state.change_recovery(&self.node, |recovery| recovery.repairing = self.ends_quarantine);
    }
}
