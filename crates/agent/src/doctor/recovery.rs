//! Whether this host could recover if its certificate ended now.

use client::Error;
use client::unreachable::Unreachable;
use lifecycle::host::Class;

use super::check::Check;
use super::network;
use super::subject::Subject;
use crate::clock;
use crate::fault::Fault;
use crate::recover::way::{self, Runtime, Way};
use crate::store::identity::Identity;
use crate::store::recovery::{self, Found};
use crate::store::revoked;

const NAME: &str = "recovery";
const ANOTHER: &str = "let `enlist-agent run` connect: it fetches one; or give the host a repair bundle (`enlist node repair-bundle ID --out FILE`)";

/// Token, where to turn with it, and that this place is there and trusted. The token stays here.
pub async fn examine(subject: &Subject) -> Check {
    if let Some(identity) = subject.identity()
        && revoked::is_set(&subject.dir, &identity.facts.serial)
    {
        let what = "a revoked host does not recover, whatever it holds";
        return Check::bad(NAME, Class::IdentityRevokedOrFenced, what);
    }
    let found = recovery::read(&subject.dir);
    if let Some(path) = &found.exposed {
        let what = format!("others than its owner may read or replace {}, so it is not used", path.display());
        return blocked(what).with("`enlist-agent reconcile` closes it; then have a new token made: the daemon fetches it, or give the host a repair bundle");
    }
    let Some(kept) = &found.token else {
        return blocked("there is no recovery token".to_owned()).with(ANOTHER);
    };
    if kept.id.is_none() {
        return blocked(recovery::UNKNOWN.to_owned()).with(ANOTHER);
    }
    if let Some(ended) = kept.expires_at.filter(|at| *at <= clock::now()) {
        return blocked(format!("the recovery token ended at {ended}")).by_dates();
    }
    let Way { servers, trust } = match way(subject, &found) {
        Ok(way) => way,
        Err(fault) => return blocked(fault.message).with(fault.hint),
    };
    let asked = network::ask_all(&servers, &trust).await;
    if let Some(good) = asked.iter().find(|asked| asked.answer.is_ok()) {
        let until = kept.expires_at.map(|at| format!(", good until {at}")).unwrap_or_default();
        return Check::good(NAME, format!("a token is kept{until}; {} answers", good.server));
    }
    let Some(first) = asked.first() else { return blocked("no place to recover at is named".to_owned()) };
    let what = format!("a token is kept, but there is nowhere to turn with it: {}", first.what());
    match &first.answer {
        Err(Error::Unreachable { cause: Unreachable::Untrusted(_) | Unreachable::Garbage(_), .. }) => {
            let check = blocked(what);
            if first.by_dates() { check.by_dates() } else { check }
        }
        Err(error @ Error::Unreachable { .. }) => {
            Check::bad(NAME, Class::EndpointUnreachable, what).with(error.hint())
        }
        _ => blocked(what),
    }
}

/// As the daemon would choose.
fn way(subject: &Subject, found: &Found) -> Result<Way, Fault> {
    let config = subject.config.as_ref().map_err(Clone::clone)?;
    let runtime = Runtime { servers: subject.servers(), trust: subject.identity().map(Identity::trust) };
    way::settled(&config.recovery, found.profile.as_ref(), &runtime)
}

fn blocked(what: String) -> Check {
    Check::bad(NAME, Class::RecoveryEnrollmentBlocked, what)
}
