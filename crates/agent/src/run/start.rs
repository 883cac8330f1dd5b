//! What the daemon starts with: the identity on disk, or one obtained with a token; and a renewed certificate
//! that was not put to use yet.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use client::ServerUrl;
use lifecycle::host::{Backoff, Notices};
use lifecycle::names::Span;

use crate::cli::Contact;
use crate::config::{Config, Environment};
use crate::enroll::plan::Plan;
use crate::enroll::{caller, obtain, sources};
use crate::fault::{Exit, Fault};
use crate::store::dir::Dir;
use crate::store::generation::{Generations, Number};
use crate::store::identity::{self, Identity, Standing};
use crate::store::renewal_key;
use crate::{chance, clock, token_source};

/// Between two rounds over all servers.
const CAP: Span = Span::from_minutes(1);

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
    let token = sources.flag.is_some()
        || sources.flag_file.is_some()
        || sources.variable.is_some()
        || sources.file.is_some();
    if token || !matches!(load(path)?, Standing::Absent) {
        return Ok(());
    }
    Err(Fault::usage(
        "not_enrolled",
        format!("{} holds no identity, and no token was given to obtain one", path.display()),
        "give a token with ENLIST_AGENT_TOKEN, --token-file F or `token_file` in agent.toml; an operator makes one with `enlist token create`",
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
        Standing::Present(found) => *found,
        Standing::Absent => {
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
                    tracing::warn!(code = %fault.code, count, "not enrolled yet: {}", fault.message);
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
