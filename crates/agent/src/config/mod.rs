//! Settings: flags before environment before agent.toml, all read and checked before anything is done. A key is declared
//! once, in `keys.rs`; file, environment, defaults and reference page follow from the declaration.

mod cascade;
mod daemon;
pub mod edit;
mod environment;
pub mod file;
pub mod hosts;
pub mod keys;
pub mod kind;
mod layers;
mod overlay;
mod servers;
mod storage;
pub mod taskrun;
mod trust;
mod underlay;
mod upkeep;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toml::Value;

pub use daemon::DaemonConfig;
pub use environment::{Environment, TOKENS};
pub use overlay::OverlaySettings;
pub use storage::KeyStorage;
pub use trust::TrustChoice;
pub use underlay::UnderlayAddresses;
pub use upkeep::{RecoveryConfig, Upkeep, WorkPaths};

use crate::bootstrap;
use crate::compat::Persona;
use crate::fault::{Fault, Mistake};
use crate::layout::{Files, Layout};
use crate::spire::SpireConfig;
use crate::token::SecretToken;
use layers::{Layer, Layers};
use lifecycle::names::TenantId;

/// Checked values by key.
pub type Values = BTreeMap<&'static str, Value>;

/// What the commands need to know, as far as it was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentConfig {
    pub servers: Vec<String>,
    pub trust: Option<TrustChoice>,
    /// One that was written into another program's configuration.
    pub token: Option<SecretToken>,
    pub token_file: Option<PathBuf>,
    /// The tenant that this host is of, if that was said: it takes no identity of another.
    pub tenant: Option<TenantId>,
    /// Where the identity is wanted beside its own place.
    pub files: Files,
    pub overlay: OverlaySettings,
    /// That of command line or environment, as it was written: agent.toml will say it too.
    pub underlay_given: Option<Vec<String>>,
    pub storage: KeyStorage,
    /// Where the daemon answers `status`, if that was said.
    pub socket: Option<PathBuf>,
    /// Whether it was said where records of failures go.
    diagnostic_path_given: bool,
    /// Where this machine's hardware identity is read, if it may be let in by that.
    pub sysfs_root: Option<PathBuf>,
    /// Keys that were set and have no effect, each with the reason.
    pub without_effect: Vec<(&'static str, &'static str)>,
    /// Where SPIRE is asked for an SVID, if it is.
    pub spire: Option<SpireConfig>,
    /// Where the bootstrap identity is, if there is one.
    pub bootstrap_dir: Option<PathBuf>,
    pub daemon: DaemonConfig,
    pub recovery: RecoveryConfig,
    pub upkeep: Upkeep,
}

/// Reads all three layers; `flags` holds what the command line said, under the names of the keys.
pub fn load(dir: &Path, flags: Values, environment: &Environment) -> Result<AgentConfig, Fault> {
    let mut mistakes = Vec::new();
    let here = std::env::current_dir().unwrap_or_default();
    for (name, value) in &flags {
        let complaint = keys::SettingKey::of(name).and_then(|key| key.kind.complaint(value));
        mistakes.extend(complaint.map(|complaint| Mistake::new(*name, complaint)));
    }
    let said = [
        Layer { values: flags, base: &here, name: "the command line" },
        Layer { values: environment.values(&mut mistakes), base: &here, name: "the environment" },
        Layer { values: file::read(dir, &mut mistakes)?, base: dir, name: file::NAME },
    ];
    let given = |key| said.iter().take(2).find_map(|layer: &Layer<'_>| layer.list(key));
    let underlay_given = given(keys::UNDERLAY).or_else(|| given(keys::OVERLAY_ENDPOINT));
    let diagnostic_path_given = said.iter().any(|layer| layer.values.contains_key(keys::DIAGNOSTIC_PATH));
    let layout = said.iter().find_map(|layer| layer.text(keys::LAYOUT)).and_then(Layout::parse);
    let usual = usual(dir, layout, environment.persona());
    let usual = Layer { values: usual, base: dir, name: "the program's name" };
    let layers = Layers::above_defaults(dir, said.into_iter().chain([usual]).collect());
    let bootstrap_dir = layers.path(keys::BOOTSTRAP_DIR);
    // What came with the image recognises the control plane, unless something else is named.
    let beside = || bootstrap_dir.as_deref().and_then(bootstrap::ca_file).map(TrustChoice::CaFile);
    let trust = trust::choose(&layers, &mut mistakes).or_else(beside);
    let spire = cascade::spire(&layers, &mut mistakes);
    servers::check(&layers, &mut mistakes);
    let storage = storage::choose(&layers, &mut mistakes);
    let overlay = overlay::overlay(&layers, &mut mistakes);
    if !mistakes.is_empty() {
        return Err(Fault::config(mistakes));
    }
    let given = match &trust {
        Some(TrustChoice::CaFile(path)) => Some(path.clone()),
        _ => None,
    };
    let files = Files { given, ..files(&layers) }.settled(dir);
    Ok(AgentConfig {
        servers: layers.list(keys::SERVER).unwrap_or_default(),
        trust,
        token: None,
        token_file: layers.path(keys::TOKEN_FILE),
        tenant: layers.text(keys::TENANT).and_then(|name| TenantId::parse(name).ok()),
        files,
        underlay_given,
        sysfs_root: layers.path(keys::SYSFS_ROOT).filter(|_| layers.text(keys::ATTESTOR) == Some("hardware")),
        without_effect: without_effect(&layers),
        storage,
        overlay,
        socket: layers.path(keys::SOCKET),
        diagnostic_path_given,
        spire,
        bootstrap_dir,
        daemon: daemon::daemon(&layers),
        recovery: upkeep::recovery(&layers),
        upkeep: upkeep::upkeep(&layers),
    })
}

fn without_effect(layers: &Layers<'_>) -> Vec<(&'static str, &'static str)> {
    let reserved = keys::KEYS.iter().filter_map(|key| Some((key.name, key.reserved?)));
    reserved.filter(|(name, _)| layers.value(name).is_some()).collect()
}

impl AgentConfig {
    /// Whether no other place was named for records of failures.
    pub fn has_diagnostics_beside_identity(&self) -> bool {
        !self.diagnostic_path_given
    }

    /// What the daemon obtains its first identity by without a token or hardware, if the settings name it.
    pub fn obtains_by(&self) -> Option<&'static str> {
        match (&self.spire, &self.bootstrap_dir) {
            (Some(_), _) => {
                Some("start `enlist-agent run`: it obtains an identity by the SVID that SPIRE gives")
            }
            (None, Some(_)) => Some(
                "start `enlist-agent run`: with the bootstrap identity it reads the default configuration, and it enrolls with a token or by hardware",
            ),
            (None, None) => None,
        }
    }

    /// What the agent keeps lies there, and not in its directory: so do records of failures, unless a place for them was named.
    pub fn keep_in(&mut self, store: &Path) {
        if self.has_diagnostics_beside_identity() {
            self.upkeep.diagnostic_path = store.join("diagnostics");
        }
    }

    /// Nobody should rely on a setting that does nothing; a host that has one starts all the same.
    pub fn warn_of_settings_without_effect(&self) {
        for (key, why) in &self.without_effect {
            tracing::warn!(key, "the setting `{key}` has no effect: {why}");
        }
    }
}

/// What follows from the layout, and from the name that the program was called by, where nothing else is said.
fn usual(dir: &Path, layout: Option<Layout>, persona: Persona) -> Values {
    let text = |text: &str| Value::String(text.to_owned());
    let mut values = Values::new();
    values.extend(persona.layout().map(|layout| (keys::LAYOUT, text(layout.name()))));
    let prefix = layout.or(persona.layout()).and_then(Layout::metrics_prefix);
    values.extend(prefix.map(|prefix| (keys::METRICS_PREFIX, text(prefix))));
    let token_file = persona.token_file().filter(|name| dir.join(name).exists());
    values.extend(token_file.map(|name| (keys::TOKEN_FILE, text(name))));
    values.extend(persona.system_roots().then_some((keys::SYSTEM_ROOTS, Value::Boolean(true))));
    values
}

fn files(layers: &Layers<'_>) -> Files {
    Files {
        layout: layers.text(keys::LAYOUT).and_then(Layout::parse),
        cert: layers.path(keys::FILES_CERT),
        key: layers.path(keys::FILES_KEY),
        ca: layers.path(keys::FILES_CA),
        node_issuers: [keys::FILES_NODE_ISSUERS, keys::FILES_NODE_CA]
            .iter()
            .filter_map(|key| layers.path(key))
            .collect(),
        given: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::{Columns, HumanText as _};

    fn check(
        file: &str,
        variables: &[(&str, &str)],
        flags: &[(&'static str, &str)],
    ) -> Result<AgentConfig, Fault> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(file::NAME), file).unwrap();
        let flags = flags.iter().map(|(key, value)| (*key, Value::String((*value).to_owned()))).collect();
        let mut config = load(dir.path(), flags, &Environment::of(variables.iter().copied()))?;
        if let Some(TrustChoice::CaFile(path)) = &mut config.trust {
            *path = path.strip_prefix(dir.path()).unwrap_or(path).to_owned();
        }
        Ok(config)
    }

    #[test]
    fn a_flag_wins_over_the_environment_and_that_over_the_file() {
        let file = "server = 'https://file'\nca_file = 'file.pem'\n";
        let variables = [("ENLIST_AGENT_SERVER", "https://env"), ("ENLIST_AGENT_CA_FILE", "/env.pem")];
        let flags = [(keys::SERVER, "https://flag"), (keys::CA_FILE, "/flag.pem")];
        for (config, server, ca_file) in [
            (check(file, &variables, &flags).unwrap(), "https://flag", "/flag.pem"),
            (check(file, &variables, &[]).unwrap(), "https://env", "/env.pem"),
            (check(file, &[], &[]).unwrap(), "https://file", "file.pem"),
        ] {
            assert_eq!(config.servers, [server]);
            assert_eq!(config.trust, Some(TrustChoice::CaFile(ca_file.into())));
        }
    }

    #[test]
    fn wrong_servers_are_named_together_with_the_rest() {
        let at = |file: &str| -> Vec<String> {
            let fault = check(file, &[], &[]).unwrap_err();
            fault.mistakes.iter().map(|mistake| mistake.at.clone()).collect()
        };
        let file = "server = ['nonsense', 'http://plain', 'https://good']\non_renew = 'reload nginx'\n";
        assert_eq!(at(file), ["agent.toml on_renew", "agent.toml server", "agent.toml server"]);
        assert!(check("server = 'http://plain'\n", &[], &[]).is_ok(), "it has a fault of its own, later");
        assert!(check("on_renew = ['reload', 'nginx']\n", &[], &[]).is_ok());
    }

    #[test]
    fn trust_of_one_layer_replaces_that_of_the_next_whatever_its_kind() {
        let pin = "ab".repeat(32);
        let config = check("ca_file = '/file.pem'\n", &[("ENLIST_AGENT_CA_PIN", &pin)], &[]).unwrap();
        assert_eq!(config.trust, Some(TrustChoice::Pin(pki::pin::Pin::parse(&pin).unwrap())));
        let both = [("ENLIST_AGENT_CA_PIN", pin.as_str()), ("ENLIST_AGENT_SYSTEM_ROOTS", "true")];
        assert_eq!(check("", &both, &[]).unwrap_err().code.as_str(), "config_invalid");
        assert_eq!(check("", &[("ENLIST_AGENT_SYSTEM_ROOTS", "false")], &[]).unwrap().trust, None);
    }

    #[test]
    fn no_to_the_systems_roots_holds_for_every_layer_below() {
        let no = [("ENLIST_AGENT_SYSTEM_ROOTS", "false")];
        assert_eq!(check("system_roots = true\n", &no, &[]).unwrap().trust, None);
        let named = check("ca_file = '/file.pem'\n", &no, &[]).unwrap().trust;
        assert_eq!(named, Some(TrustChoice::CaFile("/file.pem".into())), "something else may be named");
        let dir = tempfile::tempdir().unwrap();
        let called = |file: &str| {
            std::fs::write(dir.path().join(file::NAME), file).unwrap();
            let environment = Environment::default().called(Persona::Probectl);
            load(dir.path(), Values::new(), &environment).unwrap().trust
        };
        assert_eq!(called(""), Some(TrustChoice::SystemRoots), "what the name alone gives");
        assert_eq!(called("system_roots = false\n"), None);
    }

    #[test]
    fn what_004_calls_by_its_own_names_is_understood() {
        let variables = [
            ("GPUAAS_RECOVERY_API_URL", "https://rescue:1"),
            ("GPUAAS_RECOVERY_CA_BUNDLE_PATH", "/rescue.pem"),
            ("GPUAAS_TERMINAL_API_URL", "wss://terminal/v1"),
            ("GPUAAS_NODE_CERT_CA_BUNDLE_PATH", "/node-ca.pem"),
            ("GPUAAS_DIAGNOSTIC_PATH", "/var/tmp/d"),
            ("ENLIST_AGENT_LAYOUT", "gpuaas"),
            ("ENLIST_AGENT_HOSTS", "cp.example=10.0.0.1"),
        ];
        let config =
            check("diagnostic_bytes = 4096\n[paths]\nruntime = '/run/x'\n", &variables, &[]).unwrap();
        assert_eq!(config.recovery.url.as_deref(), Some("https://rescue:1"));
        assert_eq!(config.recovery.ca_file.as_deref(), Some(Path::new("/rescue.pem")));
        assert_eq!(config.files.node_issuers, [Path::new("/node-ca.pem")]);
        assert_eq!(config.daemon.metrics_prefix, "gpuaas_node_agent_");
        let upkeep = config.upkeep;
        assert_eq!(upkeep.diagnostic_path, Path::new("/var/tmp/d"));
        assert_eq!((upkeep.diagnostic_bytes, upkeep.ballast_bytes), (4096, 1024 * 1024));
        assert_eq!(upkeep.paths, WorkPaths { task_retry: None, runtime: Some("/run/x".into()) });
        assert_eq!(upkeep.hosts.get("cp.example"), Some(&"10.0.0.1".parse().unwrap()));
        assert_eq!(upkeep.terminal_url.as_deref(), Some("wss://terminal/v1"));
        assert_eq!(upkeep.hosts_file, Path::new("/etc/hosts"));
        assert_eq!(
            check("recovery_url = 'http://plain'\n", &[], &[]).unwrap_err().code.as_str(),
            "config_invalid"
        );
    }

    #[test]
    fn the_endpoint_of_the_overlay_is_the_underlay() {
        let config = |file: &str| check(file, &[], &[]).map(|config| config.overlay);
        let one = config("underlay = '192.0.2.1'\n[overlay]\nport = 7\n").unwrap();
        assert_eq!(one.endpoint, UnderlayAddresses::parse(["192.0.2.1:7"]));
        assert_eq!(config("[overlay]\nendpoint = '192.0.2.1:7'\n").unwrap().endpoint, one.endpoint);
        let both = "underlay = '192.0.2.1'\n[overlay]\nendpoint = ";
        assert!(config(&format!("{both}'192.0.2.1:51820'\n")).is_ok());
        let fault = config(&format!("{both}'192.0.2.2'\n")).unwrap_err();
        assert_eq!(fault.mistakes.first().map(|mistake| mistake.at.as_str()), Some("overlay.endpoint"));
    }

    #[test]
    fn who_joins_the_overlay_without_being_asked() {
        let joins = |file: &str| check(file, &[], &[]).unwrap().overlay.joins();
        assert!(!joins(""));
        assert!(joins("layout = 'plfm'\n") && joins("[overlay]\nenable = true\n"));
        assert!(joins("[overlay]\nbackend = 'userspace'\n"));
        assert!(!joins("layout = 'plfm'\n[overlay]\nbackend = 'off'\nenable = true\n"));
    }

    #[test]
    fn mistakes_of_file_and_environment_are_told_together() {
        let fault = check("colour = 'red'\n", &[("ENLIST_AGENT_BALLAST_BYTES", "many")], &[]).unwrap_err();
        let at: Vec<&str> = fault.mistakes.iter().map(|mistake| mistake.at.as_str()).collect();
        assert_eq!(at, ["ENLIST_AGENT_BALLAST_BYTES", "agent.toml colour"]);
        let text = fault.text(Columns::PIPE);
        assert!(text.contains("agent.toml colour: unknown key"), "{text}");
    }
}
