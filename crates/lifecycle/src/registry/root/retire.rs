//! Retiring a root: it leaves every trust bundle, and its issuers verify nobody any more.

use crate::names::{Fingerprint, IssuerId, NodeId, OperatorName};
use crate::registry::apply::Decision;
use crate::registry::confirmation::named_operators;
use crate::registry::event::{AuditField, AuditFields, Happened};
use crate::registry::issuer::retire::{IssuerRetired, WhoseUse, in_use, not_retiring};
use crate::registry::{
    Actor, Confirmation, Envelope, Event, Issuer, IssuerState, Owner, Rejection, Root, RootState, State,
};
use std::collections::{BTreeMap, BTreeSet};

/// How many nodes a refusal names.
const NODES: usize = 10;

/// `force` leaves behind hosts that hold a certificate under it or have not stored its successor: these have to recover, for
/// which the cross-certificate is presented as long as a recovery token may live.
pub(in crate::registry) fn retire(
    state: &State,
    actor: &Actor,
    fingerprint: &Fingerprint,
    force: bool,
    confirm: &Confirmation,
    counts_operators: bool,
) -> Decision {
    let Some(root) = state.roots.iter().find(|root| root.fingerprint == *fingerprint) else {
        return Rejection::NoRoll.into();
    };
    match root.state {
        RootState::Retired => return Decision::granted(Vec::new()),
        RootState::Retiring => {}
        RootState::Prepared => {
            let what = "the root is prepared, and nothing is issued under it yet".to_owned();
            return Rejection::RollInProgress { what, active: false }.into();
        }
        RootState::Active => {
            return Rejection::RootInUse { root: *fingerprint, nodes: Vec::new(), total: 0 }.into();
        }
    }
    let issuers: Vec<&Issuer> = below(state, root).filter(|issuer| issuer.state.is_trusted()).collect();
    if let Some(issuer) = issuers.iter().find(|issuer| issuer.state != IssuerState::Retiring) {
        return not_retiring(state, issuer).into();
    }
    let is_used = |issuer: &&Issuer| {
        let held = !force && state.good_certificates(&issuer.id).next().is_some();
        held || state.control_plane_uses(&issuer.id)
    };
    let used: Vec<&Issuer> = issuers.iter().copied().filter(is_used).collect();
    let whose = if force { WhoseUse::ControlPlane } else { WhoseUse::All };
    if let Some(refused) = in_use(state, &used, whose) {
        return refused.into();
    }
    let lacking: Vec<&NodeId> = state.without_root(state.active_root()).collect();
    if !lacking.is_empty() && !force {
        let nodes = lacking.iter().take(NODES).map(ToString::to_string).collect();
        let total = lacking.len() as u64;
        return Rejection::RootInUse { root: *fingerprint, nodes, total }.into();
    }
    let stranded = Stranded::of(state, &issuers, lacking);
    if let Some(consequence) = stranded.consequence(actor)
        && let Err(needed) = confirm.check(&fingerprint.pin(), &consequence, stranded.affected())
    {
        return needed.into();
    }
    let retired = RootRetired {
        root: *fingerprint,
        forced: force,
        // Commands of before counted the others under this name, and their lines stay what they were.
        left_behind: if confirm.is_not_asked() { stranded.lacking.len() } else { stranded.below.len() }
            as u64,
        without_new_root: (!confirm.is_not_asked()).then_some(stranded.lacking.len() as u64),
        operators_left_behind: counts_operators.then_some(stranded.operators.len() as u64),
    };
    let issuers = issuers.into_iter().map(|issuer| retired_with(&issuer.id));
    Decision::granted(issuers.chain([Event::RootRetired(retired)]).collect())
}

fn retired_with(issuer: &IssuerId) -> Event {
    Event::IssuerRetired(IssuerRetired { issuer: issuer.clone() })
}

fn below<'a>(state: &'a State, root: &'a Root) -> impl Iterator<Item = &'a Issuer> {
    state.issuers.values().filter(|issuer| {
        issuer.is_of_domain()
            && state.root_of(issuer).is_some_and(|above| above.fingerprint == root.fingerprint)
    })
}

/// Whom a root takes along that is retired by force.
struct Stranded<'a> {
    /// Nodes whose only good certificates are below it: these are refused, and have to recover.
    below: BTreeSet<&'a NodeId>,
    /// Nodes that have not stored its successor.
    lacking: Vec<&'a NodeId>,
    /// Operators whose only good certificates are below it.
    operators: BTreeSet<&'a OperatorName>,
}

impl<'a> Stranded<'a> {
    fn of(state: &'a State, issuers: &[&Issuer], lacking: Vec<&'a NodeId>) -> Self {
        let ending: BTreeSet<&IssuerId> = issuers.iter().map(|issuer| &issuer.id).collect();
        let (mut nodes, mut operators) = (BTreeMap::new(), BTreeMap::new());
        for (serial, held) in &state.certificates {
            if !state.is_good(serial) {
                continue;
            }
            let ends = ending.contains(&held.issuer);
            match &held.owner {
                Owner::Node(node) => *nodes.entry(node).or_insert(true) &= ends,
                Owner::Operator(name) => *operators.entry(name).or_insert(true) &= ends,
                // The root is not retired before the replicas have certificates below another.
                Owner::Replica(_) | Owner::Bootstrap(_) => {}
            }
        }
        let below = nodes.into_iter().filter(|(_, ends)| *ends).map(|(node, _)| node).collect();
        let operators = operators.into_iter().filter(|(_, ends)| *ends).map(|(name, _)| name).collect();
        Self { below, lacking, operators }
    }

    fn affected(&self) -> u64 {
        self.below.iter().chain(&self.lacking).collect::<BTreeSet<_>>().len() as u64
    }

    /// In words, if there is anybody.
    fn consequence(&self, actor: &Actor) -> Option<String> {
        let named = |nodes: &mut dyn ExactSizeIterator<Item = &NodeId>| {
            let more = nodes.len().saturating_sub(NODES);
            let names: Vec<&str> = nodes.take(NODES).map(NodeId::as_str).collect();
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            format!("{}{more}", names.join(", "))
        };
        let mut parts = Vec::new();
        if !self.below.is_empty() {
            parts.push(format!(
                "nodes whose certificates are below this root are refused at once and have to recover ({}): {}",
                self.below.len(),
                named(&mut self.below.iter().copied())
            ));
        }
        if !self.lacking.is_empty() {
            parts.push(format!(
                "nodes that have not stored the new root ({}): {}",
                self.lacking.len(),
                named(&mut self.lacking.iter().copied())
            ));
        }
        if !self.operators.is_empty() {
            parts.push(format!(
                "operators whose certificates are below this root are refused at once {}; an operator who runs `enlist operator renew` first avoids that",
                named_operators(&self.operators, actor)
            ));
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

impl State {
    /// Nodes that hold a good certificate and have not said that they have stored this root.
    fn without_root<'a>(&'a self, root: Option<&'a Root>) -> impl Iterator<Item = &'a NodeId> {
        let since = root.map_or(0, |root| root.since_bundle);
        self.holders().filter(move |node| node.stored_bundle < since).map(|node| &node.id)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootRetired {
    pub root: Fingerprint,
    pub forced: bool,
    /// How many nodes had good certificates only below it, and have to recover. Of a command of before, how many with a good
    /// certificate had not stored its successor.
    pub left_behind: u64,
    /// How many nodes with a good certificate had not stored its successor; nothing of a command of before.
    pub without_new_root: Option<u64>,
    /// How many operators had good certificates only below it; nothing of a command of before.
    pub operators_left_behind: Option<u64>,
}

impl Happened for RootRetired {
    const NAME: &'static str = "ca.root_retired";

    fn fields(&self) -> AuditFields {
        let mut fields = vec![
            ("root_fingerprint", AuditField::text(self.root.labelled())),
            ("forced", AuditField::Flag(self.forced)),
            ("left_behind", AuditField::Number(self.left_behind)),
        ];
        fields.extend(self.without_new_root.map(|nodes| ("without_new_root", AuditField::Number(nodes))));
        let operators = self.operators_left_behind;
        fields.extend(operators.map(|count| ("operators_left_behind", AuditField::Number(count))));
        fields
    }

    fn peer(&self) -> Option<&NodeId> {
        None
    }

    fn fold(&self, state: &mut State, _envelope: &Envelope) {
        let at = state.at;
        for root in state.roots.iter_mut().filter(|root| root.fingerprint == self.root) {
            root.state = RootState::Retired;
            root.retired_at = Some(at);
        }
        // What it denied is denied with it.
        state.lists.remove(&self.root);
        state.bundle_version += 1;
        // Certificates that were good may have ended with its issuers.
        state.denials += u64::from(self.forced);
    }
}
