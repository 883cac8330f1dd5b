//! `[endpoint_profile]`: where hosts find their control plane and its terminal, as their operator names it, and which
//! names they must be able to resolve by themselves. Sent down to hosts as it is; without it nothing is sent.

use super::{Mistake, is_host_name, mistake, take};
use api::agent::EndpointProfile;
use client::url::ServerUrl;
use lifecycle::names::Label;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// URLs, and names with an address, that a profile may hold.
const ENTRIES: usize = 32;
/// Characters of an URL.
const URL: usize = 512;

/// As written.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawEndpointProfile {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub api_urls: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal_url: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hosts: BTreeMap<String, String>,
}

pub(super) fn parse(table: toml::Table, mistakes: &mut Vec<Mistake>) -> RawEndpointProfile {
    let mut raw = RawEndpointProfile::default();
    for (key, value) in table {
        let shown = value.to_string();
        let taken = match key.as_str() {
            "id" => take(value, &mut raw.id),
            "api_urls" => take(value, &mut raw.api_urls),
            "terminal_url" => take(value, &mut raw.terminal_url),
            "hosts" => take(value, &mut raw.hosts),
            _ => Err("id, api_urls, terminal_url and hosts"),
        };
        if let Err(expected) = taken {
            mistakes.push(mistake(&format!("endpoint_profile.{key}"), &shown, expected));
        }
    }
    raw
}

/// A host has to live by this, so that a profile is whole or there is none.
pub(super) fn check(raw: &RawEndpointProfile, mistakes: &mut Vec<Mistake>) -> EndpointProfile {
    let mut wrong = |key: &str, shown: &str, expected: &str| {
        mistakes.push(mistake(&format!("endpoint_profile.{key}"), shown, expected));
    };
    let id = raw.id.as_deref().unwrap_or_default();
    if Label::parse(id).is_err() {
        wrong("id", id, "1 to 128 visible ASCII characters");
    }
    if !(1..=ENTRIES).contains(&raw.api_urls.len()) {
        wrong("api_urls", &format!("{} URLs", raw.api_urls.len()), "1 to 32 https:// URLs");
    }
    let is_url = |url: &str| url.len() <= URL && ServerUrl::parse(url).is_ok();
    for url in raw.api_urls.iter().filter(|url| !is_url(url)) {
        wrong("api_urls", url, "an https:// URL with host and optional port");
    }
    let terminal = raw.terminal_url.as_deref().unwrap_or_default();
    if raw.terminal_url.is_some() && !is_url(terminal) {
        wrong("terminal_url", terminal, "an https:// URL with host and optional port");
    }
    if raw.hosts.len() > ENTRIES {
        wrong("hosts", &format!("{} names", raw.hosts.len()), "at most 32 names");
    }
    for (name, address) in &raw.hosts {
        if !is_host_name(name) || name.parse::<IpAddr>().is_ok() || is_every_hosts_own(name) {
            wrong("hosts", name, "a host name, other than every host's own");
        }
        if !address.parse::<IpAddr>().is_ok_and(is_one_host) {
            wrong(&format!("hosts.{name}"), address, "the IP address of one host");
        }
    }
    let bare = |url: &str| url.trim_end_matches('/').to_owned();
    EndpointProfile {
        id: id.to_owned(),
        api_urls: raw.api_urls.iter().map(|url| bare(url)).collect(),
        terminal_url: bare(terminal),
        hosts: raw.hosts.iter().map(|(name, address)| (name.clone(), address.clone())).collect(),
    }
}

/// Names that no profile may give away: every host has them for itself.
fn is_every_hosts_own(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let own = ["localhost", "localhost4", "localhost6", "broadcasthost"];
    own.contains(&name.as_str())
        || name.starts_with("localhost.")
        || name.ends_with(".localhost")
        || name.starts_with("ip6-")
}

fn is_one_host(address: IpAddr) -> bool {
    !address.is_unspecified() && !address.is_multicast() && address != IpAddr::from([255; 4])
}
