//! What only `run` asks for.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::layers::Layers;
use super::{keys, kind};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonConfig {
    pub exit_on_revoked: bool,
    /// A command and its arguments.
    pub on_renew: Option<Vec<String>>,
    pub on_config: Option<Vec<String>>,
    pub metrics_listen: Option<SocketAddr>,
    pub metrics_textfile: Option<PathBuf>,
    pub metrics_prefix: String,
}

pub(super) fn daemon(layers: &Layers<'_>) -> DaemonConfig {
    DaemonConfig {
        exit_on_revoked: layers.is_set(keys::EXIT_ON_REVOKED),
        on_renew: layers.list(keys::ON_RENEW),
        on_config: layers.list(keys::ON_CONFIG),
        metrics_listen: layers.text(keys::METRICS_LISTEN).and_then(kind::loopback),
        metrics_textfile: layers.path(keys::METRICS_TEXTFILE),
        metrics_prefix: layers.text(keys::METRICS_PREFIX).unwrap_or_default().to_owned(),
    }
}
