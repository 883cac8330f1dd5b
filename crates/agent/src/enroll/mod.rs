//! `enroll`: a token becomes an identity.
//!
//! Killed at any moment and run again with the same token, it ends with the same identity: the request is on
//! disk before it is sent, and what comes back is put to use by one rename.

mod answer;
mod keep;
mod plan;
mod report;
mod talk;

use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use client::ServerUrl;

use crate::cli::EnrollArgs;
use crate::config::{self, Config, Environment};
use crate::fault::Fault;
use crate::store::dir::Dir;
use crate::store::generation::Generations;
use crate::store::identity::{self, Identity, Standing};
use crate::store::pending::{self, Pending};
use crate::store::unconfirmed;
use crate::token_source::{self, Sources};
use crate::{chance, clock, host};
use plan::Plan;
pub use report::Report;
use talk::Caller;

/// Long enough for a control plane that is there, short enough for a host that must get on.
const LAST_WORD: Duration = Duration::from_secs(10);

pub async fn run(args: &EnrollArgs, environment: &Environment, stdin: impl Read) -> Result<Report, Fault> {
    let path = args.place.path(environment);
    let config = config::load(&path, args.values(), environment)?;
    let servers = plan::servers(&config)?;
    let caller = caller(args)?;
    // Looked at before the directory is touched, so that a wrong command leaves no trace.
    if !args.replace && usable(&path)?.is_some() {
        let dir = Dir::hold(&path)?;
        return match usable(&path)? {
            Some(found) => already(&dir, &found, &servers, &caller).await,
            None => {
                Err(Fault::host("identity_changed", "the identity has just been removed", "run it again"))
            }
        };
    }
    refuse_what_cannot_be_kept(&path, &config)?;
    let token = || token_source::find(sources(args, environment, &config), stdin);
    let plan = Plan::check(&config, servers, token)?;
    let dir = Dir::hold(&path)?;
    // Looked at again, now that nobody else can change it.
    match settled(&path, args.replace, &plan)? {
        Some(found) => already(&dir, &found, &plan.servers, &caller).await,
        None => anew(&dir, &plan, &caller).await,
    }
}

/// The identity with which this command has nothing left to obtain: another run was first, or this very request
/// was answered and kept just before it was killed.
fn settled(dir: &Path, replace: bool, plan: &Plan) -> Result<Option<Box<Identity>>, Fault> {
    if !replace {
        return usable(dir);
    }
    let (Ok(Standing::Present(found)), Some(pending)) = (identity::load(dir), Pending::read(dir)) else {
        return Ok(None);
    };
    let same = pending.is_for(&plan.token) && pending.key.spki() == found.key.spki();
    Ok(Some(found).filter(|_| same))
}

/// Spends the token.
async fn anew(dir: &Dir, plan: &Plan, caller: &Caller) -> Result<Report, Fault> {
    let begun = Generations::under(dir.path()).check();
    let begun = begun.and_then(|()| Pending::resume_or_begin(dir.path(), &plan.token));
    let pending = begun.map_err(|error| not_begun(&error))?;
    let answer = match talk::enroll(plan, &pending, caller).await {
        Ok(answer) => answer,
        Err(fault) => {
            // The token is dead for good, so there is nothing left to ask again for.
            if matches!(fault.code.as_ref(), "token_expired" | "token_used" | "token_revoked") {
                _ = pending::remove(dir.path());
            }
            return Err(fault);
        }
    };
    let servers = keep::merged(&plan.servers, &answer.servers);
    let identity = answer::check(&answer, pending.key, clock::now())?;
    if let Err(error) = keep::keep(dir.path(), &identity, &servers, &plan.choice) {
        return Err(not_persisted(dir, &identity, &servers, &error, caller).await);
    }
    let state = confirm(dir, &identity, &servers, caller).await?;
    Ok(Report::new(dir.path(), &identity, state, false))
}

/// Nothing is sent, unless the control plane has yet to hear that the identity was kept.
async fn already(
    dir: &Dir,
    identity: &Identity,
    servers: &[ServerUrl],
    caller: &Caller,
) -> Result<Report, Fault> {
    if Pending::read(dir.path()).is_some_and(|pending| pending.key.spki() == identity.key.spki()) {
        _ = pending::remove(dir.path());
    }
    let state = if unconfirmed::is_set(dir.path(), &identity.facts.serial) {
        confirm(dir, identity, servers, caller).await?
    } else {
        "enrolled".to_owned()
    };
    Ok(Report::new(dir.path(), identity, state, true))
}

async fn confirm(
    dir: &Dir,
    identity: &Identity,
    servers: &[ServerUrl],
    caller: &Caller,
) -> Result<String, Fault> {
    match talk::confirm(identity, servers, None, caller).await {
        Ok(state) => {
            if let Err(error) = unconfirmed::clear(dir.path()) {
                tracing::warn!(%error, "the mark `unconfirmed` could not be removed; confirming twice is harmless");
            }
            Ok(state)
        }
        Err(fault) => Err(Fault {
            message: format!(
                "the identity is kept, but the control plane could not be told: {}",
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
    identity: &Identity,
    servers: &[ServerUrl],
    error: &io::Error,
    caller: &Caller,
) -> Fault {
    let reason = format!("{}: {error}", dir.path().display());
    let brief = Caller { patience: LAST_WORD.min(caller.patience), ..caller.clone() };
    if let Err(fault) = talk::confirm(identity, servers, Some(&reason), &brief).await {
        tracing::warn!(code = %fault.code, "the control plane could not be told either: {}", fault.message);
    }
    Fault::host(
        "not_persisted",
        format!("the identity was issued but could not be written: {reason}"),
        "make room in the directory, then run the same command with the same token: it gives the same identity",
    )
}

/// An identity that is whole and in date. One that others may have read is not silently replaced.
fn usable(dir: &Path) -> Result<Option<Box<Identity>>, Fault> {
    let standing = identity::load(dir).map_err(|error| {
        Fault::host("dir_unusable", format!("{}: {error}", dir.display()), "run it as the directory's owner")
    })?;
    match standing {
        Standing::Present(found) if !found.is_expired(clock::now()) => Ok(Some(found)),
        Standing::Present(_) | Standing::Absent => Ok(None),
        Standing::Damaged(reason) => {
            tracing::warn!(%reason, "the identity here cannot be used");
            Ok(None)
        }
        Standing::Exposed(key) => Err(Fault::host(
            "key_exposed",
            format!("others than this user may read {}", key.display()),
            "if nobody did, close it with chmod 0600; otherwise have the node revoked and enroll with --replace",
        )),
    }
}

/// What would only be noticed after the token is spent.
fn refuse_what_cannot_be_kept(dir: &Path, config: &Config) -> Result<(), Fault> {
    if config.memory_only {
        return Err(Fault::usage(
            "storage_memory",
            "storage is \"memory\", so there is nowhere to leave an identity",
            "set storage to \"disk\" to enroll by hand",
        ));
    }
    let settings = dir.join(config::file::NAME);
    if std::fs::symlink_metadata(&settings).is_ok_and(|found| found.is_symlink()) {
        return Err(Fault::usage(
            "config_is_link",
            format!("{} is a symbolic link, and enroll writes through none", settings.display()),
            "put the file itself there",
        ));
    }
    Ok(())
}

fn sources<'a>(args: &'a EnrollArgs, environment: &'a Environment, config: &'a Config) -> Sources<'a> {
    Sources {
        flag: args.token.as_deref(),
        flag_file: args.token_file.as_deref(),
        variable: environment.token().map(AsRef::as_ref),
        file: config.token_file.as_deref(),
    }
}

fn caller(args: &EnrollArgs) -> Result<Caller, Fault> {
    Ok(Caller {
        hostname: args.hostname.clone().unwrap_or_else(host::name),
        correlation_id: chance::hex_128().map_err(|error| not_begun(&error))?,
        patience: Duration::from_millis(args.timeout.millis()),
    })
}

fn not_begun(error: &io::Error) -> Fault {
    let hint = "make room in the directory and see that this user may write there; the token was not sent";
    Fault::host("not_persisted", format!("the request could not be written: {error}"), hint)
}
