//! `enroll`: a token, or what this machine is known by, becomes an identity.
//!
//! Killed at any moment and run again with the same credential, it ends with the same identity: the request is on
//! disk before it is sent, and what comes back is put to use by one rename.

pub(crate) mod answer;
pub(crate) mod credential;
pub(crate) mod persist;
pub(crate) mod plan;
pub(crate) mod precheck;
mod report;
pub(crate) mod rpc;
mod underlay;

use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use api::code;
use client::ServerUrl;
use pki::wireguard::WireguardPrivate;

use crate::cli::{Contact, EnrollArgs};
use crate::code::AgentCode;
use crate::config::{self, AgentConfig, Environment, RecoveryConfig};
use crate::fault::Fault;
use crate::issued::{check_stored_tenant, check_tenant};
use crate::layout::Layout;
use crate::recover::perform::keep_grant;
use crate::store::dir::Dir;
use crate::store::generation::Generations;
use crate::store::identity::{self, HostIdentity, StoredIdentity};
use crate::store::pending::{self, Pending};
use crate::store::{self, unconfirmed, wireguard};
use crate::token_source::{Asker, Sources};
use crate::{chance, clock, host, logging};
use plan::EnrollPlan;
use precheck::{refuse_memory_storage, refuse_what_cannot_be_kept, settled, usable, usable_or_warned};
pub use report::EnrollReport;
use rpc::CallOptions;

/// Long enough for a control plane that is there, short enough for a host that must get on.
const LAST_WORD: Duration = Duration::from_secs(10);

pub async fn run(
    args: &EnrollArgs,
    environment: &Environment,
    stdin: impl Read,
) -> Result<EnrollReport, Fault> {
    let contact = &args.contact;
    let path = contact.place.path(environment);
    let config = config::load(&path, contact.values(), environment)?;
    config.warn_of_settings_without_effect();
    refuse_memory_storage(&config)?;
    let servers = plan::servers(&config)?;
    let options = options(contact, Some(Duration::from_millis(args.timeout.millis())))?;
    let options = CallOptions { plain: logging::is_plain(environment), ..options };
    // Looked at before the directory is touched, so that a wrong command leaves no trace.
    if !args.replace
        && let Some(found) = usable_or_warned(&path)?
    {
        let dir = match Dir::hold(&path) {
            // A running daemon sees to the rest itself.
            Err(fault) if fault.code.agent() == Some(AgentCode::DirInUse) => {
                check_stored_tenant(&found, config.tenant.as_ref())?;
                return Ok(EnrollReport::new(&path, &found, None, true).beside_daemon());
            }
            held => held.map_err(in_use)?,
        };
        return match usable(&path)? {
            Some(found) => already(&dir, &found, &servers, &config, &options).await,
            None => Err(Fault::host(
                AgentCode::IdentityChanged,
                "another process has just removed the identity",
                "run the command again",
            )),
        };
    }
    refuse_what_cannot_be_kept(&path)?;
    config.files.check(&path)?;
    let credential = || credential::find(&config, sources(contact, environment, &config), stdin);
    let plan = EnrollPlan::check(&config, servers, credential)?;
    let dir = Dir::hold(&path).map_err(in_use)?;
    // Looked at again, now that nobody else can change it.
    match settled(&path, args.replace, &plan)? {
        Some(found) => already(&dir, &found, &plan.servers, &config, &options).await,
        None => anew(&dir, &plan, &options).await,
    }
}

/// A running daemon can enroll by itself.
fn in_use(fault: Fault) -> Fault {
    if fault.code.agent() != Some(AgentCode::DirInUse) {
        return fault;
    }
    let hint = "stop the daemon first (`systemctl stop enlist-agent`), or give it the token (ENLIST_AGENT_TOKEN or token_file) and restart it, which enrolls; if another command uses the directory, wait until it has ended";
    Fault { hint: hint.into(), ..fault }
}

/// Enrolls, and says so.
async fn anew(dir: &Dir, plan: &EnrollPlan, options: &CallOptions) -> Result<EnrollReport, Fault> {
    let (identity, servers) = obtain(dir, plan, options).await?;
    // The control plane hears that the identity is kept even if it could not be linked.
    let fits = plan.files.fit(dir.path(), &identity, None);
    let state = confirm(dir, &identity, &servers, &plan.recovery, options).await?;
    fits?;
    Ok(EnrollReport::new(dir.path(), &identity, Some(state), false))
}

/// Asks for an identity and keeps what is given. That it is kept has yet to be said.
pub(crate) async fn obtain(
    dir: &Dir,
    plan: &EnrollPlan,
    options: &CallOptions,
) -> Result<(HostIdentity, Vec<ServerUrl>), Fault> {
    let begun = Generations::under(dir.path()).check();
    let begun = begun.and_then(|()| {
        Pending::resume_or_begin(dir.path(), &plan.credential, || wireguard_key(dir.path(), plan))
    });
    let pending = begun.map_err(|error| not_begun(&error))?;
    // Of an identity that is replaced: what its roots deny is no control plane at first contact either.
    let lists = identity::stored_lists(dir.path());
    let trust = plan.trust.clone().denying(lists.denied());
    let answer = match rpc::enroll(plan, &trust, &pending, options).await {
        Ok(answer) => answer,
        Err(fault) => {
            // The token is dead for good, so there is nothing left to ask again for.
            if fault.code.is_one_of(&[code::TOKEN_EXPIRED, code::TOKEN_USED, code::TOKEN_REVOKED]) {
                tidied(pending::remove(dir.path()));
            }
            return Err(fault);
        }
    };
    let servers = persist::merged(&plan.servers, &answer.servers);
    let wireguard = pending.wireguard;
    let identity = answer::check(&answer, pending.key, &trust, lists, clock::now())?;
    if let Err(fault) = check_tenant(&identity, plan.tenant.as_ref()) {
        tidied(pending::remove(dir.path()));
        return Err(fault);
    }
    let former = forget_wireguard_key(dir.path(), wireguard.is_some());
    let kept =
        former.and_then(|()| persist::keep(dir.path(), &identity, wireguard.as_ref(), &servers, plan.kept()));
    if let Err(error) = kept {
        return Err(not_persisted(dir, &identity, &servers, &error, options).await);
    }
    Ok((identity, servers))
}

/// The key that is there, for a host that has no identity yet: a node that was given up unconfirmed gave it
/// back. Otherwise a new one, since the key of a node stays with that node.
fn wireguard_key(dir: &Path, plan: &EnrollPlan) -> io::Result<Option<WireguardPrivate>> {
    if !plan.files.layout.is_some_and(Layout::has_wireguard) && !plan.overlay.joins() {
        return Ok(None);
    }
    let found = match identity::load(dir)? {
        StoredIdentity::Absent => wireguard::read(dir)?,
        _ => None,
    };
    match found {
        Some(key) => Ok(Some(key)),
        None => WireguardPrivate::generate().map(Some).map_err(io::Error::other),
    }
}

/// The key of the node that this host was is not the next one's, also where that one has yet to join the overlay and makes its own
/// then. One that is there before any identity stays.
fn forget_wireguard_key(dir: &Path, has_key: bool) -> io::Result<()> {
    let first = matches!(identity::load(dir)?, StoredIdentity::Absent);
    if has_key || first { wireguard::drop_next(dir) } else { wireguard::remove(dir) }
}

/// Nothing is sent, unless the control plane has yet to hear that the identity was kept.
async fn already(
    dir: &Dir,
    identity: &HostIdentity,
    servers: &[ServerUrl],
    config: &AgentConfig,
    options: &CallOptions,
) -> Result<EnrollReport, Fault> {
    check_stored_tenant(identity, config.tenant.as_ref())?;
    let fits = config.files.fit(dir.path(), identity, None);
    // What led to this identity, or was never whole, is of no use; another request may yet be asked for again.
    if Pending::read(dir.path()).is_none_or(|pending| pending.key.spki() == identity.key.spki()) {
        tidied(pending::remove(dir.path()));
    }
    let state = if unconfirmed::is_set(dir.path(), &identity.facts.serial) {
        Some(confirm(dir, identity, servers, &config.recovery, options).await?)
    } else {
        None
    };
    fits?;
    Ok(EnrollReport::new(dir.path(), identity, state, true))
}

/// A request left behind is in nobody's way: the next run tries again to remove it.
fn tidied(removed: io::Result<()>) {
    if let Err(error) = removed {
        tracing::warn!(%error, "a finished request could not be removed");
    }
}

async fn confirm(
    dir: &Dir,
    identity: &HostIdentity,
    servers: &[ServerUrl],
    recovery: &RecoveryConfig,
    options: &CallOptions,
) -> Result<String, Fault> {
    match rpc::confirm(identity, servers, None, store::recovery::kept_id(dir.path()), options).await {
        Ok(confirmed) => {
            if let Some(grant) = &confirmed.recovery
                && let Err(error) = keep_grant(dir, recovery, identity, grant)
            {
                tracing::warn!(%error, "the recovery token could not be stored; the daemon will fetch another");
            }
            if let Err(error) = unconfirmed::clear(dir.path()) {
                tracing::warn!(%error, "the marker `unconfirmed` could not be removed; confirming twice is harmless");
            }
            Ok(confirmed.state)
        }
        Err(fault) => Err(Fault {
            message: format!(
                "the identity is stored, but could not be confirmed to the control plane: {}",
                fault.message
            ),
            hint: format!("{}; then run `enlist-agent enroll` again, which needs no new token", fault.hint)
                .into(),
            ..fault
        }),
    }
}

/// The control plane is told with the identity in memory, so that an operator hears of the full disk.
async fn not_persisted(
    dir: &Dir,
    identity: &HostIdentity,
    servers: &[ServerUrl],
    error: &io::Error,
    options: &CallOptions,
) -> Fault {
    let reason = format!("{}: {error}", dir.path().display());
    let patience = options.patience.map_or(LAST_WORD, |patience| patience.min(LAST_WORD));
    let brief = CallOptions { patience: Some(patience), ..options.clone() };
    if let Err(fault) = rpc::confirm(identity, servers, Some(&reason), String::new(), &brief).await {
        tracing::warn!(code = %fault.code, "the failure could not be reported to the control plane either: {}", fault.message);
    }
    Fault::host(
        AgentCode::NotPersisted,
        format!("the identity was issued but could not be written: {reason}"),
        "make room in the directory, then run the same command with the same token: it gives the same identity",
    )
}

pub(crate) fn sources<'a>(
    contact: &'a Contact,
    environment: &'a Environment,
    config: &'a AgentConfig,
) -> Sources<'a> {
    Sources {
        flag: contact.token.as_deref(),
        flag_file: contact.token_file.as_deref(),
        variable: environment.token().map(|(name, value)| (name, value.as_ref())),
        text: config.token.as_ref(),
        file: config.token_file.as_deref(),
        asker: Asker::of(environment.persona(), config.files.layout),
    }
}

pub(crate) fn options(contact: &Contact, patience: Option<Duration>) -> Result<CallOptions, Fault> {
    Ok(CallOptions {
        hostname: contact.hostname.clone().unwrap_or_else(host::name),
        correlation_id: chance::hex_128().map_err(|error| not_begun(&error))?,
        patience,
        plain: false,
    })
}

fn not_begun(error: &io::Error) -> Fault {
    let hint = "make room in the directory and let this user write there; the token was not sent";
    Fault::host(AgentCode::NotPersisted, format!("the request could not be written: {error}"), hint)
}
