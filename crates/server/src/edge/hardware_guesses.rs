//! What a machine is known by is no secret, so that somebody may try addresses until one is a machine's. The limit stands before the
//! look-up: a source that was refused too often in a minute is answered `rate_limited` whatever it claims, so that a right guess tells
//! it nothing. What is granted never counts, so that any number of registered machines come in from one address.
//!
//! Whoever guesses what else a known machine is registered with, from many sources, is limited by the interface that they all name;
//! sources that were refused nothing in that minute still come in with it, as the machine itself does.

use super::limits::counts_as_failure;
use crate::http::failure::Failure;
use crate::process::app::{App, Provenance};
use api::code::{self, Code};
use lifecycle::names::{Mac, Network, Source, Span, Timestamp};
use lifecycle::registry::{Actor, AlertKind, Command, HardwareIdentity, Policy, RaiseAlert};
use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, Hash};
use std::sync::{Mutex, MutexGuard, PoisonError};

const MINUTE: Span = Span::from_minutes(1);
/// A claim counts once per so many addresses that it has begun.
const ADDRESSES: usize = 8;
/// Refused claims with one interface in a minute, from everywhere.
const OF_ONE_INTERFACE: u32 = 10;
/// Sources that are remembered, and interfaces. Those with the fewest refusals make room.
const SOURCES: usize = 8192;
const INTERFACES: usize = 16_384;
/// Claims of a source that are known again in its minute; more count each time.
const CLAIMS: usize = 128;
/// Sources that one alert names, the latest first.
const NAMED: usize = 16;

#[derive(Debug, Default)]
pub struct HardwareGuesses {
    tables: Mutex<GuessTables>,
}

#[derive(Debug, Default)]
struct GuessTables {
    sources: HashMap<Source, GuessingSource>,
    interfaces: HashMap<Mac, RefusedInMinute>,
    hashing: RandomState,
    /// What the alert says of whom, the latest first.
    named: VecDeque<(Source, String)>,
    /// Something has been added to it.
    due: bool,
    raised: Option<Timestamp>,
}

/// Refused claims since a minute began.
#[derive(Debug)]
struct RefusedInMinute {
    began: Timestamp,
    refused: u32,
}

#[derive(Debug)]
struct GuessingSource {
    minute: RefusedInMinute,
    claims: HashSet<u64>,
}

impl RefusedInMinute {
    fn begin(at: Timestamp) -> Self {
        Self { began: at, refused: 0 }
    }

    fn is_over(&self, at: Timestamp) -> bool {
        at.since(self.began) >= MINUTE || at < self.began
    }

    fn refused(&self, at: Timestamp) -> u32 {
        if self.is_over(at) { 0 } else { self.refused }
    }
}

/// An IPv4 address, or a /64 of IPv6: what one machine can have.
fn guesser(source: Source) -> Option<Source> {
    source.address().and_then(|_| source.networks().last().copied())
}

fn is_exempt(source: Source, exempt: &[Network]) -> bool {
    source.address().is_some_and(|address| exempt.iter().any(|network| network.contains(&address)))
}

impl GuessTables {
    /// How long a source has to wait before it is listened to again; none if it need not.
    fn wait(&self, claimed: &HardwareIdentity, source: Source, limit: u32, at: Timestamp) -> Option<Span> {
        let known = self.sources.get(&source).map(|known| &known.minute);
        let known = known.filter(|minute| minute.refused(at) > 0)?;
        let named_by_many = || {
            let refused = claimed.macs.iter().filter_map(|mac| self.interfaces.get(mac));
            refused.into_iter().any(|minute| minute.refused(at) >= OF_ONE_INTERFACE)
        };
        let limited = known.refused(at) >= limit || named_by_many();
        limited.then(|| Span::from_millis(MINUTE.millis().saturating_sub(at.since(known.began).millis())))
    }

    fn count(&mut self, claimed: &HardwareIdentity, source: Source, limit: u32, at: Timestamp) {
        let claim = self.hashing.hash_one(HashedClaim(claimed));
        if !self.sources.contains_key(&source) {
            make_room(&mut self.sources, SOURCES, |known| &known.minute, at);
        }
        let begin = || GuessingSource { minute: RefusedInMinute::begin(at), claims: HashSet::new() };
        let known = self.sources.entry(source).or_insert_with(begin);
        if known.minute.is_over(at) {
            *known = begin();
        }
        if known.claims.contains(&claim) {
            return;
        }
        if known.claims.len() < CLAIMS {
            known.claims.insert(claim);
        }
        let before = known.minute.refused;
        let weight = u32::try_from(claimed.macs.len().div_ceil(ADDRESSES)).unwrap_or(u32::MAX);
        known.minute.refused = before.saturating_add(weight);
        if before < limit && known.minute.refused >= limit {
            let (refused, since) = (known.minute.refused, known.minute.began);
            self.name(source, format!("source={source} refused={refused} since={since}"));
        }
        for mac in &claimed.macs {
            if !self.interfaces.contains_key(mac) {
                make_room(&mut self.interfaces, INTERFACES, |minute| minute, at);
            }
            let minute = self.interfaces.entry(*mac).or_insert_with(|| RefusedInMinute::begin(at));
            if minute.is_over(at) {
                *minute = RefusedInMinute::begin(at);
            }
            minute.refused = minute.refused.saturating_add(1);
        }
    }

    fn name(&mut self, source: Source, text: String) {
        self.named.retain(|(named, _)| *named != source);
        self.named.push_front((source, text));
        self.named.truncate(NAMED);
        self.due = true;
    }

    /// What the alert says now, if it is to be raised.
    fn detail(&mut self, at: Timestamp) -> Option<String> {
        let rested = self.raised.is_none_or(|raised| at.since(raised) >= MINUTE || at < raised);
        if !self.due || !rested {
            return None;
        }
        (self.due, self.raised) = (false, Some(at));
        let named: Vec<String> = self.named.drain(..).map(|(_, text)| text).collect();
        Some(named.join("; "))
    }
}

/// Those whose minute is over make room, then those that were refused least, all at once, so that a flood does not have the table
/// searched every time.
fn make_room<K: Eq + Hash, V>(
    table: &mut HashMap<K, V>,
    most: usize,
    minute: impl Fn(&V) -> &RefusedInMinute,
    at: Timestamp,
) {
    if table.len() < most {
        return;
    }
    table.retain(|_, known| !minute(known).is_over(at));
    if table.len() < most {
        return;
    }
    let least = table.values().map(|known| minute(known).refused).min().unwrap_or(0);
    table.retain(|_, known| minute(known).refused > least);
}

/// A claim, to be known again by.
struct HashedClaim<'a>(&'a HardwareIdentity);

impl Hash for HashedClaim<'_> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        let HardwareIdentity { macs, bmc_serial, system_uuid, tpm_ek_hash } = self.0;
        macs.iter().for_each(|mac| mac.to_string().hash(state));
        (bmc_serial, system_uuid, tpm_ek_hash).hash(state);
    }
}

impl HardwareGuesses {
    fn tables(&self) -> MutexGuard<'_, GuessTables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this source is listened to. Asked before anything is looked up.
    pub fn check(
        &self,
        policy: &Policy,
        claimed: &HardwareIdentity,
        source: Source,
        at: Timestamp,
    ) -> Result<(), Failure> {
        let Some((source, limit)) = limited(policy, source) else { return Ok(()) };
        match self.tables().wait(claimed, source, limit, at) {
            None => Ok(()),
            Some(wait) => {
                let seconds = u32::try_from(wait.millis().div_ceil(1000)).unwrap_or(u32::MAX);
                let failure = Failure::new(code::RATE_LIMITED, "too many refused claims of hardware");
                Err(failure.retry_after(seconds.max(1)))
            }
        }
    }

    /// Counts a claim that was refused with this code.
    pub fn refused(
        &self,
        policy: &Policy,
        claimed: &HardwareIdentity,
        (source, code): (Source, &'static Code),
        at: Timestamp,
    ) {
        // Where policy takes no hardware, nothing was looked up.
        if !counts_as_failure(code) || code == code::ATTESTOR_NOT_ALLOWED {
            return;
        }
        if let Some((source, limit)) = limited(policy, source) {
            self.tables().count(claimed, source, limit, at);
        }
    }

    /// Raises the alert if it is due, and if strangers may still cause lines of the audit trail.
    pub async fn flush(&self, app: &App) {
        let at = app.clock.now();
        let Some(detail) = self.tables().detail(at) else { return };
        if !app.edge.refusals.takes_line(at) {
            return;
        }
        let raise = RaiseAlert { kind: AlertKind::HardwareGuessed, node: None, detail };
        let raised = app.commit(Actor::Reconciler, &Provenance::internal(), Command::RaiseAlert(raise)).await;
        if let Err(failure) = raised {
            tracing::warn!(code = failure.code.word, "an alert could not be raised: {}", failure.message);
        }
    }
}

/// By what a source is counted and how much it may be refused, if it is limited at all.
fn limited(policy: &Policy, source: Source) -> Option<(Source, u32)> {
    let limit = policy.failures_hardware_per_minute;
    let limited = limit > 0 && !is_exempt(source, &policy.failures_hardware_exempt);
    guesser(source).filter(|_| limited).map(|source| (source, limit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lifecycle::registry::HardwareText;

    const START: Timestamp = Timestamp::from_secs(1_000_000);

    fn machine(number: u32, macs: u32, serial: &str) -> HardwareIdentity {
        let mac = |number: u32| {
            let [_, a, b, c] = number.to_be_bytes();
            format!("52:54:00:{a:02x}:{b:02x}:{c:02x}")
        };
        let macs: Vec<String> = (number..number + macs).map(mac).collect();
        let macs = macs.iter().map(String::as_str).collect();
        let text = HardwareText { macs, bmc_serial: serial, ..HardwareText::default() };
        HardwareIdentity::claimed(&text).expect("well formed")
    }

    fn at(second: u64) -> Timestamp {
        START.plus(Span::from_secs(second))
    }

    fn from(text: &str) -> Source {
        Source::Address(text.parse().expect("an address"))
    }

    struct World(HardwareGuesses, Policy);

    impl World {
        fn new() -> Self {
            Self(HardwareGuesses::default(), Policy::default())
        }

        fn answers(&self, claimed: &HardwareIdentity, source: &str, second: u64) -> bool {
            self.0.check(&self.1, claimed, from(source), at(second)).is_ok()
        }

        /// Asks, and is refused if it is listened to.
        fn guess(&self, claimed: &HardwareIdentity, source: &str, second: u64) -> bool {
            let answered = self.answers(claimed, source, second);
            if answered {
                let refusal = (from(source), code::NODE_NOT_ENROLLED);
                self.0.refused(&self.1, claimed, refusal, at(second));
            }
            answered
        }

        fn guesses(&self, count: u32, macs: u32, source: &str, second: u64) -> usize {
            (0..count).filter(|n| self.guess(&machine(n * 64, macs, ""), source, second)).count()
        }
    }

    #[test]
    fn a_source_over_its_limit_is_told_nothing_until_its_minute_is_over() {
        let world = World::new();
        assert_eq!(world.guesses(150, 1, "192.0.2.1", 0), 100);
        let right = machine(9_000_000, 1, "SN1");
        let limited = world.0.check(&world.1, &right, from("192.0.2.1"), at(10)).expect_err("limited");
        assert_eq!((limited.code, limited.retry_after), (code::RATE_LIMITED, Some(50)));
        assert!(world.answers(&right, "192.0.2.2", 10), "its neighbour");
        assert!(world.answers(&right, "192.0.2.1", 60));
        let detail = world.0.tables().detail(at(10)).expect("an alert");
        assert_eq!(detail, format!("source=192.0.2.1 refused=100 since={START}"));
        assert_eq!(world.0.tables().detail(at(11)), None, "said once");
    }

    #[test]
    fn a_claim_counts_by_its_addresses_and_the_same_again_once_a_minute() {
        let world = World::new();
        assert_eq!(world.guesses(20, 64, "192.0.2.1", 0), 13, "eight each");
        assert_eq!(world.guesses(150, 9, "192.0.2.2", 0), 50, "two each");
        let same = machine(1, 1, "SN1");
        assert!((0..1000).all(|_| world.guess(&same, "192.0.2.3", 0)));
        assert_eq!(world.guesses(150, 1, "192.0.2.3", 0), 99);
    }

    #[test]
    fn an_ipv6_network_of_one_machine_is_one_source_and_what_policy_exempts_is_none() {
        let mut world = World::new();
        let guess = |world: &World, n: u32| world.guess(&machine(n, 1, ""), &format!("2001:db8::{n:x}"), 0);
        assert_eq!((0..150).filter(|n| guess(&world, *n)).count(), 100);
        assert_eq!(world.guesses(150, 1, "2001:db8:0:1::1", 0), 100, "the next /64");
        world.1.failures_hardware_exempt = vec![Network::parse("2001:db8::/32").expect("a network")];
        assert_eq!(world.guesses(150, 1, "2001:db8:0:2::1", 0), 150);
        world.1.failures_hardware_per_minute = 0;
        assert_eq!(world.guesses(150, 1, "192.0.2.1", 0), 150);
    }

    #[test]
    fn what_is_refused_from_everywhere_is_limited_for_those_who_were_refused() {
        let world = World::new();
        let serial = |n: u32| machine(7, 1, &format!("SN{n}"));
        assert!((0..10).all(|n| world.guess(&serial(n), &format!("192.0.2.{n}"), 0)));
        assert!(!world.guess(&serial(11), "192.0.2.1", 1), "has been refused");
        assert!(world.answers(&serial(11), "192.0.2.200", 1), "the machine itself");
        assert!(world.answers(&machine(8, 1, ""), "192.0.2.1", 1), "another machine");
        assert!(world.guess(&serial(11), "192.0.2.1", 60));
    }

    #[test]
    fn the_tables_do_not_grow_and_whoever_goes_on_is_not_forgotten() {
        let world = World::new();
        assert_eq!(world.guesses(200, 1, "192.0.2.1", 0), 100);
        for n in 0..30_000u32 {
            let source =
                std::net::Ipv6Addr::from((0x2001_0db8_u128 << 96) | (u128::from(n) << 64)).to_string();
            assert!(world.guess(&machine(n * 2, 2, ""), &source, 1));
        }
        let tables = world.0.tables();
        assert!(tables.sources.len() <= SOURCES && tables.interfaces.len() <= INTERFACES);
        drop(tables);
        assert!(!world.answers(&machine(1, 1, ""), "192.0.2.1", 2));
    }
}
