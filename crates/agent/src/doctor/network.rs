//! Whether the control plane can be found, reached and trusted, and what time it has.

use std::collections::BTreeSet;
use std::time::Duration;

use client::unreachable::{Distrust, Unreachable};
use client::{Error, OperatorApi, ServerUrl, Trust, probe};
use lifecycle::host::{Class, TOLERANCE};
use lifecycle::names::Span;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::check::Check;
use super::resolution;
use super::subject::DoctorSubject;
use crate::code::AgentCode;
use crate::fault::Fault;
use crate::spoken::spoken;
use crate::store::tolerance;
use crate::{clock, code};

/// For everything that is asked of one server.
pub const PATIENCE: Duration = Duration::from_secs(9);

/// Why checks of a server that nobody can reach are not made.
pub const UNREACHABLE: &str = "control plane unreachable";
pub const ABSENT: &str = "this host is not enrolled";

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
    pub fn cause(&self) -> Option<&Unreachable> {
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

/// The checks in their order, and what came of asking each server.
pub async fn examine(subject: &DoctorSubject) -> (Vec<Check>, Vec<Asked>) {
    let servers = subject.servers();
    let trust = subject.trust();
    let (names, asked) = tokio::join!(resolution::examine(subject, &servers), async {
        match &trust {
            Ok(trust) => ask_all(&servers, trust).await,
            Err(_) => Vec::new(),
        }
    });
    let tolerance = tolerance::read(&subject.kept).unwrap_or(TOLERANCE);
    let [reachability, tls, clock] = match &trust {
        Ok(_) => [reachability(&asked, &names.lost), tls(&asked), clock(&asked, tolerance)],
        Err(fault) => unasked(subject, fault),
    };
    (vec![reachability, names.check, tls, clock], asked)
}

/// Without an address or a trust anchor nothing is sent, not even a question.
fn unasked(subject: &DoctorSubject, fault: &Fault) -> [Check; 3] {
    let [reachability, tls, clock] = ["reachability", "tls", "clock"];
    if subject.config.is_err() {
        return [reachability, tls, clock].map(|name| Check::skipped(name, "config", "a setting is wrong"));
    }
    // A host that was never enrolled lacks both, and that is one cause.
    let settled = |check: Check| if subject.is_absent() { check.follows("identity", ABSENT) } else { check };
    if fault.code.agent() == Some(AgentCode::ServerMissing) {
        let missing = Check::wrong(reachability, AgentCode::ServerMissing, fault.message.clone());
        let skipped = |name| Check::skipped(name, reachability, "no control plane is named");
        return [settled(missing), skipped(tls), skipped(clock)];
    }
    let check = Check::bad(tls, Class::ServerTlsUntrusted, fault.message.clone()).with(fault.hint.clone());
    let skipped = |name| Check::skipped(name, tls, "no usable trust anchor is configured");
    let check = if fault.code.agent() == Some(AgentCode::TrustMissing) { settled(check) } else { check };
    [skipped(reachability), check, skipped(clock)]
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
    let operator = match OperatorApi::over_tls(server.clone(), trust, None) {
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

/// One server that answers is enough: others may be down for a reason. `lost` are the names without an address.
fn reachability(asked: &[Asked], lost: &BTreeSet<String>) -> Check {
    const NAME: &str = "reachability";
    let (reached, not): (Vec<&Asked>, Vec<&Asked>) = asked.iter().partition(|asked| asked.is_reached());
    let list = |asked: &[&Asked]| asked.iter().map(|asked| asked.what()).collect::<Vec<_>>().join("; ");
    let Some(first) = reached.first() else {
        let hint = not.first().and_then(|asked| asked.cause()).map_or("", Unreachable::hint);
        let check = Check::bad(NAME, Class::EndpointUnreachable, list(&not)).with(hint);
        let by_name = not.iter().all(|asked| lost.contains(&asked.server.host()));
        return if by_name {
            check.follows("resolution", "no address of the control plane is known")
        } else {
            check
        };
    };
    let check = Check::good(NAME, format!("{} answers", first.server));
    if not.is_empty() { check } else { check.warn(format!("not every server answers: {}", list(&not))) }
}

/// Any server that is not what it should be is a fault, also beside one that is.
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
        Some(first) => Check::good(NAME, format!("the certificate of {} is valid and trusted", first.server)),
        None => Check::skipped(NAME, "reachability", UNREACHABLE),
    }
}

fn clock(asked: &[Asked], tolerance: Span) -> Check {
    const NAME: &str = "clock";
    let answered = asked.iter().find_map(|asked| asked.answer.as_ref().ok().copied().flatten());
    let Some(ahead) = answered.or_else(|| asked.iter().find_map(|asked| asked.aside)) else {
        return match asked.iter().any(Asked::is_reached) {
            true => Check::skipped(NAME, "tls", "the control plane is not authenticated"),
            false => Check::skipped(NAME, "reachability", UNREACHABLE),
        };
    };
    let side = if ahead < 0 { "behind" } else { "ahead of" };
    let evidence =
        format!("this host's clock is {} {side} the control plane's", spoken(ahead.unsigned_abs()));
    if Span::from_millis(ahead.unsigned_abs()) > tolerance {
        let check = Check::bad(NAME, Class::ClockSkew, evidence);
        // Whose certificate is not good now has not proven who it is.
        return if answered.is_some() { check } else { check.with(code::CLOCK) };
    }
    Check::good(NAME, evidence)
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
        [reachability(asked, &BTreeSet::new()).class, tls(asked).class, clock(asked, TOLERANCE).class]
    }

    #[test]
    fn each_cause_is_named_by_one_check() {
        const GONE: Option<&str> = Some("endpoint_unreachable");
        const UNTRUSTED: Option<&str> = Some("server_tls_untrusted");
        const DRIFT: Option<&str> = Some("endpoint_profile_drift");
        assert_eq!(classes(&[asked(Ok(Some(250)))]), [None, None, None]);
        assert_eq!(classes(&[asked(Err(Unreachable::ConnectionRefused))]), [GONE, None, None]);
        let untrusted = Unreachable::Untrusted(Distrust::UnknownIssuer);
        assert_eq!(classes(&[asked(Err(untrusted))]), [None, UNTRUSTED, None]);
        let name = Unreachable::Untrusted(Distrust::WrongName);
        assert_eq!(classes(&[asked(Err(name))])[1], DRIFT);
        let html = Unreachable::Garbage("HTML".to_owned());
        assert_eq!(classes(&[asked(Err(html))]), [None, DRIFT, None]);
        let gone = [asked(Err(Unreachable::ConnectionRefused))];
        assert_eq!(tls(&gone).skipped, Some("reachability"));
        assert_eq!(clock(&gone, TOLERANCE).skipped, Some("reachability"));
        assert_eq!(tls(&gone).evidence, "not checked: control plane unreachable");
        let name = || asked(Err(Unreachable::Untrusted(Distrust::WrongName)));
        assert_eq!(clock(&[name()], TOLERANCE).skipped, Some("tls"));
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
        let both = [down, fine()];
        assert_eq!(classes(&both), [None, None, None]);
        let warning = reachability(&both, &BTreeSet::new()).warning.unwrap_or_default();
        assert!(warning.contains("refused"), "one that is down is a warning: {warning}");
        let impostor = asked(Err(Unreachable::Untrusted(Distrust::UnknownIssuer)));
        assert_eq!(classes(&[fine(), impostor]), [None, Some("server_tls_untrusted"), None]);
    }
}
