//! One machine that fails to enroll again and again: it is registered wrongly, or somebody tries out what it is known by.
//!
//! What strangers say can neither grow the tables nor the trail: at most [`STRANGE`] unregistered machines are remembered,
//! and the alert is raised once a minute at most.

use crate::process::app::{App, Provenance};
use lifecycle::names::{Mac, Source, Span, Timestamp};
use lifecycle::registry::{Actor, AlertKind, Command, HardwareIdentity, RaiseAlert, State};
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// So many failures...
const FAILURES: usize = 5;
/// ...in this time raise the alert.
const WITHIN: Span = Span::from_minutes(10);
/// Unregistered machines that are remembered. Those with the fewest failures make room.
const STRANGE: usize = 4096;
/// The alert is raised this often at most: there is one for all machines.
const REST: Span = Span::from_minutes(1);
/// Machines and networks that one alert names, the latest first.
const NAMED: usize = 16;
/// So many interfaces that nobody is registered with, in that time and from one network, are a search for one that is.
const SEARCHED: u64 = 1000;
/// Networks that are remembered.
const NETWORKS: usize = 1024;

#[derive(Debug, Default)]
pub struct RepeatedFailures {
    tables: Mutex<FailureTables>,
}

#[derive(Debug, Default)]
struct FailureTables {
    /// Of interfaces that somebody is registered with: there are as many as the registry has.
    registered: HashMap<Mac, FailingMachine>,
    strange: HashMap<Mac, FailingMachine>,
    searches: HashMap<Source, SearchingNetwork>,
    /// What the alert says of whom, the latest first.
    named: VecDeque<(String, String)>,
    /// Something has been added to it.
    due: bool,
    raised: Option<Timestamp>,
}

/// How many interfaces a network has asked for that nobody is registered with.
#[derive(Debug)]
struct SearchingNetwork {
    began: Timestamp,
    interfaces: u64,
}

#[derive(Debug, Default)]
struct FailingMachine {
    /// Those that count towards the next alert.
    latest: VecDeque<Timestamp>,
    last: Option<Timestamp>,
    total: u64,
}

impl FailingMachine {
    /// Counts one; true when there were enough in the time.
    fn fails(&mut self, at: Timestamp) -> bool {
        self.latest.retain(|earlier| at.since(*earlier) < WITHIN);
        self.latest.push_back(at);
        self.last = Some(at);
        self.total = self.total.saturating_add(1);
        let enough = self.latest.len() >= FAILURES;
        if enough {
            self.latest.clear();
        }
        enough
    }

    fn is_over(&self, at: Timestamp) -> bool {
        self.last.is_none_or(|last| at.since(last) >= WITHIN)
    }
}

impl FailureTables {
    /// By every interface that somebody is registered with, so that others in the same request do not hide it; by one
    /// of them if nobody is.
    fn count(
        &mut self,
        state: &State,
        claimed: &HardwareIdentity,
        reason: &str,
        from: Source,
        at: Timestamp,
    ) {
        let known: Vec<Mac> =
            claimed.macs.iter().filter(|mac| state.node_with_mac(mac).is_some()).copied().collect();
        let strange = claimed.macs.first().filter(|_| known.is_empty());
        if let Some(mac) = strange {
            self.make_room(mac, at);
            self.search(claimed.macs.len() as u64, from.prefix(), at);
        }
        for mac in known.into_iter().chain(strange.copied()) {
            let table = if strange.is_some() { &mut self.strange } else { &mut self.registered };
            let machine = table.entry(mac).or_default();
            if machine.fails(at) {
                let total = machine.total;
                let holder = state.node_with_mac(&mac).map(|node| format!(" registered_as={node}"));
                let holder = holder.unwrap_or_default();
                let text = format!("mac={mac}{holder} failures={total} last={reason} at={at} from={from}");
                self.name(mac.to_string(), text);
            }
        }
    }

    fn make_room(&mut self, mac: &Mac, at: Timestamp) {
        if self.strange.len() < STRANGE || self.strange.contains_key(mac) {
            return;
        }
        // All that have failed least go at once, so that a flood does not have the table searched every time.
        let least = self.strange.values().map(|machine| machine.total).min().unwrap_or(0);
        self.strange.retain(|_, machine| !machine.is_over(at) && machine.total > least);
    }

    /// Whoever tries out addresses fails with each of them once: only the network tells.
    fn search(&mut self, interfaces: u64, network: Source, at: Timestamp) {
        let over = |search: &SearchingNetwork| at.since(search.began) >= WITHIN;
        if self.searches.len() >= NETWORKS && !self.searches.contains_key(&network) {
            self.searches.retain(|_, search| !over(search));
            if self.searches.len() >= NETWORKS {
                return;
            }
        }
        let search = self.searches.entry(network).or_insert(SearchingNetwork { began: at, interfaces: 0 });
        if over(search) {
            *search = SearchingNetwork { began: at, interfaces: 0 };
        }
        let before = search.interfaces / SEARCHED;
        search.interfaces = search.interfaces.saturating_add(interfaces);
        let (asked, since) = (search.interfaces, search.began);
        if asked / SEARCHED > before {
            let text = format!("network={network} unregistered_macs={asked} since={since}");
            self.name(network.to_string(), text);
        }
    }

    fn name(&mut self, whom: String, text: String) {
        self.named.retain(|(named, _)| *named != whom);
        self.named.push_front((whom, text));
        self.named.truncate(NAMED);
        self.due = true;
    }

    /// What the alert says now, if it is to be raised.
    fn detail(&mut self, at: Timestamp) -> Option<String> {
        self.registered.retain(|_, machine| !machine.is_over(at));
        let rested = self.raised.is_none_or(|raised| at.since(raised) >= REST || at < raised);
        if !self.due || !rested {
            return None;
        }
        (self.due, self.raised) = (false, Some(at));
        let named: Vec<&str> = self.named.iter().map(|(_, text)| text.as_str()).collect();
        Some(format!("enrollments by hardware fail again and again: {}", named.join("; ")))
    }
}

impl RepeatedFailures {
    fn tables(&self) -> MutexGuard<'_, FailureTables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn count(&self, app: &App, claimed: &HardwareIdentity, reason: &str, from: Source) {
        self.tables().count(&app.view().state, claimed, reason, from, app.clock.now());
    }

    /// A machine that got in is well.
    pub fn succeeded(&self, claimed: &HardwareIdentity) {
        let mut tables = self.tables();
        for mac in &claimed.macs {
            tables.registered.remove(mac);
            tables.strange.remove(mac);
        }
    }

    /// Raises the alert if it is due.
    pub async fn flush(&self, app: &App) {
        let detail = self.tables().detail(app.clock.now());
        let Some(detail) = detail else { return };
        let raise = RaiseAlert { kind: AlertKind::RepeatedFailures, node: None, detail };
        let raised = app.commit(Actor::Reconciler, &Provenance::internal(), Command::RaiseAlert(raise)).await;
        if let Err(failure) = raised {
            tracing::warn!(code = failure.code.word, "an alert could not be raised: {}", failure.message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lifecycle::registry::HardwareText;

    const START: Timestamp = Timestamp::from_secs(1_000_000);

    fn machine(mac: &str) -> HardwareIdentity {
        let text = HardwareText { macs: vec![mac], ..HardwareText::default() };
        HardwareIdentity::claimed(&text).expect("well formed")
    }

    fn fail(tables: &mut FailureTables, mac: &str, second: u64) {
        let from = Source::Address(std::net::IpAddr::from([192, 0, 2, 1]));
        let at = START.plus(Span::from_secs(second));
        tables.count(&State::default(), &machine(mac), "node_not_enrolled", from, at);
    }

    fn detail(tables: &mut FailureTables, second: u64) -> Option<String> {
        tables.detail(START.plus(Span::from_secs(second)))
    }

    #[test]
    fn five_failures_of_one_machine_in_ten_minutes_are_named_once() {
        let mut tables = FailureTables::default();
        (0..4).for_each(|second| fail(&mut tables, "52:54:00:00:00:01", second));
        (0..4).for_each(|second| fail(&mut tables, "52:54:00:00:00:02", second));
        assert_eq!(detail(&mut tables, 5), None);
        fail(&mut tables, "52:54:00:00:00:01", 599);
        let said = detail(&mut tables, 600).expect("the fifth");
        assert!(said.contains("mac=52:54:00:00:00:01 failures=5"), "{said}");
        assert!(!said.contains("00:02"), "{said}");
        assert_eq!(detail(&mut tables, 601), None, "said once");
        fail(&mut tables, "52:54:00:00:00:02", 604);
        assert_eq!(detail(&mut tables, 900), None, "the others are ten minutes old");
    }

    #[test]
    fn a_flood_of_strange_machines_neither_grows_the_table_nor_hides_one_that_goes_on() {
        let mut tables = FailureTables::default();
        for number in 0..20_000u32 {
            let [_, a, b, c] = number.to_be_bytes();
            fail(&mut tables, &format!("02:00:00:{a:02x}:{b:02x}:{c:02x}"), 1);
            if number % 5000 < 2 {
                fail(&mut tables, "52:54:00:00:00:01", 2);
            }
        }
        assert!(tables.strange.len() <= STRANGE);
        assert!(detail(&mut tables, 3).is_some_and(|said| said.contains("52:54:00:00:00:01")));
        (0..5).for_each(|second| fail(&mut tables, "52:54:00:00:00:09", second));
        assert_eq!(detail(&mut tables, 4), None, "once a minute");
        assert!(detail(&mut tables, 64).is_some_and(|said| said.contains("52:54:00:00:00:09")));
    }
}
