//! What the daemon starts with: the identity on disk, or one obtained with a token; and a renewed certificate
//! that was not put to use yet.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use client::ServerUrl;
use lifecycle::host::{Backoff, Notices};
use lifecycle::names::Span;

use super::adopts;
use crate::cli::Contact;
use crate::config::{Config, Environment};
use crate::enroll::plan::Plan;
use crate::enroll::{caller, obtain, sources};
use crate::fault::{Exit, Fault};
use crate::store::dir::Dir;
use crate::store::generation::{Generations, Number};
use crate::store::identity::{self, Identity, Standing};
use crate::store::{renewal_key, revoked};
use crate::token::Token;
use crate::{chance, clock, token_source};

/// Between two rounds over all servers.
const CAP: Span = Span::from_minutes(1);
const REMEDY: &str =
    "ask an operator why, and for a token: `enlist-agent enroll` with it gives this host another identity";

#[derive(Debug)]
pub struct Found {
    pub identity: Identity,
    /// Written by a renewal that was cut short.
    pub candidate: Option<(Number, Identity)>,
    /// As the operator named them.
    pub servers: Vec<ServerUrl>,
}

/// A directory with neither identity nor token is told before it is made or changed.
pub fn refuse_nothing_to_do(
    path: &Path,
    contact: &Contact,
    environment: &Environment,
    config: &Config,
) -> Result<(), Fault> {
    let sources = sources(contact, environment, config);
    let there = adopts::made_elsewhere(&config.files).is_some();
    if there || sources.any() || !matches!(load(path)?, Standing::Absent) {
        return Ok(());
    }
    Err(Fault::usage(
        "not_enrolled",
        format!("{} holds no identity, and no token was given to obtain one", path.display()),
        sources.asker.remedy(),
    ))
}

pub async fn find(
    dir: &Dir,
    contact: &Contact,
    environment: &Environment,
    config: &Config,
    servers: Vec<ServerUrl>,
    stdin: impl Read,
) -> Result<Found, Fault> {
    let identity = match load(dir.path())? {
        Standing::Present(found) if revoked::is_set(dir.path(), &found.facts.serial) => {
            let token = || token_source::find(sources(contact, environment, config), stdin);
            match anew(dir, contact, config, &servers, token).await {
                Some(identity) => identity,
                None if config.daemon.exit_on_revoked => return Err(is_revoked(&found)),
                None => *found,
            }
        }
        Standing::Present(found) => *found,
        Standing::Absent if let Some(there) = adopts::made_elsewhere(&config.files) => {
            adopts::adopt(dir, contact, config, &servers, there).await?
        }
        Standing::Absent => {
            config.files.check(dir.path())?;
            let token = || token_source::find(sources(contact, environment, config), stdin);
            let plan = Plan::check(config, servers.clone(), token)?;
            enroll(dir, &plan, contact).await?
        }
        Standing::Exposed(place) => return Err(exposed(&place)),
        Standing::Damaged(reason) => return Err(damaged(&reason)),
    };
    if servers.is_empty() && identity.meta.as_ref().is_none_or(|meta| meta.servers.is_empty()) {
        return Err(Fault::usage(
            "server_missing",
            "no control plane was named",
            "name it with --server https://HOST:PORT, ENLIST_AGENT_SERVER or `server` in agent.toml",
        ));
    }
    let candidate = candidate(dir.path(), &identity)?;
    Ok(Found { identity, candidate, servers })
}

/// Another identity for a host whose own is revoked, if there is a token for it. A spent one may still lie where
/// the first enrollment found it, so that it is refused ends nothing.
async fn anew(
    dir: &Dir,
    contact: &Contact,
    config: &Config,
    servers: &[ServerUrl],
    token: impl FnOnce() -> Result<Token, Fault>,
) -> Option<Identity> {
    tracing::error!("this host's identity is revoked, as the control plane has said before; {REMEDY}");
    let obtained = match Plan::check(config, servers.to_vec(), token) {
        Ok(plan) => enroll(dir, &plan, contact).await,
        Err(fault) if fault.code == "token_missing" => return None,
        Err(fault) => Err(fault),
    };
    let refused = |fault: &Fault| {
        tracing::warn!(code = %fault.code, "not enrolled anew: {}; remedy: {}", fault.message, fault.hint);
    };
    obtained.inspect_err(refused).ok()
}

/// Until it works, or the control plane refuses.
async fn enroll(dir: &Dir, plan: &Plan, contact: &Contact) -> Result<Identity, Fault> {
    let caller = caller(contact, None)?;
    let (mut backoff, mut notices) = (Backoff::new(CAP), Notices::default());
    loop {
        match obtain(dir, plan, &caller).await {
            Ok((identity, _)) => {
                tracing::info!(node_id = identity.node_id(), "enrolled");
                return Ok(identity);
            }
            Err(fault) if fault.exit == Exit::Unreachable || fault.retryable => {
                if let Some(count) = notices.note(&fault.code, clock::now()) {
                    let servers: Vec<String> = plan.servers.iter().map(ToString::to_string).collect();
                    tracing::warn!(
                        code = %fault.code, count,
                        "not enrolled yet: {} (tried {}); remedy: {}",
                        fault.message, servers.join(", "), fault.hint
                    );
                }
            }
            Err(fault) => return Err(fault),
        }
        let pause = backoff.next(chance::number(), None);
        tokio::time::sleep(Duration::from_millis(pause.millis())).await;
    }
}

/// The generation that a renewal left behind, recognised by the renewal's key.
pub fn candidate(dir: &Path, identity: &Identity) -> Result<Option<(Number, Identity)>, Fault> {
    let Some(key) = renewal_key::read(dir) else { return Ok(None) };
    if key.spki() == identity.key.spki() {
        // It is in use; only the tidying was cut short.
        renewal_key::remove(dir).map_err(|error| unusable(dir, &error))?;
        return Ok(None);
    }
    let numbers = Generations::under(dir).numbers().map_err(|error| unusable(dir, &error))?;
    for number in numbers {
        if let Ok(Standing::Present(found)) = identity::at(dir, number)
            && found.key.spki() == key.spki()
            && found.spiffe == identity.spiffe
        {
            return Ok(Some((number, *found)));
        }
    }
    Ok(None)
}

fn load(path: &Path) -> Result<Standing, Fault> {
    identity::load(path).map_err(|error| unusable(path, &error))
}

fn unusable(path: &Path, error: &std::io::Error) -> Fault {
    Fault::host("dir_unusable", format!("{}: {error}", path.display()), "run it as the directory's owner")
}

fn is_revoked(identity: &Identity) -> Fault {
    let node = identity.node_id().unwrap_or_default();
    Fault::new(Exit::Refused, "node_revoked", format!("the identity of {node} is revoked"), REMEDY)
}

fn exposed(place: &Path) -> Fault {
    Fault::host(
        "key_exposed",
        format!("others than this user may read or replace {}", place.display()),
        "if nobody did, close it with chmod go-rwx; otherwise have the node revoked and enroll with --replace",
    )
}

fn damaged(reason: &str) -> Fault {
    Fault::host(
        "identity_damaged",
        format!("the identity here cannot be used: {reason}"),
        "put back what is missing, or enroll anew with a new token: `enlist-agent enroll --replace`",
    )
}
