//! Refused attempts go into the audit trail, but a flood of them cannot grow it.
//!
//! The first of a kind (network and reason) is written at once; the rest of its minute becomes one line with
//! a count. At most [`KINDS`] kinds are kept apart in a minute; what is beyond becomes one line `overflow`.

use crate::process::app::{App, Provenance};
use crate::process::clock;
use api::code;
use lifecycle::names::{NodeId, Source, Span, Timestamp};
use lifecycle::registry::{self, Actor, AlertKind, Command, RefusedRecovery};
use std::collections::HashMap;
use std::sync::Mutex;

const KINDS: usize = 64;
/// Beyond them, kinds that raise an alert: only a valid token of a node makes one, so strangers cannot fill these.
const ALERTING: usize = 1024;
pub(super) const SAMPLES: usize = 8;
const SAMPLE_LENGTH: usize = 128;
pub(super) const MINUTE: Span = Span::from_minutes(1);

/// What is counted together. Of recoveries also the node, which only a real token of it makes known.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct RefusalKey {
    network: Option<Source>,
    reason: &'static str,
    recovery: Option<RefusedRecovery>,
}

impl RefusalKey {
    /// What is beyond those kept apart.
    fn overflow(&self) -> Self {
        let recovery = self.recovery.as_ref().map(|_| RefusedRecovery { node: None });
        Self { network: None, reason: "overflow", recovery }
    }

    fn line(self, count: u64, samples: Vec<String>) -> registry::Refusals {
        let alert = self.alert();
        let Self { network, reason, recovery } = self;
        registry::Refusals {
            reason: reason.to_owned(),
            network,
            count,
            samples,
            recovery,
            renewal: None,
            alert,
        }
    }

    /// A valid token that was brought for a node that is well: somebody else may have it.
    fn alert(&self) -> Option<AlertKind> {
        let known = self.recovery.as_ref().is_some_and(|about| about.node.is_some());
        (known && self.reason == code::RECOVERY_NOT_NEEDED.word).then_some(AlertKind::RecoveryNotNeeded)
    }
}

#[derive(Debug)]
struct Tally {
    began: Timestamp,
    /// Beyond what was already written.
    count: u64,
    samples: Vec<String>,
}

#[derive(Debug, Default)]
pub struct RefusedAttempts {
    tallies: Mutex<HashMap<RefusalKey, Tally>>,
}

impl RefusedAttempts {
    /// Counts one refused enrollment; the first of its kind is on record when this returns.
    pub async fn record(&self, app: &App, origin: &Provenance, reason: &'static str, sample: Option<String>) {
        let kind = RefusalKey { network: Some(origin.source.prefix()), reason, recovery: None };
        self.recorded(app, origin, kind, sample).await;
    }

    /// The same of a recovery, of the node whose token was brought.
    pub async fn record_recovery(
        &self,
        app: &App,
        origin: &Provenance,
        reason: &'static str,
        node: Option<NodeId>,
        sample: Option<String>,
    ) {
        let recovery = Some(RefusedRecovery { node });
        let kind = RefusalKey { network: Some(origin.source.prefix()), reason, recovery };
        self.recorded(app, origin, kind, sample).await;
    }

    async fn recorded(&self, app: &App, origin: &Provenance, kind: RefusalKey, sample: Option<String>) {
        if let Some(first) = self.count(kind, sample, clock::now()) {
            write(app, first, origin).await;
        }
    }

    fn count(&self, kind: RefusalKey, sample: Option<String>, at: Timestamp) -> Option<registry::Refusals> {
        let sample = sample.map(|text| text.chars().take(SAMPLE_LENGTH).collect::<String>());
        let mut tallies = self.tallies.lock().ok()?;
        let most = if kind.alert().is_some() { KINDS + ALERTING } else { KINDS };
        let kept_apart = tallies.contains_key(&kind) || tallies.len() < most;
        let kind = if kept_apart { kind } else { kind.overflow() };
        if let Some(tally) = tallies.get_mut(&kind) {
            tally.count += 1;
            if let Some(sample) =
                sample.filter(|text| tally.samples.len() < SAMPLES && !tally.samples.contains(text))
            {
                tally.samples.push(sample);
            }
            return None;
        }
        tallies.insert(kind.clone(), Tally { began: at, count: 0, samples: Vec::new() });
        Some(kind.line(1, sample.into_iter().collect()))
    }

    /// Writes the tallies whose minute is over; all of them when the process ends.
    pub async fn flush(&self, app: &App, all: bool) {
        for line in self.due(clock::now(), all) {
            let origin =
                Provenance { source: line.network.unwrap_or(Source::Internal), ..Provenance::internal() };
            write(app, line, &origin).await;
        }
    }

    fn due(&self, at: Timestamp, all: bool) -> Vec<registry::Refusals> {
        let Ok(mut tallies) = self.tallies.lock() else { return Vec::new() };
        let over = |tally: &Tally| all || at.since(tally.began) >= MINUTE || at < tally.began;
        let ended = tallies.extract_if(|_, tally| over(tally));
        ended
            .filter(|(_, tally)| tally.count > 0)
            .map(|(kind, tally)| kind.line(tally.count, tally.samples))
            .collect()
    }
}

pub(super) async fn write(app: &App, line: registry::Refusals, origin: &Provenance) {
    if let Err(failure) = app.commit(Actor::Reconciler, origin, Command::RecordRefusals(line)).await {
        tracing::warn!(
            code = failure.code.word,
            "refused attempts could not be recorded: {}",
            failure.message
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(last: u8) -> Source {
        Source::Address(std::net::IpAddr::from([192, 0, 2, last]))
    }

    fn kind(source: Source, reason: &'static str) -> RefusalKey {
        RefusalKey { network: Some(source.prefix()), reason, recovery: None }
    }

    #[test]
    fn recoveries_are_counted_by_themselves_and_by_node() {
        let refusals = RefusedAttempts::default();
        let at = Timestamp::from_secs(1000);
        let of = |node: Option<&str>| RefusalKey {
            recovery: Some(RefusedRecovery { node: node.and_then(|id| NodeId::parse(id).ok()) }),
            ..kind(source(1), "token_used")
        };
        let kinds = [kind(source(1), "token_used"), of(None), of(Some("n1")), of(Some("n2")), of(Some("n1"))];
        let first = kinds.into_iter().filter_map(|kind| refusals.count(kind, None, at)).count();
        assert_eq!(first, 4);
        let rest = refusals.due(at, true);
        let about = rest.first().and_then(|line| line.recovery.clone()).and_then(|about| about.node);
        assert_eq!((rest.len(), about), (1, NodeId::parse("n1").ok()));
    }

    #[test]
    fn a_token_that_was_not_needed_raises_an_alert_also_in_a_flood() {
        let refusals = RefusedAttempts::default();
        let at = Timestamp::from_secs(1000);
        for i in 0..1000u32 {
            let network = Source::Address(std::net::IpAddr::from((i << 8).to_be_bytes()));
            refusals.count(kind(network, "token_invalid"), None, at);
        }
        let node = NodeId::parse("n1").ok();
        let known = RefusalKey {
            recovery: Some(RefusedRecovery { node: node.clone() }),
            ..kind(source(1), code::RECOVERY_NOT_NEEDED.word)
        };
        let first = refusals.count(known.clone(), None, at).expect("the first of its kind");
        assert_eq!((first.alert, first.count), (Some(AlertKind::RecoveryNotNeeded), 1));
        assert_eq!((refusals.count(known.clone(), None, at), refusals.count(known, None, at)), (None, None));
        let rest = refusals.due(at, true);
        let rest = rest.iter().find(|line| line.alert.is_some()).expect("the rest of it");
        assert_eq!((rest.count, rest.recovery.as_ref().map(|about| about.node.clone())), (2, Some(node)));
    }

    #[test]
    fn a_flood_from_one_network_is_two_lines_whose_counts_add_up() {
        let refusals = RefusedAttempts::default();
        let at = Timestamp::from_secs(1000);
        let first: Vec<_> = (0..999)
            .filter_map(|i| {
                refusals.count(kind(source((i % 250) as u8), "token_used"), Some(format!("n{i}")), at)
            })
            .collect();
        assert_eq!(first.iter().map(|line| line.count).collect::<Vec<_>>(), [1]);
        assert!(refusals.due(at.plus(Span::from_secs(59)), false).is_empty());
        let rest = refusals.due(at.plus(MINUTE), false);
        assert_eq!(
            rest.iter().map(|line| (line.count, line.samples.len())).collect::<Vec<_>>(),
            [(998, SAMPLES)]
        );
        assert!(refusals.due(at.plus(MINUTE), true).is_empty());
    }

    #[test]
    fn many_networks_overflow_into_one_line() {
        let refusals = RefusedAttempts::default();
        let at = Timestamp::from_secs(1000);
        let networks = (0..1000u32).map(|i| Source::Address(std::net::IpAddr::from((i << 8).to_be_bytes())));
        let written: Vec<_> =
            networks.filter_map(|network| refusals.count(kind(network, "token_invalid"), None, at)).collect();
        assert_eq!(written.len(), KINDS + 1);
        assert_eq!(written.last().map(|line| line.reason.as_str()), Some("overflow"));
        let rest = refusals.due(at, true);
        assert_eq!(rest.iter().map(|line| line.count).sum::<u64>(), 1000 - KINDS as u64 - 1);
    }
}
