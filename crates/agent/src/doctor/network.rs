//! Whether the control plane can be found, reached and trusted, and what time it has.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use client::unreachable::{Distrust, Unreachable};
use client::{Error, Operator, ServerUrl, Trust, probe};
use lifecycle::host::{Class, TOLERANCE};
use lifecycle::names::Span;
use tokio::net::lookup_host;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::check::Check;
use super::local::listed;
use super::subject::Subject;
use crate::store::tolerance;
use crate::{clock, code};

/// For everything that is asked of one server.
const PATIENCE: Duration = Duration::from_secs(9);

/// What came of asking one server.
#[derive(Debug)]
pub struct Asked {
    pub server: ServerUrl,
    /// How far this clock is ahead, in milliseconds, if it answered and said so.
    pub answer: Result<Option<i64>, Error>,
    /// The same, where its chain is good but for the time that this host has. It chooses a word and nothing else.
    pub aside: Option<i64>,
}

impl Asked {
    fn cause(&self) -> Option<&Unreachable> {
        match &self.answer {
            Err(Error::Unreachable { cause, .. }) => Some(cause),
            _ => None,
        }
    }

    /// Somebody is there, whoever it is.
    fn is_reached(&self) -> bool {
        match &self.answer {
            Ok(_) | Err(Error::Refused(_)) => true,
            Err(_) => self.cause().is_some_and(|cause| {
                matches!(cause, Unreachable::Untrusted(_) | Unreachable::Garbage(_) | Unreachable::Alert(_))
            }),
        }
    }

    pub fn what(&self) -> String {
        match &self.answer {
            Ok(_) => format!("{} answers", self.server),
            Err(error) => error.to_string(),
        }
    }

    /// Untrusted because of dates, theirs or ours.
    pub fn by_dates(&self) -> bool {
        matches!(self.cause(), Some(Unreachable::Untrusted(Distrust::Expired | Distrust::NotYetValid)))
    }
}

pub async fn examine(subject: &Subject) -> Vec<Check> {
    let servers = subject.servers();
    let trust = subject.trust();
    let (names, asked) = tokio::join!(resolution(subject, &servers), async {
        match &trust {
            Ok(trust) => ask_all(&servers, trust).await,
            Err(_) => Vec::new(),
        }
    });
    let tolerance = tolerance::read(&subject.dir).unwrap_or(TOLERANCE);
    let checks = [reachability(&servers, &asked), tls(&asked), clock(&asked, tolerance)];
    let mut checks = checks.into_iter();
    let first = checks.next();
    let mut all: Vec<Check> = first.into_iter().chain([names]).chain(checks).collect();
    // Without anything to recognise a server by nothing is sent, not even this.
    if let (Err(fault), false) = (&trust, servers.is_empty()) {
        for check in all.iter_mut().filter(|check| check.name != "resolution") {
            check.evidence = format!("not tried: {}", fault.message);
            check.remedy = fault.hint.to_string();
            check.class = (check.name == "tls").then_some(Class::ServerTlsUntrusted.as_str());
        }
    }
    all
}

/// Asks whether each lives; the connection is verified like any other and carries nothing else.
pub async fn ask_all(servers: &[ServerUrl], trust: &Trust) -> Vec<Asked> {
    let mut asking = JoinSet::new();
    for (place, server) in servers.iter().cloned().enumerate() {
        let trust = trust.clone();
        asking.spawn(async move { (place, ask(server, &trust).await) });
    }
    let mut asked: Vec<(usize, Asked)> = Vec::new();
    while let Some(came) = asking.join_next().await {
        asked.extend(came.ok());
    }
    asked.sort_by_key(|(place, _)| *place);
    asked.into_iter().map(|(_, asked)| asked).collect()
}

async fn ask(server: ServerUrl, trust: &Trust) -> Asked {
    let operator = match Operator::over_tls(server.clone(), trust, None) {
        Ok(operator) => operator,
        Err(error) => return Asked { server, answer: Err(error), aside: None },
    };
    let late =
        |_| Err(Error::Unreachable { server: server.to_string(), cause: Unreachable::TimedOut("answer") });
    let until = Instant::now() + PATIENCE;
    let answer = timeout_at(until, operator.alive()).await.unwrap_or_else(late);
    let mut asked = Asked { server, answer: answer.map(|time| time.map(ahead)), aside: None };
    if asked.by_dates()
        && let Ok(Ok(seen)) = timeout_at(until, probe::date(&asked.server, trust)).await
        && seen.in_date
    {
        asked.aside = Some(ahead(seen.date.millis()));
    }
    asked
}

/// How far this clock is ahead of that.
fn ahead(theirs: u64) -> i64 {
    let ours = i64::try_from(clock::now().millis()).unwrap_or(i64::MAX);
    ours.saturating_sub(i64::try_from(theirs).unwrap_or(i64::MAX))
}

/// One server that answers is enough: others may be down for a reason.
fn reachability(servers: &[ServerUrl], asked: &[Asked]) -> Check {
    const NAME: &str = "reachability";
    if servers.is_empty() {
        return Check::wrong(NAME, "server_missing", "no control plane is named");
    }
    let (reached, not): (Vec<&Asked>, Vec<&Asked>) = asked.iter().partition(|asked| asked.is_reached());
    let list = |asked: &[&Asked]| asked.iter().map(|asked| asked.what()).collect::<Vec<_>>().join("; ");
    let Some(first) = reached.first() else {
        let hint = not.first().and_then(|asked| asked.cause()).map_or("", Unreachable::hint);
        return Check::bad(NAME, Class::EndpointUnreachable, list(&not)).with(hint);
    };
    let others = if not.is_empty() { String::new() } else { format!("; {}", list(&not)) };
    Check::good(NAME, format!("{} is there{others}", first.server))
}

/// Any server that is not what it should be is worth a word, also beside one that is.
fn tls(asked: &[Asked]) -> Check {
    const NAME: &str = "tls";
    let reached: Vec<&Asked> = asked.iter().filter(|asked| asked.is_reached()).collect();
    for asked in &reached {
        match (&asked.answer, asked.cause()) {
            (_, Some(cause @ (Unreachable::Untrusted(_) | Unreachable::Garbage(_)))) => {
                let drift = cause.class() == Class::EndpointProfileDrift.as_str();
                let class = if drift { Class::EndpointProfileDrift } else { Class::ServerTlsUntrusted };
                let check = Check::bad(NAME, class, asked.what()).with(cause.hint());
                return if asked.by_dates() { check.by_dates() } else { check };
            }
            (Err(Error::Refused(refusal)), _) => {
                let what = format!("{}: {}", asked.server, refusal.detail.message);
                return Check::bad(NAME, Class::EndpointProfileDrift, what);
            }
            _ => {}
        }
    }
    match reached.first() {
        Some(first) => Check::good(NAME, format!("{} has proven who it is", first.server)),
        None => unasked(NAME, asked),
    }
}

fn clock(asked: &[Asked], tolerance: Span) -> Check {
    const NAME: &str = "clock";
    let answered = asked.iter().find_map(|asked| asked.answer.as_ref().ok().copied().flatten());
    let Some(ahead) = answered.or_else(|| asked.iter().find_map(|asked| asked.aside)) else {
        return unasked(NAME, asked);
    };
    let side = if ahead < 0 { "behind" } else { "ahead of" };
    let evidence = format!("this clock is {} {side} the control plane's", spoken(ahead.unsigned_abs()));
    if Span::from_millis(ahead.unsigned_abs()) > tolerance {
        let check = Check::bad(NAME, Class::ClockSkew, evidence);
        // Whose certificate is not good now has not proven who it is.
        return if answered.is_some() { check } else { check.with(code::CLOCK) };
    }
    Check::good(NAME, evidence)
}

/// Nobody could be asked, for a reason that another check tells.
fn unasked(name: &'static str, asked: &[Asked]) -> Check {
    let reached = asked.iter().find(|asked| asked.is_reached()).and_then(Asked::cause);
    let (class, see) = match reached.and_then(|cause| Class::parse(cause.class())) {
        Some(class) => (class, "see tls"),
        None => (Class::EndpointUnreachable, "see reachability and resolution"),
    };
    Check::bad(name, class, "not known: no control plane could be asked").with(see)
}

/// Every name that the daemon needs, and those that it keeps in the hosts file.
async fn resolution(subject: &Subject, servers: &[ServerUrl]) -> Check {
    const NAME: &str = "resolution";
    let managed = subject.managed();
    let drift = subject.look.drift.iter().filter(|finding| finding.kind == "name");
    let drift: Vec<String> = drift.map(ToString::to_string).collect();
    if !drift.is_empty() {
        let evidence = format!("{}, in {}", listed(&drift), subject.upkeep.hosts_file.display());
        return Check::bad(NAME, Class::EndpointProfileDrift, evidence);
    }
    let of_servers: Vec<String> = servers.iter().map(ServerUrl::host).collect();
    let mut hosts: Vec<String> = of_servers.clone();
    hosts.extend(managed.into_keys());
    hosts.extend(subject.terminal().map(|terminal| terminal.host()));
    let (mut found, mut lost) = (Vec::new(), Vec::new());
    // One server that is found is enough; of the other names each is needed.
    let (mut none, mut needed) = (!of_servers.is_empty(), false);
    for (host, came) in resolved(hosts).await {
        let of_server = of_servers.contains(&host);
        match came {
            Ok(address) => {
                found.push(format!("{host} is {address}"));
                none &= !of_server;
            }
            Err(reason) => {
                lost.push(format!("{host} does not resolve: {reason}"));
                needed |= !of_server;
            }
        }
    }
    if needed || none {
        let remedy = "check this host's DNS, or name the address under [hosts] in agent.toml and run `enlist-agent reconcile`";
        return Check::bad(NAME, Class::EndpointUnreachable, listed(&lost)).with(remedy);
    }
    found.extend(lost);
    Check::good(
        NAME,
        if found.is_empty() { "there is no name to resolve".to_owned() } else { found.join("; ") },
    )
}

/// All at once, each name once.
async fn resolved(hosts: Vec<String>) -> BTreeMap<String, Result<String, String>> {
    let mut asking = JoinSet::new();
    for host in hosts.into_iter().collect::<BTreeSet<String>>() {
        asking.spawn(async move {
            let came = address(&host).await;
            (host, came)
        });
    }
    let mut all = BTreeMap::new();
    while let Some(came) = asking.join_next().await {
        all.extend(came.ok());
    }
    all
}

/// The first, as it is shown.
async fn address(host: &str) -> Result<String, String> {
    match timeout(PATIENCE, lookup_host((host, 0))).await {
        Err(_) => Err("no answer in time".to_owned()),
        Ok(Err(error)) => Err(error.to_string()),
        Ok(Ok(mut found)) => found.next().map(|at| at.ip().to_string()).ok_or("no addresses".to_owned()),
    }
}

/// In the two largest units that are not zero.
pub fn spoken(millis: u64) -> String {
    let parts = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"), (1, "ms")];
    let (mut left, mut said) = (millis, Vec::new());
    for (size, unit) in parts {
        let (count, rest) = (left / size, left % size);
        if count > 0 && said.len() < 2 {
            said.push(format!("{count} {unit}"));
        }
        left = rest;
    }
    if said.is_empty() { "0 s".to_owned() } else { said.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(answer: Result<Option<i64>, Unreachable>) -> Asked {
        let server = ServerUrl::parse("https://cp.example").unwrap();
        let answer = answer.map_err(|cause| Error::Unreachable { server: server.to_string(), cause });
        Asked { server, answer, aside: None }
    }

    fn classes(asked: &[Asked]) -> [Option<&'static str>; 3] {
        let servers = [ServerUrl::parse("https://cp.example").unwrap()];
        [reachability(&servers, asked).class, tls(asked).class, clock(asked, TOLERANCE).class]
    }

    #[test]
    fn each_cause_is_told_where_it_belongs() {
        const GONE: Option<&str> = Some("endpoint_unreachable");
        const UNTRUSTED: Option<&str> = Some("server_tls_untrusted");
        const DRIFT: Option<&str> = Some("endpoint_profile_drift");
        assert_eq!(classes(&[asked(Ok(Some(250)))]), [None, None, None]);
        assert_eq!(classes(&[asked(Err(Unreachable::ConnectionRefused))]), [GONE, GONE, GONE]);
        let untrusted = Unreachable::Untrusted(Distrust::UnknownIssuer);
        assert_eq!(classes(&[asked(Err(untrusted))]), [None, UNTRUSTED, UNTRUSTED]);
        let name = Unreachable::Untrusted(Distrust::WrongName);
        assert_eq!(classes(&[asked(Err(name))])[1], DRIFT);
        let html = Unreachable::Garbage("HTML".to_owned());
        assert_eq!(classes(&[asked(Err(html))]), [None, DRIFT, DRIFT]);
        let behind = -301_000;
        assert_eq!(classes(&[asked(Ok(Some(behind)))]), [None, None, Some("clock_skew")]);
    }

    #[test]
    fn a_chain_that_is_good_at_another_time_tells_the_clock() {
        let mut early = asked(Err(Unreachable::Untrusted(Distrust::NotYetValid)));
        early.aside = Some(-3_600_000);
        let remedy = clock(std::slice::from_ref(&early), TOLERANCE).remedy;
        assert!(remedy.contains("impostor"), "{remedy}");
        assert_eq!(classes(&[early]), [None, Some("server_tls_untrusted"), Some("clock_skew")]);
    }

    #[test]
    fn one_server_of_several_is_enough_but_an_impostor_is_told() {
        let fine = || asked(Ok(Some(0)));
        let down = asked(Err(Unreachable::ConnectionRefused));
        assert_eq!(classes(&[down, fine()]), [None, None, None]);
        let impostor = asked(Err(Unreachable::Untrusted(Distrust::UnknownIssuer)));
        assert_eq!(classes(&[fine(), impostor]), [None, Some("server_tls_untrusted"), None]);
    }

    #[test]
    fn lengths_are_said_as_people_say_them() {
        assert_eq!(spoken(0), "0 s");
        assert_eq!(spoken(250), "250 ms");
        assert_eq!(spoken(7_380_000), "2 h 3 min");
        assert_eq!(spoken(86_400_000 * 400), "400 d");
    }
}
