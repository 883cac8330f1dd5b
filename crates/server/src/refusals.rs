//! Refused attempts go into the audit trail, but a flood of them cannot grow it.
//!
//! The first of a kind (network and reason) is written at once; the rest of its minute becomes one line with
//! a count. At most [`KINDS`] kinds are kept apart in a minute; what is beyond becomes one line `overflow`.

use crate::app::{App, Origin};
use crate::clock;
use lifecycle::names::{Source, Span, Timestamp};
use lifecycle::registry::{self, Actor, Command};
use std::collections::HashMap;
use std::sync::Mutex;

const KINDS: usize = 64;
const SAMPLES: usize = 8;
const SAMPLE_LENGTH: usize = 128;
const MINUTE: Span = Span::from_minutes(1);

type Kind = (Option<Source>, &'static str);

#[derive(Debug)]
struct Tally {
    began: Timestamp,
    /// Beyond what was already written.
    count: u64,
    samples: Vec<String>,
}

#[derive(Debug, Default)]
pub struct Refusals {
    tallies: Mutex<HashMap<Kind, Tally>>,
}

impl Refusals {
    /// Counts one refusal; the first of its kind is on record when this returns.
    pub async fn record(&self, app: &App, origin: &Origin, reason: &'static str, sample: Option<String>) {
        if let Some(first) = self.count(origin.source, reason, sample, clock::now()) {
            write(app, first, origin).await;
        }
    }

    fn count(
        &self,
        source: Source,
        reason: &'static str,
        sample: Option<String>,
        at: Timestamp,
    ) -> Option<registry::Refusals> {
        let sample = sample.map(|text| text.chars().take(SAMPLE_LENGTH).collect::<String>());
        let mut tallies = self.tallies.lock().ok()?;
        let network = Some(source.prefix());
        let kind = if tallies.contains_key(&(network, reason)) || tallies.len() < KINDS {
            (network, reason)
        } else {
            (None, "overflow")
        };
        if let Some(tally) = tallies.get_mut(&kind) {
            tally.count += 1;
            if let Some(sample) =
                sample.filter(|text| tally.samples.len() < SAMPLES && !tally.samples.contains(text))
            {
                tally.samples.push(sample);
            }
            return None;
        }
        tallies.insert(kind, Tally { began: at, count: 0, samples: Vec::new() });
        let (network, reason) = kind;
        Some(registry::Refusals {
            reason: reason.to_owned(),
            network,
            count: 1,
            samples: sample.into_iter().collect(),
        })
    }

    /// Writes the tallies whose minute is over; all of them when the process ends.
    pub async fn flush(&self, app: &App, all: bool) {
        for line in self.due(clock::now(), all) {
            let origin = Origin { source: line.network.unwrap_or(Source::Internal), ..Origin::internal() };
            write(app, line, &origin).await;
        }
    }

    fn due(&self, at: Timestamp, all: bool) -> Vec<registry::Refusals> {
        let Ok(mut tallies) = self.tallies.lock() else { return Vec::new() };
        let over = |tally: &Tally| all || at.since(tally.began) >= MINUTE || at < tally.began;
        let kinds: Vec<Kind> =
            tallies.iter().filter(|(_, tally)| over(tally)).map(|(kind, _)| *kind).collect();
        let ended = kinds.into_iter().filter_map(|kind| Some((kind, tallies.remove(&kind)?)));
        ended
            .filter(|(_, tally)| tally.count > 0)
            .map(|((network, reason), tally)| registry::Refusals {
                reason: reason.to_owned(),
                network,
                count: tally.count,
                samples: tally.samples,
            })
            .collect()
    }
}

async fn write(app: &App, line: registry::Refusals, origin: &Origin) {
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

    #[test]
    fn a_flood_from_one_network_is_two_lines_whose_counts_add_up() {
        let refusals = Refusals::default();
        let at = Timestamp::from_secs(1000);
        let first: Vec<_> = (0..999)
            .filter_map(|i| refusals.count(source((i % 250) as u8), "token_used", Some(format!("n{i}")), at))
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
        let refusals = Refusals::default();
        let at = Timestamp::from_secs(1000);
        let networks = (0..1000u32).map(|i| Source::Address(std::net::IpAddr::from((i << 8).to_be_bytes())));
        let written: Vec<_> =
            networks.filter_map(|network| refusals.count(network, "token_invalid", None, at)).collect();
        assert_eq!(written.len(), KINDS + 1);
        assert_eq!(written.last().map(|line| line.reason.as_str()), Some("overflow"));
        let rest = refusals.due(at, true);
        assert_eq!(rest.iter().map(|line| line.count).sum::<u64>(), 1000 - KINDS as u64 - 1);
    }
}
