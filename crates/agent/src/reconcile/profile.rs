//! `endpoint_profile.json`: where the control plane is, as its operator last named it to this host.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use api::agent::EndpointProfile;
use client::ServerUrl;
use serde::{Deserialize, Serialize};

use crate::config::hosts;
use crate::config::kind::stream_host;
use crate::store::disk;

pub const NAME: &str = "endpoint_profile.json";
const URLS: usize = 32;
const LONGEST: usize = 512;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredEndpointProfile {
    pub id: String,
    pub api_urls: Vec<String>,
    #[serde(default)]
    pub terminal_url: String,
    /// Names as they were sent; what cannot be one is told when it is to be used.
    #[serde(default)]
    pub hosts: BTreeMap<String, String>,
}

impl StoredEndpointProfile {
    /// Within bounds, and nothing in it would send anything in the clear. One without an id says that there is none.
    pub fn of(wire: &EndpointProfile) -> Result<Option<Self>, String> {
        let short = |text: &String| text.len() <= LONGEST;
        if wire.id.is_empty() {
            return Ok(None);
        }
        if !short(&wire.id) || wire.id.contains(char::is_control) {
            return Err("it has no usable id".to_owned());
        }
        if wire.api_urls.len() > URLS || wire.hosts.len() > hosts::MOST {
            return Err("it has too many addresses".to_owned());
        }
        let wrong = wire.api_urls.iter().find(|url| !short(url) || ServerUrl::parse(url).is_err());
        if let Some(url) = wrong {
            return Err(format!(
                "{:.80} is not the address of a control plane",
                url.escape_debug().to_string()
            ));
        }
        if !wire.terminal_url.is_empty()
            && (!short(&wire.terminal_url) || stream_host(&wire.terminal_url).is_none())
        {
            return Err("its terminal_url is not an address for sessions".to_owned());
        }
        if !wire.hosts.iter().all(|(name, address)| short(name) && short(address)) {
            return Err("a name in it is too long".to_owned());
        }
        Ok(Some(Self {
            id: wire.id.clone(),
            api_urls: wire.api_urls.clone(),
            terminal_url: wire.terminal_url.clone(),
            hosts: wire.hosts.clone().into_iter().collect(),
        }))
    }
}

/// On disk, or gone from there, when this returns.
pub fn save(dir: &Path, profile: Option<&StoredEndpointProfile>) -> io::Result<()> {
    let path = dir.join(NAME);
    match profile {
        Some(profile) if load(dir)?.as_ref() == Some(profile) => Ok(()),
        Some(profile) => disk::replace(&path, &serde_json::to_vec_pretty(profile)?, disk::PUBLIC),
        None => {
            disk::remove(&path)?;
            disk::sync_dir(dir)
        }
    }
}

/// None if there is none, or not a whole one: the control plane sends it again.
pub fn load(dir: &Path) -> io::Result<Option<StoredEndpointProfile>> {
    match disk::read(&dir.join(NAME)) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire() -> EndpointProfile {
        EndpointProfile {
            id: "site-a".to_owned(),
            api_urls: vec!["https://cp.example:8443".to_owned()],
            terminal_url: "wss://t.example/v1".to_owned(),
            hosts: [("cp.example".to_owned(), "10.0.0.1".to_owned())].into(),
        }
    }

    #[test]
    fn a_profile_is_kept_and_found_again() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(load(dir.path()).unwrap(), None);
        let profile = StoredEndpointProfile::of(&wire()).unwrap();
        save(dir.path(), profile.as_ref()).unwrap();
        save(dir.path(), profile.as_ref()).unwrap();
        assert!(profile.is_some());
        assert_eq!(load(dir.path()).unwrap(), profile);
        std::fs::write(dir.path().join(NAME), "{\"id\":").unwrap();
        assert_eq!(load(dir.path()).unwrap(), None);
    }

    #[test]
    fn one_without_an_id_takes_what_is_kept_away() {
        let dir = tempfile::tempdir().unwrap();
        save(dir.path(), StoredEndpointProfile::of(&wire()).unwrap().as_ref()).unwrap();
        let none = StoredEndpointProfile::of(&EndpointProfile::default()).unwrap();
        save(dir.path(), none.as_ref()).unwrap();
        save(dir.path(), none.as_ref()).unwrap();
        assert!(!dir.path().join(NAME).exists());
    }

    #[test]
    fn what_is_out_of_bounds_is_not_kept() {
        let check = |change: fn(&mut EndpointProfile)| {
            let mut changed = wire();
            change(&mut changed);
            assert!(StoredEndpointProfile::of(&changed).is_err());
        };
        check(|wire| wire.id.push('\n'));
        check(|wire| wire.api_urls.push("http://plain".to_owned()));
        check(|wire| wire.api_urls = vec!["https://a".to_owned(); 33]);
        check(|wire| wire.terminal_url = "ws://plain".to_owned());
        check(|wire| wire.hosts = (0..65).map(|n| (format!("h{n}"), "10.0.0.1".to_owned())).collect());
    }
}
