//! The configuration of this host: what the control plane last said, kept for when it is away, and shown to others.

use api::agent::Config;
use zeroize::Zeroizing;

use super::core::AgentCore;
use super::hook::{Hook, HookInput};
use crate::clock;
use crate::code::AgentCode;
use crate::config::keys;
use crate::status::Status;
use crate::store::host_config::{self, HostConfig};

pub struct HostConfiguration {
    current: Option<HostConfig>,
    hook: Hook,
    /// It is not on disk yet.
    unsaved: bool,
}

impl HostConfiguration {
    /// With what an earlier process kept for this node.
    pub fn new(core: &mut AgentCore, on_config: Option<Vec<String>>) -> Self {
        let current = host_config::load(core.path(), core.identity.node_id().unwrap_or_default());
        // Others may have changed what they read, or a crash came before it was made.
        if let Some(config) = &current
            && let Err(error) = host_config::show(core.path(), config)
        {
            core.not_written("the configuration could not be written", &error);
        }
        let path = core.path().to_owned();
        let document = move || host_config::shown(&path).map(Zeroizing::new);
        let input = core.dir.memory().map(|_| Box::new(document) as HookInput);
        Self { current, hook: Hook::start(keys::ON_CONFIG, on_config, input), unsaved: false }
    }

    /// Up to which change this host knows its configuration; 0 if it has none.
    pub fn sequence(&self) -> u64 {
        self.current.as_ref().map_or(0, HostConfig::sequence)
    }

    /// The control plane says what the configuration is now.
    pub fn adopt(&mut self, core: &mut AgentCore, wire: &Config) {
        let node = core.identity.node_id().unwrap_or_default();
        let config = match HostConfig::of(wire, node, clock::now().to_string()) {
            Ok(config) => config,
            Err(reason) => {
                let what = format!("the configuration is not kept: {reason}");
                return core.reporting.log(AgentCode::AnswerInvalid, &what);
            }
        };
        if self.current.as_ref().is_some_and(|current| current.is_same(&config)) {
            return;
        }
        tracing::info!(
            vcluster = config.vcluster().unwrap_or("none, so the domain's default configuration"),
            sequence = config.sequence(),
            "configuration changed"
        );
        self.current = Some(config);
        self.unsaved = true;
        self.save(core);
        self.hook.run();
    }

    /// Writes what could not be written before. It holds all the same.
    pub fn save(&mut self, core: &mut AgentCore) {
        let Some(config) = self.current.as_ref().filter(|_| self.unsaved) else { return };
        match core.ballast.rescue(|| host_config::keep(core.path(), config)) {
            Ok(()) => self.unsaved = false,
            Err(error) => core.not_written("the configuration could not be written", &error),
        }
    }

    pub fn status(&self, connected: bool, status: &mut Status) {
        status.show_config(self.current.as_ref(), !connected);
    }
}
