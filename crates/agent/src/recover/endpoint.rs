//! Where a lost host turns to, and by what it recognises that place: as agent.toml says, else as the control plane
//! said while all was well, else as every day, but only where the operator calls that safe. Never by chance.

use client::{ServerUrl, Trust};

use crate::code::AgentCode;
use crate::config::RecoveryConfig;
use crate::fault::Fault;
use crate::store::recovery::Profile;

#[derive(Debug, Clone)]
pub struct Way {
    pub servers: Vec<ServerUrl>,
    pub trust: Trust,
}

/// What serves every day.
#[derive(Debug)]
pub struct Runtime {
    pub servers: Vec<ServerUrl>,
    /// Nothing on a host that has no bundle.
    pub trust: Option<Trust>,
}

pub fn settled(config: &RecoveryConfig, profile: Option<&Profile>, runtime: &Runtime) -> Result<Way, Fault> {
    let named = match &config.url {
        Some(url) => Some(ServerUrl::parse(url).map_err(|error| blocked(format!("recovery_url: {error}")))?),
        None => None,
    };
    let own = match &config.ca_file {
        Some(path) => {
            let unusable = |reason: String| blocked(format!("recovery_ca_file {}: {reason}", path.display()));
            let pem = std::fs::read(path).map_err(|error| unusable(error.to_string()))?;
            Some(Trust::from_ca_pem(&pem).map_err(|error| unusable(error.to_string()))?)
        }
        None => None,
    };
    let stored = || profile.map(|profile| Trust::CaFile(profile.ca.clone()));
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
    Ok(Way { servers, trust })
}

/// What opens what is closed.
pub const BUNDLE: &str = "have an operator create a repair bundle, `enlist node repair-bundle ID --out FILE`, and run `enlist-agent recover --bundle FILE`";

/// Closed, and what opens it.
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
        let profile = Profile { id: "p".to_owned(), url: url("https://profile:1"), ca: Vec::new() };
        let trust = trusted.then(|| Trust::CaFile(Vec::new()));
        let runtime = Runtime { servers: vec![url("https://runtime:1")], trust };
        let way = settled(config, Some(&profile).filter(|_| known), &runtime);
        way.ok().and_then(|way| way.servers.first().map(ToString::to_string))
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
