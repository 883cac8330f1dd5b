//! The documents' own variables, which mean the same as ours. Ours win.

use super::keys;

/// Where the token may be, strongest first.
pub const TOKENS: [&str; 4] =
    ["ENLIST_AGENT_TOKEN", "PLFM_ENROLLMENT_TOKEN", "TASKRUN_BOOTSTRAP_TOKEN", "GPUAAS_ENROLLMENT_TOKEN"];

const ALIASES: &[(&str, &str)] = &[
    (keys::SERVER, "GPUAAS_API_URL"),
    (keys::CA_FILE, "GPUAAS_CA_BUNDLE_PATH"),
    (keys::TERMINAL_URL, "GPUAAS_TERMINAL_API_URL"),
    (keys::FILES_NODE_CA, "GPUAAS_NODE_CERT_CA_BUNDLE_PATH"),
    (keys::FILES_CERT, "GPUAAS_CERT_PATH"),
    (keys::FILES_KEY, "GPUAAS_KEY_PATH"),
    (keys::DIAGNOSTIC_PATH, "GPUAAS_DIAGNOSTIC_PATH"),
    (keys::RECOVERY_URL, "GPUAAS_RECOVERY_API_URL"),
    (keys::RECOVERY_CA_FILE, "GPUAAS_RECOVERY_CA_BUNDLE_PATH"),
];

/// What a document calls this key.
pub fn of(key: &str) -> Option<&'static str> {
    ALIASES.iter().find(|(ours, _)| *ours == key).map(|(_, theirs)| *theirs)
}
