//! `[endpoint_profile]`: where hosts find their control plane and its terminal, as their operator names it, and which
//! names they must be able to resolve by themselves. Sent down to hosts as it is; without it nothing is sent.

use super::form::{Form, LABEL, is_host_name};
use super::key::{ConfigKeyReference, config_keys};
use super::mistake::ConfigMistake;
use super::shape::{FormList, Optional, Required, ValueShape, typed};
use api::agent::EndpointProfile;
use client::url::ServerUrl;
use lifecycle::names::Label;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// URLs, and names with an address, that a profile may hold.
const ENTRIES: usize = 32;

static SHORT_URL: Form<String> = Form {
    parse: |text| {
        let fits = text.len() <= 512 && ServerUrl::parse(text).is_ok();
        fits.then(|| text.trim_end_matches('/').to_owned())
    },
    expected: || "an https:// URL with host and optional port".to_owned(),
    is_secret: false,
};

config_keys! {
    /// `[endpoint_profile]` as written.
    pub struct RawEndpointProfile as written;
    /// `[endpoint_profile]` key by key. A host has to live by it, so that it is whole or there is none.
    pub struct EndpointProfileConfig {
        /// Name of the profile; change it when you change the profile
        "id" id: Required<Label> = Required(&LABEL, "");
        /// URLs of the control plane, 1 to 32
        "api_urls" api_urls: Urls = Urls(FormList(&SHORT_URL, "required"));
        /// URL of the terminal
        "terminal_url" terminal_url: Optional<String> = Optional(&SHORT_URL, "none");
        /// Names that a host must be able to resolve without DNS, at most 32
        "hosts" hosts: HostAddresses = HostAddresses;
    }
}

pub(super) fn sent(
    _: &RawEndpointProfile,
    profile: Option<EndpointProfileConfig>,
    _: &mut Vec<ConfigMistake>,
) -> Option<EndpointProfile> {
    let profile = profile?;
    Some(EndpointProfile {
        id: profile.id.to_string(),
        api_urls: profile.api_urls,
        terminal_url: profile.terminal_url.unwrap_or_default(),
        hosts: profile.hosts.into_iter().collect(),
    })
}

/// A list of at least one, and of no more than a host is sent.
pub struct Urls(FormList<String>);

impl ValueShape for Urls {
    type Raw = Vec<String>;
    type Checked = Vec<String>;

    fn read(&self, key: &str, value: toml::Value, mistakes: &mut Vec<ConfigMistake>) -> Vec<String> {
        self.0.read(key, value, mistakes)
    }

    fn check(&self, key: &str, raw: &Vec<String>, mistakes: &mut Vec<ConfigMistake>) -> Option<Vec<String>> {
        let fits = (1..=ENTRIES).contains(&raw.len());
        if !fits {
            let expected = format!("1 to {ENTRIES} https:// URLs");
            mistakes.push(ConfigMistake::new(key, &format!("{} URLs", raw.len()), expected));
        }
        self.0.check(key, raw, mistakes).filter(|_| fits)
    }

    fn reference(&self, key: &str, help: &'static str) -> Vec<ConfigKeyReference> {
        self.0.reference(key, help)
    }
}

/// Names with the address of each.
pub struct HostAddresses;

impl ValueShape for HostAddresses {
    type Raw = BTreeMap<String, String>;
    type Checked = BTreeMap<String, String>;

    fn read(&self, key: &str, value: toml::Value, mistakes: &mut Vec<ConfigMistake>) -> Self::Raw {
        typed(key, value, "a table of names and their addresses", mistakes)
    }

    fn check(&self, key: &str, raw: &Self::Raw, mistakes: &mut Vec<ConfigMistake>) -> Option<Self::Checked> {
        let before = mistakes.len();
        if raw.len() > ENTRIES {
            let expected = format!("at most {ENTRIES} names");
            mistakes.push(ConfigMistake::new(key, &format!("{} names", raw.len()), expected));
        }
        for (name, address) in raw {
            if !is_host_name(name) || name.parse::<IpAddr>().is_ok() || is_every_hosts_own(name) {
                mistakes.push(ConfigMistake::new(key, name, "a host name, other than every host's own"));
            }
            if !address.parse::<IpAddr>().is_ok_and(is_one_host) {
                let key = format!("{key}.{name}");
                mistakes.push(ConfigMistake::new(&key, address, "the IP address of one host"));
            }
        }
        (mistakes.len() == before).then(|| raw.clone())
    }

    fn reference(&self, key: &str, help: &'static str) -> Vec<ConfigKeyReference> {
        let accepts = "table of host names with the IP address of each".to_owned();
        vec![ConfigKeyReference::new(key, help, accepts, "none")]
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
