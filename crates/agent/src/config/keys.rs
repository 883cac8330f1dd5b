//! Every key of agent.toml. To add one, add its line here and use its value. Each is also the variable
//! `ENLIST_AGENT_<KEY>`.

use toml::Value;

use super::Values;
use super::kind::ValueKind;
use crate::layout::Layout;
use crate::overlay::Backend;

/// A key as declared: all that file, environment, edit and reference page know of it.
pub struct SettingKey {
    /// As written in agent.toml; a dot is a table.
    pub name: &'static str,
    pub kind: ValueKind,
    help: &'static str,
    /// As it would be written in the variable. A path is relative to the agent's directory.
    default: Option<&'static str>,
    /// The variable by which another system means the same. Ours wins.
    pub foreign_variable: Option<&'static str>,
    /// The key by which the TaskRun worker's file means the same, in its table `[tls]`.
    pub worker_key: Option<&'static str>,
    /// Why the key is accepted and has no effect. It is said at every start.
    pub reserved: Option<&'static str>,
}

impl SettingKey {
    const fn new(name: &'static str, kind: ValueKind, help: &'static str) -> Self {
        Self { name, kind, help, default: None, foreign_variable: None, worker_key: None, reserved: None }
    }

    const fn default(self, text: &'static str) -> Self {
        Self { default: Some(text), ..self }
    }

    const fn foreign_variable(self, name: &'static str) -> Self {
        Self { foreign_variable: Some(name), ..self }
    }

    const fn worker_key(self, name: &'static str) -> Self {
        Self { worker_key: Some(name), ..self }
    }

    const fn reserved(self, why: &'static str) -> Self {
        Self { reserved: Some(why), ..self }
    }

    pub fn of(name: &str) -> Option<&'static SettingKey> {
        KEYS.iter().find(|key| key.name == name)
    }

    /// The variable that says the same.
    pub fn variable(&self) -> String {
        format!("ENLIST_AGENT_{}", self.name.replace('.', "_").to_ascii_uppercase())
    }

    pub fn help(&self) -> &'static str {
        self.help.trim_start()
    }

    pub fn default_text(&self) -> Option<&'static str> {
        self.default
    }

    fn default_value(&self) -> Option<(&'static str, Value)> {
        self.default.map(|text| (self.name, self.kind.value_of(text)))
    }
}

/// What holds where nothing else is said.
pub(super) fn defaults() -> Values {
    KEYS.iter().filter_map(SettingKey::default_value).collect()
}

/// Declares keys. A line is `/// HELP`, then `"KEY" CONSTANT KIND, ATTRIBUTE(VALUE) ...;` and makes the constant by which the
/// code asks for the value, and the entry in `KEYS`. A key that nothing asks for yet has `_` instead of a constant, and
/// says why under `reserved`.
macro_rules! setting_keys {
    ($($(#[doc = $help:literal])+ $name:literal $constant:tt $kind:expr $(, $attribute:ident($value:literal))*;)*) => {
        $(pub const $constant: &str = $name;)*

        /// Every key there is, those of the daemon included: one file serves all commands, and a misspelt key must
        /// not wait for the daemon to be noticed.
        pub const KEYS: &[SettingKey] =
            &[$(SettingKey::new($name, $kind, concat!($($help),+))$(.$attribute($value))*,)*];
    };
}

setting_keys! {
    /// URLs of the control plane, `https://HOST` or `https://HOST:PORT`, tried in order; those that the control plane announces are added
    "server" SERVER ValueKind::List, foreign_variable("GPUAAS_API_URL");
    /// CA by which the control plane is verified when enrolling; afterwards `identity/current/bundle.pem` is used
    "ca_file" CA_FILE ValueKind::Path, foreign_variable("GPUAAS_CA_BUNDLE_PATH"), worker_key("ca_cert");
    /// Fingerprint of the CA, instead of `ca_file`
    "ca_pin" CA_PIN ValueKind::Pin;
    /// Verify by the system's trusted certificates, instead of `ca_file`. `false` overrides a lower source, or the name
    /// `probectl-agent`, that would allow them
    "system_roots" SYSTEM_ROOTS ValueKind::Flag;
    /// A file with the token, for a directory without an identity; refused while others may read it
    "token_file" TOKEN_FILE ValueKind::Path;
    /// Where identity, tokens and configuration are kept; see "Storage in memory"
    "storage" STORAGE ValueKind::Choice(&["disk", "memory"]), default("disk");
    /// The socket by which `status` and `doctor` ask the daemon; `agent.sock` in the agent's directory unless set. See "Storage in memory" for a
    /// directory that cannot be written
    "socket" SOCKET ValueKind::Path;
    /// Preset of the paths where links to the identity are created; see below
    "layout" LAYOUT ValueKind::Choice(Layout::NAMES);
    /// Path of a link to the certificate
    "files.cert" FILES_CERT ValueKind::Path, foreign_variable("GPUAAS_CERT_PATH"), worker_key("worker_cert");
    /// Path of a link to the key
    "files.key" FILES_KEY ValueKind::Path, foreign_variable("GPUAAS_KEY_PATH"), worker_key("worker_key");
    /// Path of a link to the CA
    "files.ca" FILES_CA ValueKind::Path, worker_key("ca_cert");
    /// Path of a link to the issuers of nodes and the roots, for programs that verify certificates of nodes, this host's own
    /// among them
    "files.node_issuers" FILES_NODE_ISSUERS ValueKind::Path, foreign_variable("GPUAAS_NODE_CERT_CA_BUNDLE_PATH");
    /// The older name of `files.node_issuers`; both may be set, to two paths
    "files.node_ca" FILES_NODE_CA ValueKind::Path;
    /// Where other hosts reach this host's WireGuard: IPv4, IPv6 or both, with or without a port (`overlay.port`). Without it: the
    /// addresses of the interface by which this host reaches the control plane, one of each family
    "underlay" UNDERLAY ValueKind::Underlay;
    /// By what this host is let in where it has no identity: a token, or, where there is none, its hardware identity; see
    /// "Diskless hosts"
    "attestor" ATTESTOR ValueKind::Choice(&["token", "hardware"]), default("token");
    /// The tenant that this host is of: an identity of another one is refused, and nothing of it is stored
    "tenant" TENANT ValueKind::Tenant;
    /// Where the hardware identity is read
    "sysfs_root" SYSFS_ROOT ValueKind::Path, default("/sys");
    /// Recovery endpoint; overrides what the control plane announced
    "recovery_url" RECOVERY_URL ValueKind::Server, foreign_variable("GPUAAS_RECOVERY_API_URL");
    /// CA by which the recovery endpoint is verified
    "recovery_ca_file" RECOVERY_CA_FILE ValueKind::Path, foreign_variable("GPUAAS_RECOVERY_CA_BUNDLE_PATH");
    /// Without a recovery endpoint, recover at the addresses in `server`
    "recovery_same_as_runtime" RECOVERY_SAME_AS_RUNTIME ValueKind::Flag, default("false");
    /// Address for terminal sessions; overrides the endpoint profile
    "terminal_url" TERMINAL_URL ValueKind::Stream, foreign_variable("GPUAAS_TERMINAL_API_URL");
    /// Size of the file that reserves disk space; 0 for none. See "Disk space"
    "ballast_bytes" BALLAST_BYTES ValueKind::Bytes(0), default("1048576");
    /// Directory for records of failures; see "Diagnostics"
    "diagnostic_path" DIAGNOSTIC_PATH ValueKind::Path, default("diagnostics"), foreign_variable("GPUAAS_DIAGNOSTIC_PATH");
    /// The most that all records of failures may take
    "diagnostic_bytes" DIAGNOSTIC_BYTES ValueKind::Bytes(4096), default("262144");
    /// Directory of this host's workload; created if missing, its free space is watched, and some of it reserved: see "Disk space"
    "paths.task_retry" PATHS_TASK_RETRY ValueKind::Path;
    /// Directory of this host's workload; created if missing, its free space is watched, and some of it reserved: see "Disk space"
    "paths.runtime" PATHS_RUNTIME ValueKind::Path;
    /// Join the overlay also where the domain has none for this node; see "Overlay"
    "overlay.enable" OVERLAY_ENABLE ValueKind::Flag, default("false");
    /// Who runs WireGuard: the agent itself (`userspace`), the kernel, or the kernel if it can (`auto`). `off` sets up no interface;
    /// `userspace` and `kernel` join the overlay also where the domain has none for this node
    "overlay.backend" OVERLAY_BACKEND ValueKind::Choice(Backend::NAMES), default("auto");
    /// Name of the WireGuard interface
    "overlay.interface" OVERLAY_INTERFACE ValueKind::Interface, default("wg0");
    /// UDP port on which WireGuard listens
    "overlay.port" OVERLAY_PORT ValueKind::Port, default("51820");
    /// MTU of the WireGuard interface, where the network between hosts carries less or more than usual packets; without it the one that
    /// the control plane names (1420)
    "overlay.mtu" OVERLAY_MTU ValueKind::Mtu;
    /// The same as `underlay`
    "overlay.endpoint" OVERLAY_ENDPOINT ValueKind::Underlay;
    /// Reserved; without effect, which is said at every start
    "proxy" _ ValueKind::Text, reserved("this version connects to the control plane directly");
    /// The socket of SPIFFE's Workload API, `unix:///PATH` or `/PATH`: while SPIRE gives an SVID there, this host connects by that; see
    /// "SPIRE"
    "spire.socket" SPIRE_SOCKET ValueKind::Text, foreign_variable("SPIFFE_ENDPOINT_SOCKET");
    /// How often the socket is tried while SPIRE is not there
    "spire.retry" SPIRE_RETRY ValueKind::Interval, default("1s");
    /// Directory of a bootstrap identity (`enlist ca bootstrap`), used until this host has an identity of its own
    "bootstrap.dir" BOOTSTRAP_DIR ValueKind::Path;
    /// How often expiry, disk space and the names in the hosts file are checked
    "check_interval" CHECK_INTERVAL ValueKind::Interval, default("60s");
    /// End with exit code 3 when the identity is revoked, instead of trying again every five minutes
    "exit_on_revoked" EXIT_ON_REVOKED ValueKind::Flag, default("false");
    /// Serve metrics on this address and port
    "metrics_listen" METRICS_LISTEN ValueKind::Loopback;
    /// Write metrics to this file, each time all at once
    "metrics_textfile" METRICS_TEXTFILE ValueKind::Path;
    /// What the metrics' names begin with; with the layout `gpuaas` it is `gpuaas_node_agent_` unless set
    "metrics_prefix" METRICS_PREFIX ValueKind::Prefix, default("enlist_agent_");
    /// A command with its arguments, run after each renewal; killed after 30 s, and its failure is only logged. See "Storage in memory" for what it reads there
    "on_renew" ON_RENEW ValueKind::Command;
    /// A command with its arguments, run when this host has another configuration; killed after 30 s, and its failure is only logged. See "Storage in memory" for what it reads there
    "on_config" ON_CONFIG ValueKind::Command;
    /// The hosts file
    "hosts_file" HOSTS_FILE ValueKind::Path, default("/etc/hosts");
    /// Names that are kept in the hosts file; see "Host names and directories"
    "hosts" HOSTS ValueKind::Hosts;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_a_value_of_its_kind() {
        for key in KEYS {
            let complaint = key.default_value().and_then(|(_, value)| key.kind.complaint(&value));
            assert_eq!(complaint, None, "{}", key.name);
        }
    }
}
