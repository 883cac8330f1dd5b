//! Recovery: a new certificate for a host that has lost the use of its own, by its recovery token or a repair bundle.
//!
//! `recover` needs only agent.toml and `recovery/token`, or a bundle, and no identity. Killed at any moment and run
//! again it ends with the same certificate: key and undertaking are on disk before the token is sent.

pub mod ask;
pub mod bundle;
pub mod clock_floor;
pub mod endpoint;
pub(crate) mod perform;
mod report;

use client::Trust;
use lifecycle::host::Class;
use lifecycle::names::{SpiffeId, SpiffePath};

use crate::cli::RecoverArgs;
use crate::clock;
use crate::code::AgentCode;
use crate::config::{self, AgentConfig, Environment, Values};
use crate::enroll::plan;
use crate::enroll::precheck::refuse_memory_storage;
use crate::fault::Fault;
use crate::store::dir::Dir;
use crate::store::identity::{self, HostIdentity, StoredIdentity};
use crate::store::recovery;
use bundle::{CheckedBundle, KnownNode};
use endpoint::{RecoveryEndpoint, RuntimeEndpoint};
use perform::RecoverPlan;
pub use report::RecoverReport;

pub async fn run(args: &RecoverArgs, environment: &Environment) -> Result<RecoverReport, Fault> {
    let path = args.place.path(environment);
    let config = config::load(&path, Values::new(), environment)?;
    refuse_memory_storage(&config)?;
    let bundle = args.bundle.as_deref().map(|file| bundle::read(file, clock::now())).transpose()?;
    if bundle.is_none() && !path.exists() {
        return Err(endpoint::blocked(format!("{} is not there", path.display())));
    }
    let dir = Dir::hold(&path).map_err(in_use)?;
    let identity = known(&dir)?;
    if let Some(bundle) = &bundle {
        bundle.fits(&who(&dir, identity.as_ref()))?;
    }
    let plan = plan(&dir, &config, identity, bundle, true)?;
    perform::perform(&dir, &config, plan).await
}

/// The daemon recovers by itself; by hand it is done in its place.
fn in_use(fault: Fault) -> Fault {
    if fault.code.agent() != Some(AgentCode::DirInUse) {
        return fault;
    }
    let hint = "stop the daemon (`systemctl stop enlist-agent`), recover, and start it again; if another command uses the directory, wait until it has ended";
    Fault { hint: hint.into(), ..fault }
}

/// The identity that is here, as far as it tells who this host is.
fn known(dir: &Dir) -> Result<Option<HostIdentity>, Fault> {
    match identity::load(dir.path()) {
        Ok(StoredIdentity::Present(found)) => Ok(Some(*found)),
        Ok(StoredIdentity::Damaged(reason)) => {
            tracing::warn!(%reason, "the identity in this directory cannot be used");
            Ok(None)
        }
        Ok(StoredIdentity::Absent) => Ok(None),
        Ok(StoredIdentity::Exposed(path)) => Err(exposed(&path)),
        Err(error) => Err(Fault::host(
            AgentCode::DirUnusable,
            format!("{}: {error}", dir.path().display()),
            "run the command as the owner of the directory",
        )),
    }
}

/// Whom the identity names. Where there is none that can be used, what is left of it and the token tell.
fn who(dir: &Dir, identity: Option<&HostIdentity>) -> Vec<KnownNode> {
    let named = |spiffe: &SpiffeId| match &spiffe.path {
        SpiffePath::Agent { node, .. } => {
            Some(KnownNode { node: node.to_string(), domain: Some(spiffe.domain.to_string()) })
        }
        SpiffePath::Operator { .. } | SpiffePath::Replica { .. } | SpiffePath::Bootstrap { .. } => None,
    };
    if let Some(identity) = identity {
        return named(&identity.spiffe).into_iter().collect();
    }
    let leaves = identity::leaves(dir.path()).into_iter().filter_map(|leaf| named(&leaf.spiffe?));
    let token = recovery::read(dir.path()).token.and_then(|token| token.node);
    leaves.chain(token.map(|node| KnownNode { node, domain: None })).collect()
}

/// With what, and where to. `typed` by somebody who stands by it.
pub(crate) fn plan(
    dir: &Dir,
    config: &AgentConfig,
    identity: Option<HostIdentity>,
    bundle: Option<CheckedBundle>,
    typed: bool,
) -> Result<RecoverPlan, Fault> {
    let servers = plan::servers(config)?;
    let class = match &identity {
        // An operator found that the host cannot help itself.
        Some(identity) if !identity.is_expired(clock::now()) && bundle.is_some() => {
            Class::RecoveryEnrollmentBlocked
        }
        Some(identity) if !identity.is_expired(clock::now()) => Class::ServerTlsUntrusted,
        Some(_) | None => Class::CertExpired,
    };
    let found = recovery::read(dir.path());
    let certified = identity::leaves(dir.path()).into_iter().map(|leaf| leaf.not_before).max();
    let trusted = clock_floor::newest(found.profile.iter().flat_map(|profile| &profile.ca));
    let made = certified.max(trusted);
    let denied = identity::stored_lists(dir.path()).denied();
    if let Some(bundle) = bundle {
        let evidence = Some(bundle.evidence());
        let made = made.max(Some(bundle.issued_at));
        let CheckedBundle { token, endpoint, node_id, domain, recovery_profile_id: profile, .. } = bundle;
        return Ok(RecoverPlan {
            token,
            profile,
            endpoint: endpoint.denying(denied),
            identity,
            evidence,
            node_id,
            domain: Some(domain),
            class,
            servers,
            made,
        });
    }
    if let Some(path) = found.exposed {
        return Err(exposed(&path));
    }
    if found.token.is_none() && found.ineligible {
        return Err(Fault { hint: endpoint::ENROLL_ANEW.into(), ..endpoint::blocked(recovery::WITHOUT) });
    }
    let kept = found.token.ok_or_else(|| endpoint::blocked("there is no recovery token"))?;
    let runtime = runtime(config, identity.as_ref())?;
    let settled = endpoint::choose(&config.recovery, found.profile.as_ref(), &runtime);
    let unsaid =
        config.recovery.url.is_none() && config.recovery.ca_file.is_none() && found.profile.is_none();
    let endpoint = match settled {
        Ok(endpoint) => endpoint,
        // The operator named both for the sending of a secret, and has typed this command or called it safe.
        Err(_) if (typed || config.recovery.same_as_runtime) && unsaid => {
            let (_, trust) = plan::recognised(config, &servers)?;
            RecoveryEndpoint { servers: servers.clone(), trust }
        }
        Err(fault) => return Err(fault),
    };
    let node_id = identity.as_ref().and_then(HostIdentity::node_id).map(str::to_owned);
    let node_id = node_id.or(kept.node).unwrap_or_default();
    Ok(RecoverPlan {
        token: kept.value,
        profile: kept.profile,
        endpoint: endpoint.denying(denied),
        identity,
        evidence: None,
        node_id,
        domain: None,
        class,
        servers,
        made,
    })
}

/// Servers and trust of the daily connection.
fn runtime(config: &AgentConfig, identity: Option<&HostIdentity>) -> Result<RuntimeEndpoint, Fault> {
    let mut servers = plan::servers(config)?;
    let told = identity.and_then(|identity| identity.meta.as_ref()).map(|meta| meta.servers.as_slice());
    servers = crate::enroll::persist::merged(&servers, told.unwrap_or_default());
    let trust: Option<Trust> = identity.map(HostIdentity::trust);
    Ok(RuntimeEndpoint { servers, trust })
}

fn exposed(path: &std::path::Path) -> Fault {
    Fault::host(
        AgentCode::KeyExposed,
        format!("other users may read or replace {}", path.display()),
        "if no other user has read it, close it with chmod go-rwx; otherwise have an operator revoke the token and create a repair bundle",
    )
}

/// Whether a directory without a usable identity can be helped by recovery.
pub(crate) fn is_possible(path: &std::path::Path) -> bool {
    recovery::read(path).token.is_some()
}
