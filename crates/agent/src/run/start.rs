//! What the daemon starts with: the identity on disk, or one obtained with a token or by this machine's hardware; and a
//! renewed certificate that was not put to use yet.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use client::ServerUrl;
use lifecycle::host::{Backoff, CandidateOrigin, Class, Notices, check_revoked_after};
use lifecycle::names::Span;
use pki::agent_key::HostKey;

use super::core::Candidate;
use super::first_identity;
use super::imported_certificate;
use super::waiting::{self, EnrollmentWait};
use crate::cli::Contact;
use crate::code::{self, AgentCode, PENDING};
use crate::config::{AgentConfig, Environment, KeyStorage};
use crate::enroll::credential::{self, EnrollCredential};
use crate::enroll::plan::EnrollPlan;
use crate::enroll::{obtain, options, sources};
use crate::fault::{Exit, Fault};
use crate::fault_code::FaultCode;
use crate::issued::check_stored_tenant;
use crate::spire::Svids;
use crate::store::dir::Dir;
use crate::store::generation::Generations;
use crate::store::identity::{self, HostIdentity, StoredIdentity};
use crate::store::pending::Pending;
use crate::store::{recovery, recovery_attempt, renewal_key, revoked};
use crate::token_source::Sources;
use crate::{chance, clock, recover};

/// Between two rounds over all servers.
const CAP: Span = Span::from_minutes(1);

#[derive(Debug)]
pub struct StartIdentity {
    pub identity: HostIdentity,
    /// Written by a renewal or a recovery that was cut short.
    pub candidate: Option<Candidate>,
    /// As the operator named them.
    pub servers: Vec<ServerUrl>,
}

/// A directory with neither identity nor anything to obtain one with is refused before it is created or changed. `named` is
/// the one that the operator knows.
pub fn refuse_nothing_to_do(
    path: &Path,
    named: &Path,
    contact: &Contact,
    environment: &Environment,
    config: &AgentConfig,
) -> Result<(), Fault> {
    let sources = sources(contact, environment, config);
    let there = imported_certificate::made_elsewhere(&config.files).is_some();
    let lost = recover::is_possible(path);
    if there
        || lost
        || sources.any()
        || config.sysfs_root.is_some()
        || config.spire.is_some()
        || config.bootstrap_dir.is_some()
        || !matches!(load(path)?, StoredIdentity::Absent)
    {
        return Ok(());
    }
    if Pending::read(path).is_some() {
        let what =
            format!("{} holds no identity: an enrollment was begun and has not ended", named.display());
        return Err(Fault::usage(AgentCode::NotEnrolled, what, PENDING));
    }
    Err(Fault::usage(
        AgentCode::NotEnrolled,
        format!("{} holds no identity, and no token was given to obtain one", named.display()),
        sources.asker.remedy(),
    ))
}

pub async fn find(
    dir: &Dir,
    contact: &Contact,
    environment: &Environment,
    config: &AgentConfig,
    servers: Vec<ServerUrl>,
    svids: Option<Svids>,
    stdin: impl Read,
) -> Result<StartIdentity, Fault> {
    let identity = match load(dir.path())? {
        StoredIdentity::Present(found) if revoked::is_set(dir.path(), &found.facts.serial) => {
            let credential = || credential::find(config, sources(contact, environment, config), stdin);
            match anew(dir, contact, config, &servers, credential).await {
                Some(identity) => identity,
                None if config.daemon.exit_on_revoked => return Err(is_revoked(&found, config.storage)),
                None => *found,
            }
        }
        StoredIdentity::Present(found) => {
            check_stored_tenant(&found, config.tenant.as_ref())?;
            *found
        }
        StoredIdentity::Absent if let Some(there) = imported_certificate::made_elsewhere(&config.files) => {
            imported_certificate::adopt(dir, contact, config, &servers, there).await?
        }
        StoredIdentity::Absent
            if !sources(contact, environment, config).any() && recover::is_possible(dir.path()) =>
        {
            regain_or_enroll(dir, contact, config, &servers).await?
        }
        StoredIdentity::Absent if config.spire.is_some() || config.bootstrap_dir.is_some() => {
            config.files.check(dir.path())?;
            let has_credential = sources(contact, environment, config).any() || config.sysfs_root.is_some();
            let credential = || credential::find(config, sources(contact, environment, config), stdin);
            let plan = has_credential.then(|| EnrollPlan::check(config, servers.clone(), credential));
            first_identity::obtain_first(dir, contact, config, &servers, plan.transpose()?, svids).await?
        }
        StoredIdentity::Absent => {
            config.files.check(dir.path())?;
            let credential = || credential::find(config, sources(contact, environment, config), stdin);
            let plan = EnrollPlan::check(config, servers.clone(), credential)?;
            match enroll(dir, &plan, contact, config).await {
                // A spent token may still lie where the first enrollment found it.
                Err(fault) if fault.exit == Exit::Refused && recover::is_possible(dir.path()) => {
                    tracing::warn!(code = %fault.code, "not enrolled: {}; recovering the former identity", fault.message);
                    regain(dir, config).await?
                }
                obtained => obtained?,
            }
        }
        StoredIdentity::Exposed(place) => return Err(exposed(&place)),
        StoredIdentity::Damaged(reason) if recover::is_possible(dir.path()) => {
            tracing::error!("the identity in this directory cannot be used: {reason}; recovering it");
            regain_or_enroll(dir, contact, config, &servers).await?
        }
        StoredIdentity::Damaged(reason) if config.sysfs_root.is_some() => {
            tracing::error!("the identity in this directory cannot be used: {reason}; enrolling again");
            by_hardware(dir, contact, config, &servers).await?
        }
        StoredIdentity::Damaged(reason) => return Err(damaged(&reason)),
    };
    if servers.is_empty() && identity.meta.as_ref().is_none_or(|meta| meta.servers.is_empty()) {
        return Err(Fault::usage(
            AgentCode::ServerMissing,
            "no control plane is configured",
            "set it with --server https://HOST:PORT, ENLIST_AGENT_SERVER or `server` in agent.toml",
        ));
    }
    let candidate = candidate(dir.path(), &identity)?;
    Ok(StartIdentity { identity, candidate, servers })
}

/// The recovery token comes first; where it leads nowhere, the hardware does, if it may.
async fn regain_or_enroll(
    dir: &Dir,
    contact: &Contact,
    config: &AgentConfig,
    servers: &[ServerUrl],
) -> Result<HostIdentity, Fault> {
    match regain(dir, config).await {
        Err(fault) if config.sysfs_root.is_some() => {
            tracing::warn!(code = %fault.code, "not recovered: {}; enrolling by hardware", fault.message);
            by_hardware(dir, contact, config, servers).await
        }
        regained => regained,
    }
}

/// Whatever token may lie about: it is not what is lost.
async fn by_hardware(
    dir: &Dir,
    contact: &Contact,
    config: &AgentConfig,
    servers: &[ServerUrl],
) -> Result<HostIdentity, Fault> {
    config.files.check(dir.path())?;
    let credential = || credential::find(config, Sources::default(), std::io::empty());
    let plan = EnrollPlan::check(config, servers.to_vec(), credential)?;
    enroll(dir, &plan, contact, config).await
}

/// Another identity for a host whose own is revoked, if there is a token for it, or the machine was registered again. A
/// spent token may still lie where the first enrollment found it, so that it is refused ends nothing.
async fn anew(
    dir: &Dir,
    contact: &Contact,
    config: &AgentConfig,
    servers: &[ServerUrl],
    credential: impl FnOnce() -> Result<EnrollCredential, Fault>,
) -> Option<HostIdentity> {
    let class = Class::IdentityRevokedOrFenced.as_str();
    tracing::error!(
        class,
        "this host's identity is revoked, as recorded earlier; remedy: {}",
        code::revoked(config.storage)
    );
    let obtained = match EnrollPlan::check(config, servers.to_vec(), credential) {
        // Once: that a machine is still revoked is for the daemon to say, which looks again and again.
        Ok(plan) if plan.credential.token().is_none() => match options(contact, None) {
            Ok(options) => obtain(dir, &plan, &options).await.map(|(identity, _)| identity),
            Err(fault) => Err(fault),
        },
        Ok(plan) => enroll(dir, &plan, contact, config).await,
        Err(fault) if fault.code.agent() == Some(AgentCode::TokenMissing) => return None,
        Err(fault) => Err(fault),
    };
    let refused = |fault: &Fault| {
        tracing::warn!(code = %fault.code, "not enrolled again: {}; remedy: {}", fault.message, fault.hint);
    };
    obtained.inspect_err(refused).ok()
}

/// Recovers the identity with the recovery token: until it works, or the control plane refuses. The control plane refuses
/// with `recovery_not_needed` until the node has been silent for long enough, so that is tried again.
async fn regain(dir: &Dir, config: &AgentConfig) -> Result<HostIdentity, Fault> {
    let (mut backoff, mut notices) = (Backoff::new(CAP), Notices::default());
    loop {
        let plan = recover::plan(dir, config, None, None, false)?;
        match recover::perform::perform(dir, config, plan).await {
            Ok(report) => {
                tracing::info!(node_id = report.node_id, "recovered");
                return match load(dir.path())? {
                    StoredIdentity::Present(found) => Ok(*found),
                    _ => Err(Fault::host(
                        AgentCode::IdentityChanged,
                        "another process has just removed the identity",
                        "run it again",
                    )),
                };
            }
            Err(fault)
                if fault.exit == Exit::Unreachable
                    || fault.retryable
                    || fault.code.agent() == Some(AgentCode::ClockSkew)
                    || fault.code.is(api::code::RECOVERY_NOT_NEEDED) =>
            {
                if let Some(count) = notices.note(fault.code.as_str(), clock::now()) {
                    tracing::warn!(class = %fault.code, count, "not recovered yet: {}; remedy: {}", fault.message, fault.hint);
                }
            }
            Err(fault) => return Err(fault),
        }
        let pause = backoff.next(chance::number(), None);
        tokio::time::sleep(Duration::from_millis(pause.millis())).await;
    }
}

/// Until it works, or the control plane refuses the token. A machine that is refused by its hardware stays the machine that
/// it is, and an operator may register it, or the control plane take it for gone, at any moment: it asks again.
async fn enroll(
    dir: &Dir,
    plan: &EnrollPlan,
    contact: &Contact,
    config: &AgentConfig,
) -> Result<HostIdentity, Fault> {
    let options = options(contact, None)?;
    let mut backoff = Backoff::new(CAP);
    let mut waiting = EnrollmentWait::new(dir, &config.upkeep, &options.correlation_id);
    loop {
        let fault = match obtain(dir, plan, &options).await {
            Ok((identity, _)) => {
                tracing::info!(node_id = identity.node_id(), "enrolled");
                return Ok(identity);
            }
            Err(fault) => fault,
        };
        let class = waiting::class(&fault);
        let revoked = class == Some(Class::IdentityRevokedOrFenced);
        let again = match plan.credential {
            EnrollCredential::Token(_) => waiting::is_passing(&fault),
            EnrollCredential::Hardware => {
                let asks_again = fault.exit == Exit::Refused && !(revoked && config.daemon.exit_on_revoked);
                asks_again
                    || waiting::is_passing(&fault)
                    || fault.code.agent() == Some(AgentCode::HardwareMissing)
            }
        };
        if !again && config.storage == KeyStorage::Memory && fault.code.is(api::code::TOKEN_USED) {
            return Err(Fault { hint: code::TOKEN_USED_IN_MEMORY.into(), ..fault });
        }
        if !again {
            return Err(fault);
        }
        let fault = match (revoked, config.storage) {
            (true, KeyStorage::Memory) => Fault { hint: code::REVOKED_IN_MEMORY.into(), ..fault },
            (true, KeyStorage::Disk) | (false, _) => fault,
        };
        waiting.tell(&fault, class, &plan.servers);
        let pause = match revoked {
            true => check_revoked_after(chance::number()),
            false => backoff.next(chance::number(), None),
        };
        tokio::time::sleep(Duration::from_millis(pause.millis())).await;
    }
}

/// The generation that a renewal or a recovery left behind, recognised by the key.
pub fn candidate(dir: &Path, identity: &HostIdentity) -> Result<Option<Candidate>, Fault> {
    if let Some(begun) = recovery_attempt::read(dir) {
        if begun.key.spki() != identity.key.spki() {
            let same = |found: &HostIdentity| {
                found.node_id() == identity.node_id() && found.spiffe.domain == identity.spiffe.domain
            };
            if let Some(found) = generation(dir, &begun.key, CandidateOrigin::Recovery, same)? {
                return Ok(Some(found));
            }
        } else {
            // It is in use; only the tidying was cut short.
            let tidied =
                recovery::forget_token(dir, &begun.token_hash).and_then(|()| recovery_attempt::remove(dir));
            tidied.map_err(|error| unusable(dir, &error))?;
        }
    }
    let Some(key) = renewal_key::read(dir) else { return Ok(None) };
    if key.spki() == identity.key.spki() {
        renewal_key::remove(dir).map_err(|error| unusable(dir, &error))?;
        return Ok(None);
    }
    generation(dir, &key, CandidateOrigin::Renewal, |found| found.spiffe == identity.spiffe)
}

fn generation(
    dir: &Path,
    key: &HostKey,
    origin: CandidateOrigin,
    same: impl Fn(&HostIdentity) -> bool,
) -> Result<Option<Candidate>, Fault> {
    let numbers = Generations::under(dir).numbers().map_err(|error| unusable(dir, &error))?;
    for number in numbers {
        if let Ok(StoredIdentity::Present(found)) = identity::at(dir, number)
            && found.key.spki() == key.spki()
            && same(&found)
        {
            return Ok(Some(Candidate { number, identity: *found, origin }));
        }
    }
    Ok(None)
}

fn load(path: &Path) -> Result<StoredIdentity, Fault> {
    identity::load(path).map_err(|error| unusable(path, &error))
}

fn unusable(path: &Path, error: &std::io::Error) -> Fault {
    Fault::host(
        AgentCode::DirUnusable,
        format!("{}: {error}", path.display()),
        "run the command as the owner of the directory",
    )
}

fn is_revoked(identity: &HostIdentity, storage: KeyStorage) -> Fault {
    let node = identity.node_id().unwrap_or_default();
    Fault::new(
        Exit::Refused,
        FaultCode::ControlPlane(api::code::NODE_REVOKED),
        format!("the identity of {node} is revoked"),
        code::revoked(storage),
    )
}

fn exposed(place: &Path) -> Fault {
    Fault::host(
        AgentCode::KeyExposed,
        format!("other users may read or replace {}", place.display()),
        "if no other user has read it, close it with chmod go-rwx; otherwise have an operator revoke the node, and enroll with --replace",
    )
}

fn damaged(reason: &str) -> Fault {
    Fault::host(
        AgentCode::IdentityDamaged,
        format!("the identity in this directory cannot be used: {reason}"),
        "restore the missing files, or enroll again with a new token: `enlist-agent enroll --replace`",
    )
}
