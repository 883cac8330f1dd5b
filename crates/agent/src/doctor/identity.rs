//! Whether there is an identity, and whether the control plane accepts it: asked with the certificate itself, since a host
//! that was off does not know what was decided about it meanwhile.

use api::agent::Standing;
use client::{AgentApi, Error, ServerUrl};
use lifecycle::host::{Class, FailureKind, classify};
use lifecycle::names::Serial;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::check::Check;
use super::hardware;
use super::network::PATIENCE;
use super::subject::DoctorSubject;
use crate::chance;
use crate::code::{self, ASK_AS_ROOT, AgentCode, PENDING, QUARANTINED, STOPPED};
use crate::config::KeyStorage;
use crate::failed_call::failure_kind;
use crate::status::WaitingFor;
use crate::store::identity::{HostIdentity, StoredIdentity};
use crate::store::pending::Pending;
use crate::store::revoked;

const NAME: &str = "identity";

/// What is wrong with the identity, if anything.
pub struct IdentityCheck {
    pub check: Option<Check>,
    /// Why this host could not recover with its own token, whatever it holds.
    pub unrecoverable: Option<&'static str>,
}

impl From<Option<Check>> for IdentityCheck {
    fn from(check: Option<Check>) -> Self {
        Self { check, unrecoverable: None }
    }
}

pub async fn examine(subject: &DoctorSubject) -> IdentityCheck {
    match subject.identity() {
        None => stored(subject).into(),
        // What is denied stays denied, so nobody needs to be asked.
        Some(found) if revoked::is_set(&subject.kept, &found.facts.serial) => {
            is_revoked(subject, &found.facts.serial)
        }
        Some(found) => {
            let answers = ask_all(subject.servers(), found).await;
            let said = answers.into_iter().find_map(|answer| said(subject, answer, &found.facts.serial));
            said.unwrap_or_else(|| by_daemon(subject))
        }
    }
}

/// Nothing is wrong with the identity, but nobody keeps it so.
pub fn untended(subject: &DoctorSubject) -> Option<Check> {
    let found = subject.identity().filter(|_| subject.daemon.is_none())?;
    let what = format!("this host holds certificate {}", found.facts.serial);
    Some(Check::good(NAME, what).warn(format!("the daemon is not running: {STOPPED}")))
}

/// What lies on disk is not an identity that can be shown. What is open to others is also, and first of all, a matter of
/// permissions.
fn stored(subject: &DoctorSubject) -> Option<Check> {
    let dir = subject.dir.display();
    Some(match &subject.stored {
        Ok(StoredIdentity::Present(_)) => return None,
        Ok(StoredIdentity::Absent) if subject.is_in_memory() => in_memory(subject),
        Ok(StoredIdentity::Absent) if let Some(waiting) = awaited(subject) => {
            let what = format!("{dir} holds no identity yet: {}: {}", waiting.code, waiting.message);
            Check::wrong(NAME, AgentCode::NotEnrolled, what).with(waiting.remedy.clone())
        }
        Ok(StoredIdentity::Absent) if let Some(remedy) = obtains_by(subject) => {
            Check::wrong(NAME, AgentCode::NotEnrolled, format!("{dir} holds no identity")).with(remedy)
        }
        Ok(StoredIdentity::Absent) if let Some(remedy) = hardware::admission(subject) => {
            let what = format!("{dir} holds no identity");
            Check::wrong(NAME, AgentCode::NotEnrolled, what).with(remedy)
        }
        Ok(StoredIdentity::Absent) if Pending::read(&subject.kept).is_some() => {
            let what = format!("{dir} holds no identity: an enrollment was begun and has not ended");
            Check::wrong(NAME, AgentCode::NotEnrolled, what).with(PENDING)
        }
        Ok(StoredIdentity::Absent) => {
            Check::wrong(NAME, AgentCode::NotEnrolled, format!("{dir} holds no identity"))
                .with("get a token from an operator (`enlist token create`) and run `enlist-agent enroll`")
        }
        Ok(StoredIdentity::Damaged(reason)) => Check::wrong(NAME, AgentCode::IdentityDamaged, reason.clone()),
        Ok(StoredIdentity::Exposed(place)) => {
            let what = format!("others may read or replace {}", place.display());
            Check::wrong(NAME, AgentCode::KeyExposed, what)
                .follows("permissions", "others may read or replace the key")
        }
        Err(error) => Check::wrong(NAME, AgentCode::DirUnusable, format!("{dir}: {error}"))
            .follows("permissions", "the directory cannot be read"),
    })
}

/// What the daemon of a host beside SPIRE, or with a bootstrap identity, waits for.
fn awaited(subject: &DoctorSubject) -> Option<&WaitingFor> {
    subject.daemon.as_ref()?.waiting.as_ref().filter(|_| obtains_by(subject).is_some())
}

fn obtains_by(subject: &DoctorSubject) -> Option<&'static str> {
    subject.config.as_ref().ok()?.obtains_by()
}

/// With storage in memory there is an identity as long as the daemon runs.
fn in_memory(subject: &DoctorSubject) -> Check {
    if let Some(socket) = &subject.denied {
        return Check::wrong(NAME, AgentCode::DirUnusable, code::not_asked(socket)).with(ASK_AS_ROOT);
    }
    let Some(daemon) = &subject.daemon else {
        let what = "the daemon is not running, and with storage = \"memory\" there is an identity only while it runs";
        return Check::wrong(NAME, AgentCode::NotEnrolled, what).with(code::STOPPED_IN_MEMORY);
    };
    match &daemon.waiting {
        Some(waiting) => {
            let what = format!("not enrolled yet: {}: {}", waiting.code, waiting.message);
            Check::wrong(NAME, AgentCode::NotEnrolled, what).with(waiting.remedy.clone())
        }
        None => Check::wrong(NAME, AgentCode::NotEnrolled, "the daemon has no identity yet").with(PENDING),
    }
}

/// Every server by itself, so that one that does not answer holds up none; in their order.
async fn ask_all(servers: Vec<ServerUrl>, identity: &HostIdentity) -> Vec<Result<Standing, Error>> {
    let (trust, credentials) = (identity.trust(), identity.credentials());
    let correlation_id = chance::hex_128().unwrap_or_default();
    let mut asking = JoinSet::new();
    for (place, server) in servers.into_iter().enumerate() {
        let Ok(agent) = AgentApi::new(vec![server], &trust, Some(&credentials)) else { continue };
        let id = correlation_id.clone();
        asking.spawn(async move { (place, timeout(PATIENCE, agent.check(&id)).await) });
    }
    let mut answers = Vec::new();
    while let Some(came) = asking.join_next().await {
        if let Ok((place, Ok(answer))) = came {
            answers.push((place, answer.map(|reply| reply.message)));
        }
    }
    answers.sort_by_key(|(place, _)| *place);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// What one server's answer says of the identity; nothing where it says nothing of it.
fn said(subject: &DoctorSubject, answer: Result<Standing, Error>, serial: &Serial) -> Option<IdentityCheck> {
    let error = match answer {
        Ok(standing) if standing.quarantined => return Some(is_quarantined()),
        Ok(_) => return Some(None.into()),
        Err(error) => error,
    };
    let kind = failure_kind(&error);
    let class = classify(kind, false, false);
    match kind {
        FailureKind::Revoked => Some(is_revoked(subject, serial)),
        FailureKind::Expired | FailureKind::Superseded | FailureKind::Unacceptable => {
            let what = format!("the control plane does not accept certificate {serial}: {error}");
            let check = Check::bad(NAME, class, what).follows("expiry", "the certificate has expired");
            Some(Some(check.by_dates()).into())
        }
        FailureKind::UnknownIssuer => {
            let what = format!("the control plane does not know the issuer of certificate {serial}");
            let at = subject.daemon.as_ref().and_then(|daemon| daemon.recovers_at.as_ref());
            let remedy = at.map_or_else(
                || code::UNKNOWN_ISSUER.to_owned(),
                |at| format!("nothing: its issuer was retired, as a rule, and the daemon recovers by itself at {at}, with its recovery token"),
            );
            Some(Some(Check::bad(NAME, class, what).with(remedy)).into())
        }
        // Another check says it; and a control plane of before does not know the call.
        FailureKind::Transient
        | FailureKind::WrongServer
        | FailureKind::Untrusted
        | FailureKind::ClockSkew
        | FailureKind::Refused
        | FailureKind::DiskFull => None,
    }
}

/// Nobody could be asked: the daemon may have heard of it before.
fn by_daemon(subject: &DoctorSubject) -> IdentityCheck {
    let quarantined = |reason: &String| reason == "quarantined";
    match &subject.daemon {
        Some(daemon) if daemon.reasons.iter().any(quarantined) => is_quarantined(),
        Some(_) | None => None.into(),
    }
}

fn is_revoked(subject: &DoctorSubject, serial: &Serial) -> IdentityCheck {
    let what = format!("the control plane has revoked certificate {serial}");
    let storage = if subject.is_in_memory() { KeyStorage::Memory } else { KeyStorage::Disk };
    let check = Check::bad(NAME, Class::IdentityRevokedOrFenced, what).with(code::revoked(storage));
    IdentityCheck { check: Some(check), unrecoverable: Some("a revoked identity cannot be recovered") }
}

fn is_quarantined() -> IdentityCheck {
    let what = "an operator has put this node in quarantine";
    let check = Check::bad(NAME, Class::IdentityRevokedOrFenced, what).with(QUARANTINED);
    let why = "a node in quarantine cannot recover with its own token";
    IdentityCheck { check: Some(check), unrecoverable: Some(why) }
}
