//! Whether this host could recover if its certificate ended now.

use client::Error;
use client::unreachable::{Distrust, Unreachable};
use lifecycle::host::Class;

use super::check::Check;
use super::network::{self, ABSENT, Asked, UNREACHABLE};
use super::subject::DoctorSubject;
use crate::clock;
use crate::fault::Fault;
use crate::recover::endpoint::{self, RecoveryEndpoint, RuntimeEndpoint};
use crate::store::identity::HostIdentity;
use crate::store::recovery::{self, RecoveryMaterial, StoredRecoveryToken};
use crate::store::trust_refused::{self, TrustRefused};

const NAME: &str = "recovery";
const IN_MEMORY: &str =
    "storage is \"memory\": there is no recovery token, and a host that has lost its identity enrolls again";
const ANOTHER: &str = "start `enlist-agent run`, which fetches a recovery token once it is connected; or use a repair bundle (`enlist node repair-bundle ID --out FILE`)";

/// What came of looking at the recovery material, and of asking the recovery endpoint.
pub struct Examined {
    pub check: Check,
    asked: Vec<Asked>,
    /// Whether the endpoint is verified by what verifies the control plane every day.
    same_trust: bool,
}

impl Examined {
    /// Where the same server failed for the same reason in both roles, the fault is named once. Another trust anchor
    /// that does not fit is a fault of its own.
    pub fn beside(self, runtime: &[Asked]) -> Check {
        let own = |cause: &Unreachable| {
            use Distrust::{Other, PinNotFound, UnknownIssuer};
            let by_anchor = matches!(cause, Unreachable::Untrusted(UnknownIssuer | PinNotFound | Other(_)));
            by_anchor && !self.same_trust
        };
        let known = |asked: &Asked| {
            let same = |other: &&Asked| other.server == asked.server && other.cause() == asked.cause();
            asked.cause().is_some_and(|cause| !own(cause)) && runtime.iter().any(|other| same(&other))
        };
        if self.asked.is_empty() || !self.asked.iter().all(known) {
            return self.check;
        }
        self.check
            .follows("reachability", UNREACHABLE)
            .follows("tls", "the control plane is not authenticated")
    }
}

impl From<Check> for Examined {
    fn from(check: Check) -> Self {
        Self { check, asked: Vec::new(), same_trust: false }
    }
}

/// Token, where to turn with it, and that this place is there and trusted. The token stays here.
pub async fn examine(subject: &DoctorSubject) -> Examined {
    let examined = examine_material(subject).await;
    match trust_refused::read(&subject.kept) {
        Some(offer) => refused(&offer, &examined.check).into(),
        None => examined,
    }
}

/// Somebody whom this host believes to be the control plane has offered it another CA: that comes before all else.
fn refused(offer: &TrustRefused, found: &Check) -> Check {
    let evidence = format!("at {}: {}; otherwise: {}", offer.at, offer.evidence, found.evidence);
    Check::bad(NAME, Class::ServerTlsUntrusted, evidence).with(offer.remedy.clone())
}

async fn examine_material(subject: &DoctorSubject) -> Examined {
    if subject.is_in_memory() {
        return Check::moot(NAME, IN_MEMORY).into();
    }
    let found = recovery::read(&subject.kept);
    let (kept, RecoveryEndpoint { servers, trust }) = match held(subject, &found) {
        Ok(held) => held,
        Err(check) => return (*check).into(),
    };
    let same_trust = subject.config.as_ref().is_ok_and(|config| config.recovery.ca_file.is_none());
    let same_trust = same_trust && found.profile.is_none();
    let asked = network::ask_all(&servers, &trust).await;
    Examined { check: reached(kept, &asked), asked, same_trust }
}

/// The token and the endpoint, if both are here and usable.
fn held<'a>(
    subject: &DoctorSubject,
    found: &'a RecoveryMaterial,
) -> Result<(&'a StoredRecoveryToken, RecoveryEndpoint), Box<Check>> {
    if let Some(path) = &found.exposed {
        let what =
            format!("others may read or replace {}, so the recovery token is not used", path.display());
        let remedy = "run `enlist-agent reconcile` to close it, then get a new recovery token: start `enlist-agent run`, which fetches one, or use a repair bundle";
        return Err(blocked(what)
            .with(remedy)
            .follows("permissions", "others may read the recovery token")
            .into());
    }
    let Some(kept) = &found.token else {
        if found.ineligible {
            return Err(Check::good(NAME, recovery::WITHOUT).warn(endpoint::ENROLL_ANEW).into());
        }
        let check = blocked("there is no recovery token".to_owned()).with(ANOTHER);
        let check = if subject.is_absent() { check.follows("identity", ABSENT) } else { check };
        let unread = "the directory cannot be read";
        let check = if subject.stored.is_err() { check.follows("permissions", unread) } else { check };
        return Err(check.into());
    };
    if kept.id.is_none() {
        return Err(blocked(recovery::UNKNOWN.to_owned()).with(ANOTHER).into());
    }
    if let Some(ended) = kept.expires_at.filter(|at| *at <= clock::now()) {
        return Err(blocked(format!("the recovery token expired at {ended}"))
            .with(ANOTHER)
            .by_dates()
            .into());
    }
    match chosen(subject, found) {
        Ok(endpoint) => Ok((kept, endpoint.denying(subject.denied()))),
        Err(fault) if subject.config.is_err() => {
            Err(blocked(fault.message).with(fault.hint).follows("config", "a setting is wrong").into())
        }
        Err(fault) => Err(blocked(fault.message).with(fault.hint).into()),
    }
}

fn reached(kept: &StoredRecoveryToken, asked: &[Asked]) -> Check {
    if let Some(good) = asked.iter().find(|asked| asked.answer.is_ok()) {
        let until = kept.expires_at.map(|at| format!(", valid until {at}")).unwrap_or_default();
        return Check::good(NAME, format!("there is a recovery token{until}; {} answers", good.server));
    }
    let Some(first) = asked.first() else { return blocked("no recovery endpoint is known".to_owned()) };
    let what =
        format!("there is a recovery token, but the recovery endpoint cannot be used: {}", first.what());
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
fn chosen(subject: &DoctorSubject, found: &RecoveryMaterial) -> Result<RecoveryEndpoint, Fault> {
    let config = subject.config.as_ref().map_err(Clone::clone)?;
    let runtime =
        RuntimeEndpoint { servers: subject.servers(), trust: subject.identity().map(HostIdentity::trust) };
    endpoint::choose(&config.recovery, found.profile.as_ref(), &runtime)
}

fn blocked(what: String) -> Check {
    Check::bad(NAME, Class::RecoveryEnrollmentBlocked, what)
}
