//! Changing the key-encryption key: every sealed key is sealed anew.
//!
//! The registry and the files beside it cannot change at once. `keys/kek.next` says, from before the commit
//! until everything is written, which key may be the right one; the next start finishes what was begun.

use crate::ca::keys::{AUDIT_CONTEXT, UnsealError, roll_context, unsealed};
use crate::ca::log_key;
use crate::ca::roll::Requester;
use crate::ca::server_cert;
use crate::cluster::local;
use crate::http::failure::Failure;
use crate::process::app::App;
use crate::process::config;
use crate::process::datadir::{DataDir, DirError, replace};
use api::code;
use lifecycle::registry::{Command, Rejection, Rewrap};
use pki::seal::{Kek, KekSource};
use std::path::Path;
use std::sync::Arc;

/// Where the next key is looked for, while it is being changed.
const NEXT: &str = "kek.next";
pub const ID: &str = "kek.id";

/// The key in use from now on.
pub struct Rewrapping {
    pub kek_id: String,
    pub warnings: Vec<String>,
}

/// Seals everything under another key; answers with its id.
pub async fn rewrap(app: &App, by: &Requester<'_>, source: &str) -> Result<Rewrapping, Failure> {
    let _alone = app.ca.sealing().await?;
    if app.view().state.members().count() > 1 {
        let message = "the key-encryption key cannot be changed while there are other replicas: they could not open the keys";
        return Err(Failure::new(code::BAD_REQUEST, message)
            .remedy("remove the other replicas (`enlist cluster remove ID`), change it, and let new ones join with the new key"));
    }
    let bad = |why: &dyn std::fmt::Display| Failure::new(code::BAD_REQUEST, format!("kek: {why}"));
    let source = KekSource::parse(source).map_err(|error| bad(&error))?;
    if let KekSource::File(path) = &source
        && !path.is_absolute()
    {
        return Err(bad(&"the path must be absolute: the control plane has a directory of its own"));
    }
    if let KekSource::File(path) = &source
        && app.ca.dir.contains(path)
    {
        return Err(bad(&"a key inside the data directory protects nothing against a copy of it"));
    }
    if let KekSource::File(path) = &source
        && !path.parent().is_some_and(Path::is_dir)
    {
        return Err(bad(&"the directory that should hold it does not exist"));
    }
    let made = matches!(&source, KekSource::File(path) if !path.exists());
    let next = Arc::new(source.load_or_create().map_err(|error| bad(&error))?);
    // As the next start will read it: what nobody can read again must not seal anything.
    let again = source.load().map_err(|error| bad(&error))?;
    if again.id() != next.id() {
        return Err(bad(&"it gives another key each time that it is read"));
    }
    let warnings = match &source {
        KekSource::File(path) if made => lost_at_restart(path).into_iter().collect(),
        KekSource::File(_) | KekSource::Env(_) => Vec::new(),
    };
    let command = sealed_anew(app, &next)?;
    let io = |error: DirError| Failure::internal("the next key could not be noted", &error);
    log_key::prepare(&app.ca.dir, &app.ca.keys.kek(), &next)
        .map_err(|error| Failure::internal("the log key could not be sealed", &error))?;
    replace(&app.ca.dir.keys(NEXT), format!("{source}\n").as_bytes(), 0o600).map_err(io)?;
    let old = app.ca.keys.kek();
    if let Err(failure) = app.commit(by.actor.clone(), by.origin, Command::Rewrap(command)).await {
        // Refused for sure: the note goes. Perhaps done: the next start will know.
        if !failure.code.retryable {
            forget(&app.ca.dir).map_err(io)?;
        }
        return Err(failure);
    }
    app.ca.keys.set_kek(next.clone());
    server_cert::reseal(&app.ca.dir, &old, &next).map_err(io)?;
    local::reseal(&app.ca.dir, &old, &next).map_err(io)?;
    finish(&app.ca.dir, &source, &next).map_err(io)?;
    Ok(Rewrapping { kek_id: next.id(), warnings })
}

/// Whether a file lies where nothing outlives a restart of the machine: the magic numbers of tmpfs and ramfs.
fn lost_at_restart(path: &Path) -> Option<String> {
    const VOLATILE: [u64; 2] = [0x0102_1994, 0x8584_58f6];
    let found = rustix::fs::statfs(path).ok()?;
    let kind = u64::try_from(found.f_type).ok()?;
    VOLATILE.contains(&kind).then(|| {
        format!(
            "{} was created in memory (tmpfs) and is gone when this machine restarts, and with it every key that it seals: \
             copy it to a disk now, and rewrap with that path",
            path.display()
        )
    })
}

fn sealed_anew(app: &App, next: &Kek) -> Result<Rewrap, Failure> {
    let view = app.view();
    let old = app.ca.keys.kek();
    let seal = |context: &str, key: &[u8]| {
        next.seal(context, key).map_err(|error| Failure::internal("a key could not be sealed", &error))
    };
    let again = |context: &str, sealed: &[u8]| -> Result<Vec<u8>, Failure> {
        let key = old.unseal(context, sealed).map_err(|_| UnsealError::WrongKek("sealed keys"))?;
        seal(context, &key)
    };
    let held = view.state.issuers.values().filter(|issuer| !issuer.sealed_key.is_empty());
    let issuers = held.map(|issuer| {
        let (context, key) = unsealed(&old, issuer)?;
        Ok((issuer.id.clone(), seal(&context, &key)?.into()))
    });
    let signer = view.state.audit_signer.as_ref().ok_or(Rejection::NotInitialized)?;
    let roll = view.state.roll.as_ref();
    let roll = roll.map(|roll| again(&roll_context(&roll.key), &roll.sealed_key)).transpose()?;
    let pending = view.state.pending_roll.iter().flat_map(|pending| &pending.requests);
    let pending = pending.map(|request| Ok(again(&roll_context(&request.key), &request.sealed_key)?.into()));
    Ok(Rewrap {
        issuers: issuers.collect::<Result<_, Failure>>()?,
        audit: again(AUDIT_CONTEXT, &signer.sealed_key)?,
        roll: roll.map(Into::into),
        pending: pending.collect::<Result<_, Failure>>()?,
    })
}

/// The files follow the registry.
fn finish(dir: &DataDir, source: &KekSource, kek: &Kek) -> Result<(), DirError> {
    log_key::adopt(dir)?;
    config::set_kek(&dir.config(), source)?;
    replace(&dir.keys(ID), format!("{}\n", kek.id()).as_bytes(), 0o600)?;
    forget(dir)
}

fn forget(dir: &DataDir) -> Result<(), DirError> {
    log_key::forget(dir)?;
    let path = dir.keys(NEXT);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(DirError::Io { path, error }),
        _ => Ok(()),
    }
}

/// A change that was begun and may not have been finished.
pub struct PendingRewrap {
    source: KekSource,
    pub kek: Arc<Kek>,
}

/// Looks for one. A note that cannot be used is as good as none: the key of before is tried first.
pub fn begun(dir: &DataDir) -> Option<PendingRewrap> {
    let text = String::from_utf8(journal::read_small(&dir.keys(NEXT)).ok()?).ok()?;
    let source = KekSource::parse(text.trim()).ok()?;
    let kek = Arc::new(source.load().ok()?);
    Some(PendingRewrap { source, kek })
}

/// The registry is sealed with the next key: the files follow. Else the change never happened.
pub fn settle(dir: &DataDir, begun: Option<(PendingRewrap, bool)>) -> Result<(), DirError> {
    match begun {
        Some((begun, true)) => finish(dir, &begun.source, &begun.kek),
        Some((_, false)) => forget(dir),
        // Stopped before the note was written: what is sealed under a key that nobody will ask for goes too.
        None => log_key::forget(dir),
    }
}
