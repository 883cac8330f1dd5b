//! The table of agent.toml's keys. Each is also the variable `ENLIST_AGENT_<KEY>`.

use super::kind::Kind;
use super::upkeep::DIAGNOSTICS_LEAST;
use crate::layout::Layout;

pub struct Key {
    /// As written in agent.toml; a dot is a table.
    pub name: &'static str,
    pub kind: Kind,
}

impl Key {
    pub fn of(name: &str) -> Option<&'static Key> {
        KEYS.iter().find(|key| key.name == name)
    }

    /// The variable that says the same.
    pub fn variable(&self) -> String {
        format!("ENLIST_AGENT_{}", self.name.replace('.', "_").to_ascii_uppercase())
    }
}

const fn key(name: &'static str, kind: Kind) -> Key {
    Key { name, kind }
}

pub const SERVER: &str = "server";
pub const CA_FILE: &str = "ca_file";
pub const CA_PIN: &str = "ca_pin";
pub const SYSTEM_ROOTS: &str = "system_roots";
pub const TOKEN_FILE: &str = "token_file";
pub const STORAGE: &str = "storage";
pub const LAYOUT: &str = "layout";
pub const FILES_CERT: &str = "files.cert";
pub const FILES_KEY: &str = "files.key";
pub const FILES_CA: &str = "files.ca";
pub const FILES_NODE_CA: &str = "files.node_ca";
pub const UNDERLAY: &str = "underlay";
pub const RECOVERY_URL: &str = "recovery_url";
pub const RECOVERY_CA_FILE: &str = "recovery_ca_file";
pub const RECOVERY_SAME_AS_RUNTIME: &str = "recovery_same_as_runtime";
pub const TERMINAL_URL: &str = "terminal_url";
pub const BALLAST_BYTES: &str = "ballast_bytes";
pub const DIAGNOSTIC_PATH: &str = "diagnostic_path";
pub const DIAGNOSTIC_BYTES: &str = "diagnostic_bytes";
pub const PATHS_TASK_RETRY: &str = "paths.task_retry";
pub const PATHS_RUNTIME: &str = "paths.runtime";
pub const CHECK_INTERVAL: &str = "check_interval";
pub const HOSTS_FILE: &str = "hosts_file";
pub const HOSTS: &str = "hosts";
pub const EXIT_ON_REVOKED: &str = "exit_on_revoked";
pub const METRICS_LISTEN: &str = "metrics_listen";
pub const METRICS_TEXTFILE: &str = "metrics_textfile";
pub const METRICS_PREFIX: &str = "metrics_prefix";
pub const ON_RENEW: &str = "on_renew";

/// Every key there is, those of the daemon included: one file serves all commands, and a misspelt key must
/// not wait for the daemon to be noticed.
pub const KEYS: &[Key] = &[
    key(SERVER, Kind::List),
    key(CA_FILE, Kind::Text),
    key(CA_PIN, Kind::Pin),
    key(SYSTEM_ROOTS, Kind::Flag),
    key(TOKEN_FILE, Kind::Text),
    key(STORAGE, Kind::Choice(&["disk", "memory"])),
    key(LAYOUT, Kind::Choice(Layout::NAMES)),
    key(FILES_CERT, Kind::Text),
    key(FILES_KEY, Kind::Text),
    key(FILES_CA, Kind::Text),
    key(FILES_NODE_CA, Kind::Text),
    key(UNDERLAY, Kind::Underlay),
    key("sysfs_root", Kind::Text),
    key(RECOVERY_URL, Kind::Server),
    key(RECOVERY_CA_FILE, Kind::Text),
    key(RECOVERY_SAME_AS_RUNTIME, Kind::Flag),
    key(TERMINAL_URL, Kind::Stream),
    key(BALLAST_BYTES, Kind::Bytes(0)),
    key(DIAGNOSTIC_PATH, Kind::Text),
    key(DIAGNOSTIC_BYTES, Kind::Bytes(DIAGNOSTICS_LEAST)),
    key(PATHS_TASK_RETRY, Kind::Text),
    key(PATHS_RUNTIME, Kind::Text),
    key("overlay.backend", Kind::Choice(&["auto", "userspace", "kernel", "off"])),
    key("overlay.interface", Kind::Text),
    key("proxy", Kind::Text),
    key(CHECK_INTERVAL, Kind::Interval),
    key(EXIT_ON_REVOKED, Kind::Flag),
    key(METRICS_LISTEN, Kind::Loopback),
    key(METRICS_TEXTFILE, Kind::Text),
    key(METRICS_PREFIX, Kind::Prefix),
    key(ON_RENEW, Kind::Command),
    key(HOSTS_FILE, Kind::Text),
    key(HOSTS, Kind::Hosts),
];
