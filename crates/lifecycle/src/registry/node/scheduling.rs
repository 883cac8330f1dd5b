//! Whether work may be given to a node.

use crate::host::Class;
use crate::names::Serial;
use crate::registry::{Certificate, Node, NodeState, Report, State, Verdict};

/// What a node says whose logs, or what it tells, had to make room for what it needs.
pub const PRESSURE: &str = "node_observability_disk_pressure";
const CERT_EXPIRED: &str = "cert_expired";

impl State {
    /// Every reason why not, each in its stable word; none when work may be given to it.
    pub fn exclusions(&self, node: &Node, report: Option<&Report>) -> Vec<&'static str> {
        let mut words = Vec::new();
        if node.state != NodeState::Active {
            words.push(node.state.as_str());
        }
        if node.state.is_gone() {
            return words;
        }
        words.extend(node.draining.then_some("draining"));
        words.extend(node.quarantined.then_some("quarantined"));
        words.extend(self.ended_certificate(node).map(|_| CERT_EXPIRED));
        words.extend(self.fenced_certificate(node).map(|_| Class::IdentityRevokedOrFenced.as_str()));
        if let Some(report) = report {
            words.extend(report.class.map(|class| class.as_str()).filter(|class| !words.contains(class)));
            words.extend(report.observability_pressure.then_some(PRESSURE));
        }
        words
    }

    /// The same for a scheduler of vClusters: a node in none is in maintenance mode.
    pub fn unschedulable(&self, node: &Node, report: Option<&Report>) -> Vec<&'static str> {
        let mut words = self.exclusions(node, report);
        words.extend(node.vcluster.is_none().then_some("unassigned"));
        words
    }

    /// A node's certificate whose issuer was revoked, with none after it: the host is shut out, whatever its state.
    pub fn fenced_certificate<'a>(&'a self, node: &'a Node) -> Option<(&'a Serial, &'a Certificate)> {
        let (serial, held) = self.current_certificate(node)?;
        let fenced = !node.state.is_gone() && self.issuer_is_revoked(&held.issuer);
        fenced.then_some((serial, held))
    }

    /// A node's certificate that has ended, by itself or with its issuer, with none after it.
    pub fn ended_certificate<'a>(&'a self, node: &'a Node) -> Option<(&'a Serial, &'a Certificate)> {
        let (serial, held) = self.current_certificate(node)?;
        let ended = !node.state.is_gone() && self.verdict_on(held, self.at) == Verdict::Expired;
        ended.then_some((serial, held))
    }
}
