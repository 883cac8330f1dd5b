//! Refused renewals go into the audit trail as `certificate.refused`: the first of a node and reason at once, the rest of its
//! minute as one line with a count.
//!
//! Only a node that has proven the key of a recorded certificate or of an SVID is counted, by its handshake or by the proof of the
//! probectl API; apart from refused attempts of the unauthenticated, whose flood must not push these into an overflow.

use crate::edge::authenticate::ConnectionPeer;
use crate::edge::refusals::{MINUTE, SAMPLES, write};
use crate::http::failure::Failure;
use crate::process::app::{App, Provenance};
use lifecycle::names::{NodeId, Serial, Source, Timestamp};
use lifecycle::registry::{self, Owner, RefusedRenewal};
use std::collections::HashMap;
use std::sync::Mutex;

/// Nodes and reasons kept apart in a minute; what is beyond becomes one line `overflow`.
const KEPT_APART: usize = 1024;
const OVERFLOW: &str = "overflow";

/// Whose renewal was refused.
#[derive(Debug, Clone)]
pub struct CertificateHolder {
    pub node: NodeId,
    /// None of an SVID, whose serial is another CA's.
    pub serial: Option<Serial>,
}

impl CertificateHolder {
    /// The node whose certificate this connection was made with, also one that is no longer accepted.
    pub fn of(app: &App, peer: &ConnectionPeer) -> Option<Self> {
        let certificate = peer.certificate.as_ref()?;
        if let Some(svid) = &certificate.svid {
            return app.ca.spire.node(&svid.id).map(|node| Self { node, serial: None });
        }
        let view = app.view();
        let record = view.state.certificates.get(&certificate.serial)?;
        match &record.owner {
            Owner::Node(node) if record.fingerprint == certificate.fingerprint => {
                Some(Self { node: node.clone(), serial: Some(certificate.serial.clone()) })
            }
            Owner::Node(_) | Owner::Operator(_) | Owner::Replica(_) | Owner::Bootstrap(_) => None,
        }
    }
}

#[derive(Debug)]
struct RenewalTally {
    began: Timestamp,
    /// Beyond what was already written.
    count: u64,
    /// The correlation ids of those, as far as they differ.
    samples: Vec<String>,
    /// Of the last one.
    serial: Option<Serial>,
    origin: Provenance,
}

#[derive(Debug, Default)]
pub struct RefusedRenewals {
    tallies: Mutex<HashMap<(Option<NodeId>, &'static str), RenewalTally>>,
}

impl RefusedRenewals {
    /// Counts a renewal that failed; the first of its kind is on record when this returns. A fault of the control plane
    /// is no refusal.
    pub async fn record(
        &self,
        app: &App,
        origin: &Provenance,
        holder: Option<CertificateHolder>,
        failure: &Failure,
    ) {
        if let Some(holder) = holder.filter(|_| failure.code.status < 500) {
            self.note(app, origin, holder, failure.code.word).await;
        }
    }

    /// The same for a reason that only the trail is told.
    pub async fn note(
        &self,
        app: &App,
        origin: &Provenance,
        holder: CertificateHolder,
        reason: &'static str,
    ) {
        if let Some(line) = self.count(holder, reason, origin, app.clock.now()) {
            write(app, line, origin).await;
        }
    }

    fn count(
        &self,
        holder: CertificateHolder,
        reason: &'static str,
        origin: &Provenance,
        at: Timestamp,
    ) -> Option<registry::Refusals> {
        let sample = origin.correlation_id.as_ref().map(ToString::to_string);
        let mut tallies = self.tallies.lock().ok()?;
        let key = (Some(holder.node), reason);
        let kept_apart = tallies.contains_key(&key) || tallies.len() < KEPT_APART;
        let (key, serial) = if kept_apart { (key, holder.serial) } else { ((None, OVERFLOW), None) };
        if let Some(tally) = tallies.get_mut(&key) {
            tally.count += 1;
            tally.serial = serial;
            tally.origin = origin.clone();
            let new = |sample: &String| tally.samples.len() < SAMPLES && !tally.samples.contains(sample);
            if let Some(sample) = sample.filter(new) {
                tally.samples.push(sample);
            }
            return None;
        }
        let line = line(key.clone(), serial.clone(), 1, sample.into_iter().collect());
        let began = RenewalTally { began: at, count: 0, samples: Vec::new(), serial, origin: origin.clone() };
        tallies.insert(key, began);
        Some(line)
    }

    /// Writes the tallies whose minute is over; all of them when the process ends.
    pub async fn flush(&self, app: &App, all: bool) {
        for (line, origin) in self.due(app.clock.now(), all) {
            write(app, line, &origin).await;
        }
    }

    fn due(&self, at: Timestamp, all: bool) -> Vec<(registry::Refusals, Provenance)> {
        let Ok(mut tallies) = self.tallies.lock() else { return Vec::new() };
        let over = |tally: &RenewalTally| all || at.since(tally.began) >= MINUTE || at < tally.began;
        let ended = tallies.extract_if(|_, tally| over(tally)).filter(|(_, tally)| tally.count > 0);
        ended
            .map(|(key, tally)| {
                let source = if key.0.is_some() { tally.origin.source } else { Source::Internal };
                // Where it came from and what it belongs to; the request was one of many.
                let origin = Provenance { source, request_id: None, ..tally.origin };
                (line(key, tally.serial, tally.count, tally.samples), origin)
            })
            .collect()
    }
}

fn line(
    (node, reason): (Option<NodeId>, &'static str),
    serial: Option<Serial>,
    count: u64,
    samples: Vec<String>,
) -> registry::Refusals {
    let renewal = Some(RefusedRenewal { node, serial });
    registry::Refusals {
        reason: reason.to_owned(),
        network: None,
        count,
        samples,
        recovery: None,
        renewal,
        alert: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lifecycle::names::{Label, Span};

    fn holder(node: usize) -> CertificateHolder {
        let (node, serial) = (NodeId::parse(&format!("n{node}")).unwrap(), Serial::parse("5e41").ok());
        CertificateHolder { node, serial }
    }

    fn origin(correlation: usize) -> Provenance {
        let correlation_id = Label::parse(&format!("c{correlation}")).ok();
        Provenance { correlation_id, ..Provenance::internal() }
    }

    #[test]
    fn a_node_that_asks_a_thousand_times_has_two_lines_whose_counts_add_up() {
        let (refused, at) = (RefusedRenewals::default(), Timestamp::from_secs(1000));
        let count = |i| refused.count(holder(1), "csr_invalid", &origin(i), at);
        let first: Vec<_> = (0..1000).filter_map(count).collect();
        assert_eq!(first.iter().map(|line| (line.count, line.samples.len())).collect::<Vec<_>>(), [(1, 1)]);
        assert!(refused.count(holder(1), "key_in_use", &origin(0), at).is_some());
        assert!(refused.due(at.plus(Span::from_secs(59)), false).is_empty());
        let rest = refused.due(at.plus(MINUTE), false);
        let (line, last) = rest.first().unwrap();
        assert_eq!((rest.len(), line.count, line.samples.len()), (1, 999, SAMPLES));
        assert_eq!(last.correlation_id, Label::parse("c999").ok());
        assert!(refused.due(at.plus(MINUTE), true).is_empty());
    }

    #[test]
    fn many_nodes_overflow_into_one_line() {
        let (refused, at) = (RefusedRenewals::default(), Timestamp::from_secs(1000));
        let written: Vec<_> =
            (0..5000).filter_map(|i| refused.count(holder(i), "csr_invalid", &origin(i), at)).collect();
        assert_eq!(written.len(), KEPT_APART + 1);
        let last = written.last().unwrap();
        assert_eq!((last.reason.as_str(), last.renewal.as_ref().unwrap().node.as_ref()), (OVERFLOW, None));
        let rest = refused.due(at, true);
        let counts: u64 = rest.iter().map(|(line, _)| line.count).sum();
        assert_eq!(counts, 5000 - KEPT_APART as u64 - 1);
    }
}
