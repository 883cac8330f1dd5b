//! Refused attempts go into the audit trail, but a flood of them cannot grow it.
//!
//! The first of a kind (network and reason; node and reason where an alert is raised) is written at once; the rest of its
//! minute becomes one line with a count. At most [`KINDS`] kinds are kept apart in a minute; what is beyond becomes one line `overflow`.
//! Strangers have [`LINES`] lines, and as many more in a day, bit by bit; beyond that all of them together have one line
//! `overflow` an hour. Alerts that anybody can cause are paid for from the same lines. A start counts from anew.

use crate::process::app::{App, Provenance};
use api::code;
use lifecycle::names::{NodeId, Source, Span, Timestamp};
use lifecycle::registry::{self, Actor, AlertKind, Command, RefusedRecovery};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const KINDS: usize = 64;
const OVERFLOW: &str = "overflow";
/// Beyond them, kinds that raise an alert, one per node: only a valid token of that node makes one, so neither strangers nor
/// whoever has a few tokens can fill these.
const ALERTING: usize = 16_384;
pub(super) const SAMPLES: usize = 8;
const SAMPLE_LENGTH: usize = 128;
pub(super) const MINUTE: Span = Span::from_minutes(1);
const HOUR: Span = Span::from_minutes(60);
/// Lines that strangers can cause at once, and as many more in a day: a few megabytes.
const LINES: u64 = 4000;
/// A kind has two lines in its minute: the first at once, the rest at the end.
const LINES_OF_A_KIND: u64 = 2;

/// What is counted together. Of recoveries also the node, which only a real token of it makes known.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct RefusalKey {
    /// None where an alert about a node is raised: one token from many networks is one matter.
    network: Option<Source>,
    reason: &'static str,
    recovery: Option<RefusedRecovery>,
}

impl RefusalKey {
    fn new(source: Source, reason: &'static str, recovery: Option<RefusedRecovery>) -> Self {
        let kind = Self { network: None, reason, recovery };
        let network = kind.alert().is_none().then(|| source.prefix());
        Self { network, ..kind }
    }

    /// What is beyond those kept apart.
    fn overflow(&self) -> Self {
        let recovery = self.recovery.as_ref().map(|_| RefusedRecovery { node: None });
        Self { network: None, reason: OVERFLOW, recovery }
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
    /// How long it counts.
    lasts: Span,
    /// Beyond what was already written.
    count: u64,
    samples: Vec<String>,
    /// Where the last one came from.
    source: Source,
}

/// How many lines are left, by the millisecond: what is left grows back in a day.
#[derive(Debug)]
struct LineAllowance {
    left: u64,
    counted: Option<Timestamp>,
}

/// The price of a line in milliseconds of a day.
const LINE_PRICE: u64 = Span::from_days(1).millis() / LINES;

impl Default for LineAllowance {
    fn default() -> Self {
        Self { left: LINES * LINE_PRICE, counted: None }
    }
}

impl LineAllowance {
    fn take(&mut self, lines: u64, at: Timestamp) -> bool {
        let grown = self.counted.map_or(0, |counted| at.since(counted).millis());
        self.counted = Some(at);
        self.left = self.left.saturating_add(grown).min(LINES * LINE_PRICE);
        let left = self.left.checked_sub(lines * LINE_PRICE);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }

    fn give_back(&mut self, lines: u64) {
        self.left = self.left.saturating_add(lines * LINE_PRICE).min(LINES * LINE_PRICE);
    }
}

#[derive(Debug, Default)]
struct Tallies {
    kinds: HashMap<RefusalKey, Tally>,
    allowance: LineAllowance,
}

#[derive(Debug, Default)]
pub struct RefusedAttempts {
    tallies: Mutex<Tallies>,
    /// Attempts that were counted in a line `overflow`.
    overflowed: AtomicU64,
}

impl RefusedAttempts {
    /// Counts one refused enrollment; the first of its kind is on record when this returns.
    pub async fn record(&self, app: &App, origin: &Provenance, reason: &'static str, sample: Option<String>) {
        let kind = RefusalKey::new(origin.source, reason, None);
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
        let kind = RefusalKey::new(origin.source, reason, Some(RefusedRecovery { node }));
        self.recorded(app, origin, kind, sample).await;
    }

    async fn recorded(&self, app: &App, origin: &Provenance, kind: RefusalKey, sample: Option<String>) {
        if let Some(first) = self.count(kind, origin.source, sample, app.clock.now()) {
            write(app, first, origin).await;
        }
    }

    fn count(
        &self,
        kind: RefusalKey,
        source: Source,
        sample: Option<String>,
        at: Timestamp,
    ) -> Option<registry::Refusals> {
        let sample = sample.map(|text| text.chars().take(SAMPLE_LENGTH).collect::<String>());
        let mut tallies = self.tallies.lock().ok()?;
        let (kind, lasts) = tallies.counted_as(kind, at);
        if kind.reason == OVERFLOW {
            self.overflowed.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(tally) = tallies.kinds.get_mut(&kind) {
            tally.count += 1;
            tally.source = source;
            if let Some(sample) =
                sample.filter(|text| tally.samples.len() < SAMPLES && !tally.samples.contains(text))
            {
                tally.samples.push(sample);
            }
            return None;
        }
        let begun = Tally { began: at, lasts, count: 0, samples: Vec::new(), source };
        tallies.kinds.insert(kind.clone(), begun);
        Some(kind.line(1, sample.into_iter().collect()))
    }

    /// How many attempts have no line of their kind, since the start.
    pub fn overflowed(&self) -> u64 {
        self.overflowed.load(Ordering::Relaxed)
    }

    /// Takes a line of the audit trail from what strangers may cause, for an alert that they cause. Where none is left, there is no
    /// alert: the attempts are counted all the same.
    pub fn takes_line(&self, at: Timestamp) -> bool {
        self.tallies.lock().is_ok_and(|mut tallies| tallies.allowance.take(1, at))
    }

    /// Writes the tallies whose minute is over; all of them when the process ends.
    pub async fn flush(&self, app: &App, all: bool) {
        for (line, source) in self.due(app.clock.now(), all) {
            let origin = Provenance { source, ..Provenance::internal() };
            write(app, line, &origin).await;
        }
    }

    /// Each with where it came from: the network, or the last address where an alert names it.
    fn due(&self, at: Timestamp, all: bool) -> Vec<(registry::Refusals, Source)> {
        let Ok(mut tallies) = self.tallies.lock() else { return Vec::new() };
        let Tallies { kinds, allowance } = &mut *tallies;
        let over = |tally: &Tally| all || at.since(tally.began) >= tally.lasts || at < tally.began;
        let ended = kinds.extract_if(|_, tally| over(tally));
        let mut lines = Vec::new();
        for (kind, tally) in ended {
            if tally.count == 0 {
                if tally.lasts == MINUTE && kind.alert().is_none() {
                    allowance.give_back(1);
                }
                continue;
            }
            let alerting = kind.alert().map(|_| tally.source);
            let source = kind.network.or(alerting).unwrap_or(Source::Internal);
            lines.push((kind.line(tally.count, tally.samples), source));
        }
        lines
    }
}

impl Tallies {
    /// As what an attempt is counted, and for how long. Whatever raises an alert is always a kind of its own: it takes a
    /// valid token.
    fn counted_as(&mut self, kind: RefusalKey, at: Timestamp) -> (RefusalKey, Span) {
        if self.kinds.contains_key(&kind) {
            return (kind, MINUTE);
        }
        if kind.alert().is_some() && self.kinds.len() < KINDS + ALERTING {
            return (kind, MINUTE);
        }
        let kind = if self.kinds.len() < KINDS { kind } else { kind.overflow() };
        if self.kinds.contains_key(&kind) || self.allowance.take(LINES_OF_A_KIND, at) {
            return (kind, MINUTE);
        }
        (kind.overflow(), HOUR)
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
        RefusalKey::new(source, reason, None)
    }

    #[test]
    fn recoveries_are_counted_by_themselves_and_by_node() {
        let refusals = RefusedAttempts::default();
        let at = Timestamp::from_secs(1000);
        let of = |node: Option<&str>| {
            let node = node.and_then(|id| NodeId::parse(id).ok());
            RefusalKey::new(source(1), "token_used", Some(RefusedRecovery { node }))
        };
        let kinds = [kind(source(1), "token_used"), of(None), of(Some("n1")), of(Some("n2")), of(Some("n1"))];
        let first = kinds.into_iter().filter_map(|kind| refusals.count(kind, source(1), None, at)).count();
        assert_eq!(first, 4);
        let rest = refusals.due(at, true);
        let about = rest.first().and_then(|(line, _)| line.recovery.clone()).and_then(|about| about.node);
        assert_eq!((rest.len(), about), (1, NodeId::parse("n1").ok()));
    }

    #[test]
    fn a_token_that_was_not_needed_raises_an_alert_also_in_a_flood() {
        let refusals = RefusedAttempts::default();
        let at = Timestamp::from_secs(1000);
        for i in 0..1000u32 {
            let network = Source::Address(std::net::IpAddr::from((i << 8).to_be_bytes()));
            refusals.count(kind(network, "token_invalid"), network, None, at);
        }
        let known = |id: &str, from: Source| {
            let about = RefusedRecovery { node: NodeId::parse(id).ok() };
            let kind = RefusalKey::new(from, code::RECOVERY_NOT_NEEDED.word, Some(about));
            refusals.count(kind, from, None, at)
        };
        let first = known("n1", source(1)).expect("the first about this node");
        assert_eq!((first.alert, first.count), (Some(AlertKind::RecoveryNotNeeded), 1));
        // One token from everywhere is one matter, and hides no other.
        let elsewhere = (0..2000u32).map(|i| Source::Address(std::net::IpAddr::from((i << 8).to_be_bytes())));
        assert_eq!(elsewhere.filter_map(|from| known("n1", from)).count(), 0);
        assert!(known("n2", source(1)).is_some_and(|line| line.alert.is_some()));
        assert_eq!(known("n1", source(7)), None);
        let rest = refusals.due(at, true);
        let (rest, from) = rest.iter().find(|(line, _)| line.alert.is_some()).expect("the rest of it");
        assert_eq!((rest.count, *from), (2001, source(7)));
    }

    #[test]
    fn a_flood_from_one_network_is_two_lines_whose_counts_add_up() {
        let refusals = RefusedAttempts::default();
        let at = Timestamp::from_secs(1000);
        let first: Vec<_> = (0..999)
            .filter_map(|i| {
                let from = source((i % 250) as u8);
                refusals.count(kind(from, "token_used"), from, Some(format!("n{i}")), at)
            })
            .collect();
        assert_eq!(first.iter().map(|line| line.count).collect::<Vec<_>>(), [1]);
        assert!(refusals.due(at.plus(Span::from_secs(59)), false).is_empty());
        let rest = refusals.due(at.plus(MINUTE), false);
        assert_eq!(
            rest.iter().map(|(line, _)| (line.count, line.samples.len())).collect::<Vec<_>>(),
            [(998, SAMPLES)]
        );
        assert!(refusals.due(at.plus(MINUTE), true).is_empty());
    }

    #[test]
    fn many_networks_overflow_into_one_line() {
        let refusals = RefusedAttempts::default();
        let at = Timestamp::from_secs(1000);
        let networks = (0..1000u32).map(|i| Source::Address(std::net::IpAddr::from((i << 8).to_be_bytes())));
        let written: Vec<_> = networks
            .filter_map(|network| refusals.count(kind(network, "token_invalid"), network, None, at))
            .collect();
        assert_eq!(written.len(), KINDS + 1);
        assert_eq!(written.last().map(|line| line.reason.as_str()), Some("overflow"));
        let rest = refusals.due(at, true);
        assert_eq!(rest.iter().map(|(line, _)| line.count).sum::<u64>(), 1000 - KINDS as u64 - 1);
    }

    #[test]
    fn a_day_has_so_many_lines_and_loses_no_count() {
        let refusals = RefusedAttempts::default();
        let (mut at, mut attempts, mut lines, mut counted) = (Timestamp::from_secs(1000), 0, 0, 0);
        for minute in 0..24 * 60u32 {
            for i in 0..100u32 {
                let network =
                    Source::Address(std::net::IpAddr::from(((minute * 100 + i) << 8).to_be_bytes()));
                attempts += 1;
                if let Some(first) = refusals.count(kind(network, "token_invalid"), network, None, at) {
                    (lines, counted) = (lines + 1, counted + first.count);
                }
            }
            at = at.plus(MINUTE);
            for (line, _) in refusals.due(at, false) {
                (lines, counted) = (lines + 1, counted + line.count);
            }
        }
        counted += refusals.due(at, true).iter().map(|(line, _)| line.count).sum::<u64>();
        assert!((LINES..=2 * LINES + 64).contains(&lines), "{lines}");
        assert_eq!(counted, attempts);
        assert!(refusals.overflowed() > attempts / 2);
        // A day of rest, and all is as before.
        let later = at.plus(Span::from_days(1));
        let network = Source::Address(std::net::IpAddr::from([192, 0, 2, 1]));
        let first = refusals.count(kind(network, "token_invalid"), network, None, later);
        assert_eq!(first.map(|line| line.reason), Some("token_invalid".to_owned()));
    }
}
