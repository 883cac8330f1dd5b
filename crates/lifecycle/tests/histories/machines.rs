//! The rules of machines and vClusters once more, in plain words.

use lifecycle::names::{KeyHash, NodeId, Serial, TenantId, Timestamp, VclusterId};
use lifecycle::registry::{
    Applied, ConfigNews, Enroll, Event, HardwareIdentity, IssuerState, NodeState, Outcome, State, Vclusters,
    event,
};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub struct Machines {
    /// What was registered last under an id.
    registered: BTreeMap<NodeId, HardwareIdentity>,
    /// Enrollments by hardware that were the latest of their nodes.
    boots: BTreeMap<NodeId, Boot>,
    vclusters: BTreeMap<VclusterId, TenantId>,
    placed: BTreeMap<NodeId, VclusterId>,
    listeners: BTreeMap<NodeId, Listener>,
    steps: usize,
}

struct Boot {
    serial: Serial,
    key: KeyHash,
}

/// A host that follows its configuration by the news of it.
#[derive(Debug, PartialEq, Eq)]
struct Listener {
    heard: u64,
    config: Config,
}

#[derive(Debug, PartialEq, Eq)]
struct Config {
    vcluster: Option<VclusterId>,
    base: Option<String>,
    own: Option<String>,
}

/// The whole of it, as it is read at once.
fn read(state: &State, id: &NodeId) -> Config {
    let config = state.config_of(&state.nodes[id]);
    let text = |documents: &lifecycle::registry::Documents| {
        documents.current().map(|change| change.document.text.to_string())
    };
    Config { vcluster: config.vcluster.cloned(), base: text(config.base), own: text(config.own) }
}

/// One interface, and everything else that was registered.
fn is_this_machine(registered: &HardwareIdentity, claimed: &HardwareIdentity) -> bool {
    let says = |registered: &Option<String>, claimed: &Option<String>| match registered {
        Some(known) => claimed.as_ref() == Some(known),
        None => true,
    };
    registered.macs.iter().any(|mac| claimed.macs.contains(mac))
        && says(&registered.bmc_serial, &claimed.bmc_serial)
        && says(&registered.system_uuid, &claimed.system_uuid)
        && says(&registered.tpm_ek_hash, &claimed.tpm_ek_hash)
}

impl Machines {
    /// The nodes, not gone, that a machine may be.
    pub fn living(&self, before: &State, claimed: &HardwareIdentity) -> Vec<NodeId> {
        let known = self.registered.iter().filter(|(_, registered)| is_this_machine(registered, claimed));
        let known = known.map(|(id, _)| id).filter(|id| !before.nodes[*id].state.is_gone());
        known.cloned().collect()
    }

    /// What came of an enrollment by hardware alone. `is_held` says whether a node has a good certificate, or was heard within its grace.
    pub fn check_boot(
        &self,
        before: &State,
        claimed: &HardwareIdentity,
        enroll: &Enroll,
        applied: &Applied,
        is_held: impl Fn(&NodeId) -> bool,
    ) -> Option<&'static str> {
        let living = self.living(before, claimed);
        let policy = &before.policy;
        let enough = policy.attestors.iter().any(|word| word == "hardware")
            && policy.attestors_require.iter().all(|word| word == "hardware")
            && policy.hardware_source_cidrs.iter().all(|network| network.to_string() == "192.0.2.0/24");
        let may_take = |id: &NodeId| match before.nodes[id].state {
            NodeState::Registered | NodeState::Inactive => true,
            NodeState::Enrolled | NodeState::Active => !is_held(id),
            NodeState::Revoked | NodeState::Decommissioned => false,
        };
        match &applied.answer {
            Ok(Outcome::Enrolled { node, serial, replayed }) => {
                assert!(enough, "policy does not take hardware");
                assert_eq!(living, std::slice::from_ref(node), "not the one machine");
                if *replayed {
                    let boot = &self.boots[node];
                    assert_eq!((serial, enroll.key), (&boot.serial, boot.key));
                    assert!(enroll.idempotency.is_some(), "repeated without being asked to");
                    return Some("the same certificate after a lost boot");
                }
                assert!(may_take(node), "took the place of a host that is there");
                let again = before.nodes[node].enrolled_at.is_some();
                Some(if again { "enrolled again by hardware" } else { "enrolled by hardware" })
            }
            Ok(other) => panic!("an enrollment came to {other:?}"),
            Err(rejection) => {
                let fits = match rejection.code() {
                    "already_active" => living.len() == 1 && !may_take(&living[0]),
                    "hardware_identity_conflict" => living.len() > 1,
                    "node_not_enrolled" | "node_revoked" => living.is_empty(),
                    "attestor_not_allowed" => !enough,
                    _ => true,
                };
                assert!(fits, "{rejection} while {living:?} are registered");
                None
            }
        }
    }

    pub fn learn(&mut self, event: &Event) {
        match event {
            Event::HardwareRegistered(registered) => {
                self.registered.insert(registered.node.clone(), registered.identity.as_ref().clone());
                self.place(&registered.node, registered.vcluster.as_ref());
            }
            Event::NodeEnrolled(enrolled) => {
                let (serial, key) = (enrolled.certificate.serial.clone(), enrolled.certificate.key);
                match enrolled.token {
                    None => self.boots.insert(enrolled.node.clone(), Boot { serial, key }),
                    Some(_) => self.boots.remove(&enrolled.node),
                };
                // It begins anew, with what it is told when it enrolls.
                self.listeners.remove(&enrolled.node);
            }
            Event::VclusterCreated(created) => {
                let twice = self.vclusters.insert(created.id.clone(), created.tenant.clone());
                assert_eq!(twice, None, "created twice");
            }
            Event::VclusterRemoved(removed) => {
                assert!(self.vclusters.remove(&removed.vcluster).is_some(), "removed twice");
                self.placed.retain(|_, vcluster| *vcluster != removed.vcluster);
            }
            Event::NodeAssigned(event::NodeAssigned { node, vcluster }) => {
                assert!(!self.placed.contains_key(node), "assigned out of another");
                self.place(node, Some(vcluster));
            }
            Event::NodeUnassigned(event::NodeUnassigned { node, from }) => {
                assert_eq!(self.placed.get(node), Some(from));
                self.place(node, None);
            }
            Event::NodeMoved(event::NodeMoved { node, from, to }) => {
                assert_eq!(self.placed.get(node), Some(from));
                self.place(node, Some(to));
            }
            _ => {}
        }
    }

    fn place(&mut self, node: &NodeId, vcluster: Option<&VclusterId>) {
        match vcluster {
            Some(vcluster) => self.placed.insert(node.clone(), vcluster.clone()),
            None => self.placed.remove(node),
        };
    }

    /// Who is where; and whoever follows the news, now and then, has the configuration.
    pub fn check(&mut self, after: &State) {
        self.steps += 1;
        for (id, node) in &after.nodes {
            assert_eq!(node.vcluster.as_ref(), self.placed.get(id), "where {id} is");
            let tenant = node.vcluster.as_ref().and_then(|vcluster| self.vclusters.get(vcluster));
            assert!(tenant.is_none_or(|tenant| *tenant == node.tenant), "{id} is with another tenant");
            let listens = !node.state.is_gone() && node.state != NodeState::Registered;
            if !listens {
                self.listeners.remove(id);
                continue;
            }
            let begin = || Listener { heard: after.config_sequence, config: read(after, id) };
            let listener = self.listeners.entry(id.clone()).or_insert_with(begin);
            // Not at every step: it was away for a while.
            if (self.steps + id.as_str().len()).is_multiple_of(4) {
                listener.hear(after, id);
            }
        }
        let narrowed = after.operators.values().map(|operator| &operator.vclusters);
        for vclusters in narrowed.chain(after.operator_keys.values().map(|key| &key.vclusters)) {
            let Vclusters::Only(names) = vclusters else { continue };
            let known: BTreeSet<_> = self.vclusters.keys().collect();
            assert!(names.iter().all(|name| known.contains(name)), "narrowed to what is gone");
        }
    }
}

impl Listener {
    fn hear(&mut self, after: &State, id: &NodeId) {
        let record = &after.nodes[id];
        for news in after.config_news(record, self.heard) {
            assert!(news.sequence() > self.heard, "out of order");
            self.heard = news.sequence();
            match news {
                ConfigNews::Base(change) => self.config.base = Some(change.document.text.to_string()),
                ConfigNews::Own(change) => self.config.own = Some(change.document.text.to_string()),
                ConfigNews::Moved(moved) => {
                    self.config.vcluster = moved.vcluster.clone();
                    self.config.base = read(after, id).base;
                }
            }
        }
        assert!(self.heard >= after.config_mark(record), "something concerns {id} and is no news");
        assert_eq!(self.config, read(after, id), "{id} followed the news and has something else");
    }
}

/// Whether a host has spoken within the grace period, by a certificate that its issuer has not taken along or by an SVID.
pub fn is_heard(before: &State, at: Timestamp, id: &NodeId) -> bool {
    let node = &before.nodes[id];
    let orphaned = node.serials.iter().any(|serial| {
        before
            .certificates
            .get(serial)
            .is_some_and(|held| before.issuers[&held.issuer].state == IssuerState::Revoked)
    });
    let spoke =
        node.state == NodeState::Active && spoke_within_grace(before, at, node.last_seen) && !orphaned;
    spoke || lives_by_svid(before, at, id)
}

/// By an SVID: within the grace period, or last of all on a stream that nobody has found silent.
pub fn lives_by_svid(before: &State, at: Timestamp, id: &NodeId) -> bool {
    let node = &before.nodes[id];
    let Some(seen) = node.svid_seen else { return false };
    let last = node.last_seen.is_none_or(|last| last <= seen);
    (node.state == NodeState::Active && node.streamed && last) || spoke_within_grace(before, at, Some(seen))
}

fn spoke_within_grace(before: &State, at: Timestamp, seen: Option<Timestamp>) -> bool {
    seen.is_some_and(|seen| at < seen.plus(before.policy.liveness_grace))
}
