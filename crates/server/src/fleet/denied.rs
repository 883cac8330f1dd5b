//! Denied certificates that came back, as this replica's handshakes have seen them. Counted in memory, so that a handshake
//! costs no write; the reconciler records the first of a node at once and the rest once a minute.

use lifecycle::names::{NodeId, Serial, Source, Span, Timestamp};
use lifecycle::registry::{DeniedSighting, Owner};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Nodes that are counted at once. Only a denied certificate and its key make an entry, so it takes as many of those to keep
/// one out.
const NODES: usize = 16_384;
/// How often those of one node are recorded.
const AGAIN: Span = Span::from_minutes(1);

#[derive(Default)]
pub struct DeniedSightings {
    nodes: Mutex<HashMap<NodeId, DeniedTally>>,
}

struct DeniedTally {
    serial: Serial,
    source: Source,
    /// Since it was recorded last.
    count: u64,
    recorded: Option<Timestamp>,
}

impl DeniedSightings {
    fn nodes(&self) -> MutexGuard<'_, HashMap<NodeId, DeniedTally>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One came whose holder has proven that it has the key.
    pub fn seen(&self, owner: &Owner, serial: &Serial, source: Option<Source>) {
        let Owner::Node(node) = owner else { return };
        let source = source.unwrap_or(Source::Internal);
        let mut nodes = self.nodes();
        if let Some(tally) = nodes.get_mut(node) {
            tally.count = tally.count.saturating_add(1);
            (tally.serial, tally.source) = (serial.clone(), source);
        } else if nodes.len() < NODES {
            let tally = DeniedTally { serial: serial.clone(), source, count: 1, recorded: None };
            nodes.insert(node.clone(), tally);
        } else {
            tracing::warn!(%node, %serial, %source, "a denied certificate came back, beyond those that are counted");
        }
    }

    /// What could not be recorded counts with what comes after it.
    pub fn not_recorded(&self, sighting: DeniedSighting) {
        if let Some(tally) = self.nodes().get_mut(&sighting.node) {
            tally.count = tally.count.saturating_add(sighting.count);
        }
    }

    /// What is to be recorded now; all of it when the process ends. Who has not come again is forgotten.
    pub fn due(&self, now: Timestamp, all: bool) -> Vec<DeniedSighting> {
        let mut due = Vec::new();
        self.nodes().retain(|node, tally| {
            let rested = tally.recorded.is_none_or(|at| at.plus(AGAIN) <= now);
            if tally.count > 0 && (rested || all) {
                due.push(DeniedSighting {
                    node: node.clone(),
                    serial: tally.serial.clone(),
                    source: tally.source,
                    count: std::mem::take(&mut tally.count),
                    of_gone_nodes: true,
                });
                tally.recorded = Some(now);
                return true;
            }
            tally.count > 0 || !rested
        });
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Timestamp = Timestamp::from_secs(1000);

    fn owner(name: &str) -> Owner {
        Owner::Node(NodeId::parse(name).expect("a name"))
    }

    #[test]
    fn the_first_is_recorded_at_once_and_the_rest_once_a_minute() {
        let (seen, serial) = (DeniedSightings::default(), Serial::parse("3d").expect("a serial"));
        let counts = |now, all| seen.due(now, all).iter().map(|line| line.count).collect::<Vec<_>>();
        seen.seen(&owner("n1"), &serial, None);
        assert_eq!((counts(AT, false), counts(AT, false)), (vec![1], vec![]));
        for _ in 0..5 {
            seen.seen(&owner("n1"), &serial, None);
        }
        assert!(counts(AT.plus(Span::from_secs(59)), false).is_empty());
        assert_eq!(counts(AT.plus(AGAIN), false), [5]);
        seen.seen(&owner("n1"), &serial, None);
        assert_eq!(counts(AT.plus(AGAIN), true), [1], "when the process ends");
        let later = AT.plus(Span::from_minutes(9));
        assert_eq!((counts(later, false), seen.nodes().len()), (vec![], 0));
    }

    #[test]
    fn its_memory_is_bounded() {
        let (seen, serial) = (DeniedSightings::default(), Serial::parse("3d").expect("a serial"));
        for i in 0..NODES + 10 {
            seen.seen(&owner(&format!("n{i}")), &serial, None);
        }
        assert_eq!(seen.due(AT, false).len(), NODES);
    }
}
