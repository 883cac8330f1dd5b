//! What is allowed in enlist.toml and will not do what was meant. `server check` shows it, and the start logs it.

use crate::cluster::local::{self, LocalReplica};
use pki::pem;
use pki::succession::roots_to_follow;
use rustls::pki_types::CertificateDer;

use super::clock;
use super::config::{ControlPlaneConfig, LokiCredential, SpireConfig, host_of, is_own_machine};
use super::datadir::{DataDir, StoreVersion};
use crate::ca::spire_bundle;

/// One line each.
pub fn warnings(dir: &DataDir, config: &ControlPlaneConfig) -> Vec<String> {
    let found = [
        refused_recovery_ca(dir, config),
        exposed_trail(config),
        exposed_claims(config),
        claims_of_nobody(dir, config),
        older_directory(dir),
        foreign_directory(dir),
        misleading_name(dir, config),
    ];
    found.into_iter().flatten().chain(unusable_bundles(dir, config)).collect()
}

/// The start goes on without it: SPIRE may write its bundle later.
fn unusable_bundles(dir: &DataDir, config: &ControlPlaneConfig) -> Vec<String> {
    let own = own_cas(dir);
    let fault = |spire: &SpireConfig| {
        let read = std::fs::read(&spire.bundle).map_err(|error| error.to_string());
        let read = read.and_then(|text| spire_bundle::read(&spire.trust_domain, &text, &own));
        read.err().map(|why| {
            let (domain, file) = (&spire.trust_domain, spire.bundle.display());
            format!("spire.bundle: no SVID of {domain} is accepted until {file} can be used: {why}")
        })
    };
    config.spire.iter().filter_map(fault).collect()
}

/// The CAs of the domain, as they lie in its directory.
pub fn own_cas(dir: &DataDir) -> Vec<CertificateDer<'static>> {
    std::fs::read(dir.ca("bundle.pem")).ok().and_then(|pem| pem::certificates(&pem).ok()).unwrap_or_default()
}

/// Plain http inside a cluster is common, so that it is not refused.
fn exposed_trail(config: &ControlPlaneConfig) -> Option<String> {
    let loki = config.loki.as_ref().filter(|loki| loki.url.is_exposed())?;
    let secret = match loki.credential {
        LokiCredential::None => "",
        LokiCredential::Basic { .. } => " and the password",
        LokiCredential::Bearer { .. } => " and the bearer token",
    };
    Some(format!(
        "loki.url: the audit trail{secret} can be read and changed by everybody on the way to {}; use https",
        loki.url
    ))
}

fn exposed_claims(config: &ControlPlaneConfig) -> Option<String> {
    let claims = config.claims.as_ref().filter(|claims| claims.url.is_exposed())?;
    Some(format!(
        "claims.url: which machines are active can be read by everybody on the way to {}, who can also withhold what others \
         claim; use https",
        claims.url
    ))
}

/// Its own root is what is at hand, and vouches for no other domain.
fn claims_of_nobody(dir: &DataDir, config: &ControlPlaneConfig) -> Option<String> {
    let claims = config.claims.as_ref()?;
    let own = std::fs::read(dir.ca("bundle.pem")).ok().and_then(|pem| pem::certificates(&pem).ok())?;
    claims.roots.iter().all(|root| own.contains(root)).then(|| {
        "claims.trust: it holds this domain's own root only, so that the claims of other domains are all ignored; add the \
         root of each domain that is to be believed (`enlist ca export` there)"
            .to_owned()
    })
}

/// The check only reads, so that it goes on.
fn foreign_directory(dir: &DataDir) -> Option<String> {
    let refused = dir.check_owner().err()?;
    Some(format!(
        "{refused}: `enlist server run` is refused; run it as the user that the directory belongs to"
    ))
}

/// Of a replica that joined others on other machines: none of them can send it the log.
fn misleading_name(dir: &DataDir, config: &ControlPlaneConfig) -> Option<String> {
    let local = local::load(dir).ok().filter(LocalReplica::joined)?;
    let is_elsewhere = |peer: &String| !is_own_machine(host_of(peer));
    let name = config.misleading_name().filter(|_| local.seeds.values().any(is_elsewhere))?;
    Some(format!(
        "names: the other replicas and the hosts are told {name}, which is their own machine; set names to the host name of this \
         machine, or listen and peer_listen to addresses that others reach"
    ))
}

fn older_directory(dir: &DataDir) -> Option<String> {
    let older = dir.check_version().is_ok_and(|version| version == StoreVersion::Older);
    older.then(|| {
        "this data directory was written by an older version: the next start authenticates its log, and older programs \
         cannot use it from then on; make a backup first"
            .to_owned()
    })
}

/// Hosts take a recovery CA only if a CA that they trust vouches for it.
fn refused_recovery_ca(dir: &DataDir, config: &ControlPlaneConfig) -> Option<String> {
    let offered = pem::certificates(config.recovery.ca.as_ref()?.as_bytes()).ok()?;
    let trusted = std::fs::read(dir.ca("bundle.pem")).ok().and_then(|pem| pem::certificates(&pem).ok())?;
    let reason = roots_to_follow(&trusted, &offered, |_| false, clock::now()).err()?;
    Some(format!(
        "recovery.ca_file: hosts will refuse this CA and the recovery tokens that come with it, because no CA that they \
         trust vouches for it ({reason}); remove the key, or set recovery_ca_file in agent.toml on every host"
    ))
}
