//! The recovery endpoint and the CA that verifies it: as agent.toml names them, else as the recovery profile that the
//! control plane issued, else those of every day, but only where the operator has set `recovery_same_as_runtime`.

use client::{DeniedIssuers, ServerUrl, Trust};
use rustls_pki_types::CertificateDer;

use crate::ca_file;
use crate::code::AgentCode;
use crate::config::RecoveryConfig;
use crate::fault::Fault;
use crate::store::recovery::StoredRecoveryProfile;

#[derive(Debug, Clone)]
pub struct RecoveryEndpoint {
    pub servers: Vec<ServerUrl>,
    pub trust: Trust,
}

impl RecoveryEndpoint {
    /// The same, without the issuers that their roots have revoked.
    pub fn denying(self, denied: DeniedIssuers) -> Self {
        Self { trust: self.trust.denying(denied), ..self }
    }
}

/// Servers and trust of the daily connection.
#[derive(Debug)]
pub struct RuntimeEndpoint {
    pub servers: Vec<ServerUrl>,
    /// Nothing on a host that has no bundle.
    pub trust: Option<Trust>,
}

pub fn choose(
    config: &RecoveryConfig,
    profile: Option<&StoredRecoveryProfile>,
    runtime: &RuntimeEndpoint,
) -> Result<RecoveryEndpoint, Fault> {
    let named = match &config.url {
        Some(url) => Some(ServerUrl::parse(url).map_err(|error| blocked(format!("recovery_url: {error}")))?),
        None => None,
    };
    let own = own_trust(config)?;
    let stored = || profile.map(|profile| Trust::cas(profile.ca.clone()));
    let servers = match (named, profile) {
        (Some(url), _) => vec![url],
        (None, Some(profile)) => vec![profile.url.clone()],
        (None, None) if config.same_as_runtime => runtime.servers.clone(),
        (None, None) => return Err(blocked("no recovery endpoint is known")),
    };
    let trust = own.or_else(stored).or_else(|| runtime.trust.clone());
    let trust = trust.ok_or_else(|| blocked("no CA is known to verify the recovery endpoint with"))?;
    if servers.is_empty() {
        return Err(blocked("no recovery endpoint is known"));
    }
    Ok(RecoveryEndpoint { servers, trust })
}

/// The CA that agent.toml names for recovery.
fn own_trust(config: &RecoveryConfig) -> Result<Option<Trust>, Fault> {
    let Some(path) = &config.ca_file else { return Ok(None) };
    let unusable = |reason: String| blocked(format!("recovery_ca_file {}: {reason}", path.display()));
    ca_file::trust(path).map(Some).map_err(unusable)
}

/// What vouches for a recovery CA: the bundle in use, and what agent.toml names.
pub fn vouchers(config: &RecoveryConfig, bundle: &[CertificateDer<'static>]) -> Vec<CertificateDer<'static>> {
    let own = own_trust(config).ok().flatten();
    bundle.iter().chain(own.iter().flat_map(|own| own.anchors())).cloned().collect()
}

/// The remedy where a recovery is blocked.
pub const BUNDLE: &str = "have an operator create a repair bundle, `enlist node repair-bundle ID --out FILE`, and run `enlist-agent recover --bundle FILE`";

/// The remedy for a node that was enrolled without recovery.
pub const ENROLL_ANEW: &str = "keep the daemon running, so that the certificate is renewed before it ends; for recovery, enroll this host anew with a token of another profile, `enlist token create --node ID --profile NAME`";

/// A recovery is blocked, with its remedy.
pub fn blocked(what: impl Into<String>) -> Fault {
    Fault::host(
        AgentCode::RecoveryEnrollmentBlocked,
        format!("recovery is not possible: {}", what.into()),
        BUNDLE,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> ServerUrl {
        ServerUrl::parse(text).unwrap()
    }

    fn check(config: &RecoveryConfig, known: bool, trusted: bool) -> Option<String> {
        let profile =
            StoredRecoveryProfile { id: "p".to_owned(), url: url("https://profile:1"), ca: Vec::new() };
        let trust = trusted.then(|| Trust::cas(Vec::new()));
        let runtime = RuntimeEndpoint { servers: vec![url("https://runtime:1")], trust };
        let endpoint = choose(config, Some(&profile).filter(|_| known), &runtime);
        endpoint.ok().and_then(|endpoint| endpoint.servers.first().map(ToString::to_string))
    }

    #[test]
    fn the_operators_word_comes_first_and_the_everyday_way_only_where_it_is_called_safe() {
        let nothing = RecoveryConfig::default();
        let named = RecoveryConfig { url: Some("https://rescue:1".to_owned()), ..nothing.clone() };
        let same = RecoveryConfig { same_as_runtime: true, ..nothing.clone() };
        assert_eq!(check(&named, true, true).as_deref(), Some("https://rescue:1"));
        assert_eq!(check(&nothing, true, true).as_deref(), Some("https://profile:1"));
        assert_eq!(check(&same, false, true).as_deref(), Some("https://runtime:1"));
        assert_eq!(check(&nothing, false, true), None, "nobody called it safe");
        assert_eq!(check(&named, false, false), None, "nothing to recognise it by");
        assert_eq!(check(&same, false, false), None);
        let gone = RecoveryConfig { ca_file: Some("/nowhere.pem".into()), ..named };
        assert_eq!(check(&gone, true, true), None, "a trust that was named and is gone is not replaced");
    }
}
