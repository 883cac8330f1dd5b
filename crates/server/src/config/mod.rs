//! Local configuration: addresses, paths and keys. Read in two steps: raw, with unknown keys refused, then
//! checked, with every complaint at once; only then is a socket opened. What can change an outcome is not
//! here but in the replicated policy.

mod endpoint_profile;
mod own_certificate;
mod recovery;

pub use endpoint_profile::RawEndpointProfile;
pub use own_certificate::{OwnCertificate, RawTls};
pub use recovery::{RawRecovery, Recovery};

use crate::datadir::{DirError, replace};
use api::agent::EndpointProfile;
use client::webhook::Webhook;
use lifecycle::registry::Door;
use pki::seal::KekSource;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;

pub const DEFAULT_LISTEN: &str = "[::]:8443";
const KEYS: &str = "one of listen, names, advertise, kek, server_cn, metrics, alerts, doors, tls, endpoint_profile, recovery";
pub const DEFAULT_SERVER_CN: &str = "enlist-control-plane";

/// `enlist.toml` as written.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raw {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listen: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub advertise: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kek: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_cn: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<String>,
    #[serde(default, skip_serializing_if = "RawAlerts::is_empty")]
    pub alerts: RawAlerts,
    #[serde(default, skip_serializing_if = "RawDoors::is_empty")]
    pub doors: RawDoors,
    #[serde(default, skip_serializing_if = "RawTls::is_empty")]
    pub tls: RawTls,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint_profile: Option<RawEndpointProfile>,
    #[serde(default, skip_serializing_if = "RawRecovery::is_empty")]
    pub recovery: RawRecovery,
}

/// `[doors]` as written.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawDoors {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serve: Option<Vec<String>>,
}

impl RawDoors {
    fn is_empty(&self) -> bool {
        self.serve.is_none()
    }
}

/// `[alerts]` as written.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawAlerts {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<String>,
}

impl RawAlerts {
    fn is_empty(&self) -> bool {
        self.webhook.is_none()
    }
}

/// Checked configuration: everything here can be used as it is.
#[derive(Debug, Clone)]
pub struct Config {
    pub listen: Vec<SocketAddr>,
    pub names: Vec<String>,
    pub advertise: Vec<String>,
    pub kek: KekSource,
    pub server_cn: String,
    pub metrics: Option<SocketAddr>,
    /// Who is told of alerts.
    pub webhook: Option<Webhook>,
    /// Wire shapes that are served beside the native one.
    pub doors: BTreeSet<Door>,
    /// What the listener presents, where the domain is not to issue it itself.
    pub own_certificate: Option<OwnCertificate>,
    /// What hosts are told of where their control plane is.
    pub endpoint_profile: Option<EndpointProfile>,
    /// Where a node that has lost its identity turns to.
    pub recovery: Recovery,
}

/// One mistake: where, what stands there, what was expected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mistake {
    pub key: String,
    pub value: String,
    pub expected: String,
}

impl std::fmt::Display for Mistake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} = {:?}: expected {}", self.key, self.value, self.expected)
    }
}

/// Every mistake of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct Mistakes(pub Vec<Mistake>);

/// Reads and checks a configuration file.
pub fn load(path: &Path) -> Result<Config, Mistakes> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Mistakes(vec![mistake(&path.display().to_string(), "", &format!("a readable file ({error})"))])
    })?;
    let (raw, mut mistakes) = parse(&text)?;
    let config = check(&raw, &mut mistakes);
    match config {
        Some(config) if mistakes.is_empty() => Ok(config),
        _ => Err(Mistakes(mistakes)),
    }
}

/// Writes another source of the key-encryption key into a configuration file, and leaves the rest as it is.
pub fn set_kek(path: &Path, source: &KekSource) -> Result<(), DirError> {
    let io = |error| DirError::Io { path: path.to_owned(), error };
    let text = std::fs::read_to_string(path).map_err(io)?;
    let is_kek = |line: &str| {
        line.trim_start().strip_prefix("kek").is_some_and(|rest| rest.trim_start().starts_with('='))
    };
    let value = toml::Value::String(source.to_string());
    let lines =
        text.lines().map(|line| if is_kek(line) { format!("kek = {value}") } else { line.to_owned() });
    let changed = lines.collect::<Vec<_>>().join("\n") + "\n";
    replace(path, changed.as_bytes(), 0o640)
}

/// The file's keys one by one, so that one wrong key does not hide the next.
fn parse(text: &str) -> Result<(Raw, Vec<Mistake>), Mistakes> {
    let table: toml::Table = toml::from_str(text).map_err(|error| {
        let place = error.span().map_or_else(|| "enlist.toml".to_owned(), |span| line_of(text, span.start));
        Mistakes(vec![mistake(&place, "", &format!("valid TOML ({})", error.message()))])
    })?;
    let mut raw = Raw::default();
    let mut mistakes = Vec::new();
    for (key, value) in table {
        let shown = value.to_string();
        let taken = match key.as_str() {
            "listen" => take(value, &mut raw.listen),
            "names" => take(value, &mut raw.names),
            "advertise" => take(value, &mut raw.advertise),
            "kek" => take(value, &mut raw.kek),
            "server_cn" => take(value, &mut raw.server_cn),
            "metrics" => take(value, &mut raw.metrics),
            "alerts" => match value {
                toml::Value::Table(table) => {
                    parse_alerts(table, &mut raw.alerts, &mut mistakes);
                    Ok(())
                }
                _ => Err("a table with webhook"),
            },
            "doors" => match value {
                toml::Value::Table(table) => {
                    parse_doors(table, &mut raw.doors, &mut mistakes);
                    Ok(())
                }
                _ => Err("a table with serve"),
            },
            "tls" => match value {
                toml::Value::Table(table) => {
                    own_certificate::parse(table, &mut raw.tls, &mut mistakes);
                    Ok(())
                }
                _ => Err("a table with server_cert and server_key"),
            },
            "endpoint_profile" => match value {
                toml::Value::Table(table) => {
                    raw.endpoint_profile = Some(endpoint_profile::parse(table, &mut mistakes));
                    Ok(())
                }
                _ => Err("a table with id, api_urls, terminal_url and hosts"),
            },
            "recovery" => match value {
                toml::Value::Table(table) => {
                    recovery::parse(table, &mut raw.recovery, &mut mistakes);
                    Ok(())
                }
                _ => Err("a table with id, url and ca_file"),
            },
            _ => Err(KEYS),
        };
        if let Err(expected) = taken {
            mistakes.push(mistake(&key, &shown, expected));
        }
    }
    Ok((raw, mistakes))
}

fn parse_alerts(table: toml::Table, raw: &mut RawAlerts, mistakes: &mut Vec<Mistake>) {
    for (key, value) in table {
        let shown = value.to_string();
        let taken = match key.as_str() {
            "webhook" => take(value, &mut raw.webhook),
            _ => Err("webhook"),
        };
        if let Err(expected) = taken {
            mistakes.push(mistake(&format!("alerts.{key}"), &shown, expected));
        }
    }
}

fn parse_doors(table: toml::Table, raw: &mut RawDoors, mistakes: &mut Vec<Mistake>) {
    for (key, value) in table {
        let shown = value.to_string();
        let taken = match key.as_str() {
            "serve" => {
                let mut serve = Vec::new();
                take(value, &mut serve).map(|()| raw.serve = Some(serve))
            }
            _ => Err("serve"),
        };
        if let Err(expected) = taken {
            mistakes.push(mistake(&format!("doors.{key}"), &shown, expected));
        }
    }
}

fn take<T: serde::de::DeserializeOwned + Expected>(
    value: toml::Value,
    into: &mut T,
) -> Result<(), &'static str> {
    *into = value.try_into().map_err(|_| T::EXPECTED)?;
    Ok(())
}

trait Expected {
    const EXPECTED: &'static str;
}

impl Expected for Vec<String> {
    const EXPECTED: &'static str = "a list of strings";
}

impl Expected for BTreeMap<String, String> {
    const EXPECTED: &'static str = "a table of names and their addresses";
}

impl Expected for Option<String> {
    const EXPECTED: &'static str = "a string";
}

fn line_of(text: &str, offset: usize) -> String {
    let line = text.bytes().take(offset).filter(|b| *b == b'\n').count() + 1;
    format!("enlist.toml line {line}")
}

fn mistake(key: &str, value: &str, expected: &str) -> Mistake {
    Mistake { key: key.to_owned(), value: value.to_owned(), expected: expected.to_owned() }
}

/// Turns raw values into usable ones, noting every mistake.
pub fn check(raw: &Raw, mistakes: &mut Vec<Mistake>) -> Option<Config> {
    let default = [DEFAULT_LISTEN.to_owned()];
    let listen_texts: &[String] = if raw.listen.is_empty() { &default } else { &raw.listen };
    let mut listen = Vec::new();
    for text in listen_texts {
        match text.parse() {
            Ok(address) => listen.push(address),
            Err(_) => {
                mistakes.push(mistake("listen", text, "ADDRESS:PORT, such as [::]:8443 or 127.0.0.1:0"))
            }
        }
    }
    for name in raw.names.iter().filter(|name| !is_host_name(name)) {
        mistakes.push(mistake("names", name, "a host name or an IP address"));
    }
    for url in raw.advertise.iter().filter(|url| client::url::ServerUrl::parse(url).is_err()) {
        mistakes.push(mistake("advertise", url, "an https:// URL with host and optional port"));
    }
    let metrics = raw.metrics.as_ref().and_then(|text| match text.parse() {
        Ok(address) => Some(address),
        Err(_) => {
            mistakes.push(mistake("metrics", text, "ADDRESS:PORT, such as 127.0.0.1:9464"));
            None
        }
    });
    let webhook = raw.alerts.webhook.as_ref().and_then(|url| {
        let webhook = Webhook::parse(url).ok();
        if webhook.is_none() {
            // The URL may hold a secret.
            let expected = "an http:// or https:// URL without user name";
            mistakes.push(mistake("alerts.webhook", "(not shown)", expected));
        }
        webhook
    });
    let doors = doors(raw.doors.serve.as_deref(), mistakes);
    let own_certificate = own_certificate::check(&raw.tls, mistakes);
    let endpoint_profile = raw.endpoint_profile.as_ref().map(|raw| endpoint_profile::check(raw, mistakes));
    let recovery = recovery::check(&raw.recovery, mistakes);
    let server_cn = raw.server_cn.clone().unwrap_or_else(|| DEFAULT_SERVER_CN.to_owned());
    if !(1..=64).contains(&server_cn.len()) || server_cn.chars().any(char::is_control) {
        mistakes.push(mistake("server_cn", &server_cn, "1 to 64 printable characters"));
    }
    let kek = match raw.kek.as_deref().map(KekSource::parse) {
        Some(Ok(source)) => Some(source),
        Some(Err(_)) => {
            mistakes.push(mistake("kek", raw.kek.as_deref().unwrap_or_default(), "file:PATH or env:NAME"));
            None
        }
        None => {
            mistakes.push(mistake("kek", "", "file:PATH or env:NAME: the CA key is never stored unsealed"));
            None
        }
    };
    Some(Config {
        listen,
        names: raw.names.clone(),
        advertise: raw.advertise.clone(),
        kek: kek?,
        server_cn,
        metrics,
        webhook,
        doors,
        own_certificate,
        endpoint_profile,
        recovery: recovery?,
    })
}

/// All of them unless the file says which.
fn doors(serve: Option<&[String]>, mistakes: &mut Vec<Mistake>) -> BTreeSet<Door> {
    let Some(names) = serve else { return Door::ALL.into() };
    let mut doors = BTreeSet::new();
    for name in names {
        match Door::parse(name) {
            Some(door) => drop(doors.insert(door)),
            None => {
                let words = Door::ALL.map(Door::as_str).join(", ");
                mistakes.push(mistake("doors.serve", name, &format!("a list of {words}")));
            }
        }
    }
    doors
}

fn is_host_name(name: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    // A name that ends in a number looks like an address that it is not.
    let numeric = |label: &str| label.bytes().all(|b| b.is_ascii_digit());
    let named =
        name.len() <= 253 && name.split('.').all(label) && !name.rsplit('.').next().is_some_and(numeric);
    name.parse::<std::net::IpAddr>().is_ok() || named
}

impl Config {
    /// The names a host may call the control plane by.
    pub fn certificate_names(&self) -> Vec<String> {
        let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
        let addresses = self.listen.iter().map(|address| address.ip()).filter(|ip| !ip.is_unspecified());
        names.extend(addresses.map(|ip| ip.to_string()));
        names.extend(self.names.iter().cloned());
        let mut seen = BTreeSet::new();
        names.retain(|name| seen.insert(name.clone()));
        names
    }

    /// Where nodes are told to go: as configured, else the first name, else the listen address.
    pub fn advertised(&self, bound: SocketAddr) -> Vec<String> {
        if !self.advertise.is_empty() {
            return self.advertise.iter().map(|url| url.trim_end_matches('/').to_owned()).collect();
        }
        let host = match self.names.first() {
            Some(name) if name.contains(':') => format!("[{name}]"),
            Some(name) => name.clone(),
            None if bound.ip().is_unspecified() => "localhost".to_owned(),
            None if bound.is_ipv6() => format!("[{}]", bound.ip()),
            None => bound.ip().to_string(),
        };
        vec![format!("https://{host}:{}", bound.port())]
    }

    /// The URL before anything listens; none while the port is still to be chosen.
    pub fn server_url(&self) -> Option<String> {
        let first = self.listen.first()?;
        let known = !self.advertise.is_empty() || first.port() != 0;
        known.then(|| self.advertised(*first).into_iter().next()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes_of(text: &str) -> Vec<String> {
        let Ok((raw, mut mistakes)) = parse(text) else { return vec!["toml".to_owned()] };
        check(&raw, &mut mistakes);
        mistakes.into_iter().map(|mistake| mistake.key).collect()
    }

    #[test]
    fn every_mistake_is_reported_at_once() {
        let text = "listen = [\"nowhere\"]\nkek = \"floppy:A\"\nadvertise = [\"http://plain\"]\ncolour = 1\n";
        let mut keys = mistakes_of(text);
        keys.sort();
        assert_eq!(keys, ["advertise", "colour", "kek", "listen"]);
    }

    #[test]
    fn a_wrong_type_is_a_mistake_of_its_key() {
        assert_eq!(mistakes_of("listen = 8443\nkek = \"env:KEK\"\n"), ["listen"]);
    }

    #[test]
    fn a_name_that_no_host_could_call_is_a_mistake() {
        assert_eq!(
            mistakes_of("kek = \"env:KEK\"\nnames = [\"1.2.3\", \"a b\", \"n1.example\"]\n"),
            ["names", "names"]
        );
    }

    #[test]
    fn alerts_go_to_a_url_and_to_nothing_else() {
        let with = |alerts: &str| mistakes_of(&format!("kek = \"env:KEK\"\n{alerts}\n"));
        assert!(with("[alerts]").is_empty());
        assert!(with("[alerts]\nwebhook = \"http://127.0.0.1:9000/in\"").is_empty());
        assert_eq!(
            with("[alerts]\nwebhook = \"mailto:a@b\"\ncolour = 1"),
            ["alerts.colour", "alerts.webhook"]
        );
        assert_eq!(with("[alerts]\nwebhook = 3"), ["alerts.webhook"]);
        assert_eq!(with("alerts = \"http://a\""), ["alerts"]);
    }

    #[test]
    fn all_doors_are_open_unless_some_are_named() {
        let with = |doors: &str| {
            let (raw, _) = parse(&format!("kek = \"env:KEK\"\n{doors}\n")).ok()?;
            Some(check(&raw, &mut Vec::new())?.doors)
        };
        assert_eq!(with(""), Some(Door::ALL.into()));
        assert_eq!(with("[doors]\nserve = [\"plfm\"]"), Some([Door::Plfm].into()));
        assert_eq!(with("[doors]\nserve = []"), Some([].into()));
        assert_eq!(
            mistakes_of("kek = \"env:K\"\n[doors]\nserve = [\"back\"]\nshut = 1"),
            ["doors.shut", "doors.serve"]
        );
    }

    #[test]
    fn a_server_certificate_is_brought_along_with_its_key_or_not_at_all() {
        let with = |tls: &str| mistakes_of(&format!("kek = \"env:KEK\"\n[tls]\n{tls}\n"));
        assert!(with("").is_empty());
        assert!(with("server_cert = \"/a/s.crt\"\nserver_key = \"/a/s.key\"").is_empty());
        assert_eq!(with("server_cert = \"/a/s.crt\""), ["tls.server_key"]);
        assert_eq!(with("server_cert = \"s.crt\"\nserver_key = \"/a/s.key\""), ["tls.server_cert"]);
        assert_eq!(with("colour = 1"), ["tls.colour"]);
    }

    #[test]
    fn an_endpoint_profile_is_whole_or_every_mistake_in_it_is_told() {
        let with =
            |profile: &str| mistakes_of(&format!("kek = \"env:KEK\"\n[endpoint_profile]\n{profile}\n"));
        let good = "id = \"east\"\napi_urls = [\"https://a.example:8443/\"]\nterminal_url = \"https://t.example\"\n\
                    hosts = { \"a.example\" = \"192.0.2.7\", \"t.example\" = \"2001:db8::7\" }";
        assert!(with(good).is_empty(), "{:?}", with(good));
        assert_eq!(with(""), ["endpoint_profile.id", "endpoint_profile.api_urls"]);
        let bad = "id = \"two words\"\napi_urls = [\"http://a.example\"]\nterminal_url = \"t\"\ncolour = 1\n\
                   hosts = { \"a b\" = \"192.0.2.7\", \"192.0.2.8\" = \"::1\", \"c.example\" = \"d.example\" }";
        let keys = with(bad).into_iter().map(|key| key.replace("endpoint_profile.", "")).collect::<Vec<_>>();
        assert_eq!(keys, ["colour", "id", "api_urls", "terminal_url", "hosts", "hosts", "hosts.c.example"]);
        let many = |count: usize| {
            let urls = vec!["\"https://a.example\""; count].join(",");
            let hosts = (0..count).map(|n| format!("h{n} = \"192.0.2.1\"")).collect::<Vec<_>>().join(",");
            with(&format!("id = \"x\"\napi_urls = [{urls}]\nhosts = {{ {hosts} }}"))
        };
        assert!(many(32).is_empty());
        assert_eq!(many(33), ["endpoint_profile.api_urls", "endpoint_profile.hosts"]);
        assert_eq!(with("hosts = 3").first().map(String::as_str), Some("endpoint_profile.hosts"));
    }

    #[test]
    fn a_recovery_profile_has_a_name_an_https_url_and_certificates() {
        let with = |recovery: &str| mistakes_of(&format!("kek = \"env:KEK\"\n[recovery]\n{recovery}\n"));
        assert!(with("").is_empty());
        assert!(with("id = \"site-a\"\nurl = \"https://recovery.example:8443\"").is_empty());
        assert_eq!(with("id = \"\"\nurl = \"http://plain\""), ["recovery.id", "recovery.url"]);
        for file in ["relative.pem", "/no/such/file.pem", "/etc/passwd"] {
            assert_eq!(with(&format!("ca_file = \"{file}\"")), ["recovery.ca_file"], "{file}");
        }
        assert_eq!(with("colour = 1"), ["recovery.colour"]);
        assert_eq!(mistakes_of("kek = \"env:KEK\"\nrecovery = 1\n"), ["recovery"]);
    }

    #[test]
    fn a_good_configuration_has_no_mistakes() {
        assert!(
            mistakes_of("listen = [\"127.0.0.1:0\"]\nkek = \"env:KEK\"\nnames = [\"a.example\", \"::1\"]\n")
                .is_empty()
        );
    }

    #[test]
    fn nodes_are_sent_to_a_name_before_an_address() {
        let raw =
            Raw { kek: Some("env:K".to_owned()), listen: vec!["[::]:8443".to_owned()], ..Raw::default() };
        let Some(mut config) = check(&raw, &mut Vec::new()) else { panic!("good configuration") };
        assert_eq!(config.server_url().as_deref(), Some("https://localhost:8443"));
        config.names = vec!["cp.example".to_owned()];
        assert_eq!(config.server_url().as_deref(), Some("https://cp.example:8443"));
        config.advertise = vec!["https://lb.example/".to_owned()];
        assert_eq!(config.server_url().as_deref(), Some("https://lb.example"));
    }
}
