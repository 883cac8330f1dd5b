//! Keeps a new identity, in an order in which a crash at any point can be recovered from by a second run.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use client::ServerUrl;
use pki::wireguard::WireguardPrivate;
use toml::Value;

use super::plan::KeptSettings;
use crate::config::{KeyStorage, edit, file, keys};
use crate::store::generation::Generations;
use crate::store::identity::HostIdentity;
use crate::store::{disk, last_attempts, pending, revoked, unconfirmed, wireguard};

/// More addresses than these, or longer ones, are not kept: what the control plane says must fit into small files.
pub const SERVERS: usize = 16;
pub const LONGEST: usize = 512;

/// The switch comes last: whoever finds an identity in use also finds where it belongs, and whether the
/// control plane has heard of it.
pub fn keep(
    dir: &Path,
    identity: &HostIdentity,
    wireguard: Option<&WireguardPrivate>,
    servers: &[ServerUrl],
    kept: KeptSettings<'_>,
) -> io::Result<()> {
    let generations = Generations::under(dir);
    let number = kept.files.write(identity, &generations, None)?;
    unconfirmed::set(dir, &identity.facts.serial)?;
    // What is in memory alone finds its settings where it found them.
    if kept.storage == KeyStorage::Disk {
        settings(dir, servers, kept)?;
    }
    if let Some(key) = wireguard {
        wireguard::keep(dir, key)?;
    }
    generations.switch(number, None)?;
    // It names the certificate that was, so one that stays is only untidy.
    if let Err(error) = revoked::clear(dir) {
        tracing::warn!(%error, "the marker `revoked` of the former identity could not be removed");
    }
    if let Err(error) = last_attempts::forget(dir) {
        tracing::warn!(%error, "records of the former identity could not be removed");
    }
    // It is kept; the request that led to it is only in the way, and the next run removes it.
    if let Err(error) = pending::remove(dir) {
        tracing::warn!(%error, "the finished request could not be removed");
    }
    Ok(())
}

/// Writes servers, trust, layout, underlay and tenant to agent.toml, and nothing else in it.
fn settings(dir: &Path, servers: &[ServerUrl], kept: KeptSettings<'_>) -> io::Result<()> {
    let path = dir.join(file::NAME);
    let (text, mode) = match fs::read_to_string(&path) {
        Ok(text) => (text, fs::metadata(&path)?.mode() & 0o777),
        Err(error) if error.kind() == io::ErrorKind::NotFound => (String::new(), disk::SECRET),
        Err(error) => return Err(error),
    };
    let list = servers.iter().map(|server| Value::String(server.to_string())).collect();
    let mut changes = vec![(keys::SERVER, Some(Value::Array(list)))];
    changes.extend(kept.choice.changes());
    let layout = kept.files.layout.map(|layout| Value::String(layout.name().to_owned()));
    changes.extend(layout.map(|layout| (keys::LAYOUT, Some(layout))));
    let underlay = kept.underlay_given.into_iter().flatten().map(|at| Value::String(at.clone()));
    let underlay: Vec<Value> = underlay.collect();
    if !underlay.is_empty() {
        changes.push((keys::UNDERLAY, Some(Value::Array(underlay))));
    }
    // The daemon refuses any other tenant too.
    let tenant = kept.tenant.map(|tenant| Value::String(tenant.to_string()));
    changes.extend(tenant.map(|tenant| (keys::TENANT, Some(tenant))));
    let edited = edit::apply(&text, &changes)
        .ok_or_else(|| io::Error::other("agent.toml cannot be changed without touching its other keys"))?;
    if edited == text { Ok(()) } else { disk::replace(&path, edited.as_bytes(), mode) }
}

/// Where the control plane can be reached: what the operator named first, then what it said of itself.
pub fn merged(named: &[ServerUrl], told: &[String]) -> Vec<ServerUrl> {
    let mut servers = named.to_vec();
    for text in told.iter().take(SERVERS).filter(|text| text.len() <= LONGEST) {
        match ServerUrl::parse(text) {
            Ok(url) if servers.contains(&url) => {}
            Ok(url) => servers.push(url),
            Err(error) => tracing::warn!(%error, "the control plane named an address that cannot be used"),
        }
    }
    servers
}
