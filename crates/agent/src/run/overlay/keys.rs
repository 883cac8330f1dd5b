//! The WireGuard key of this host, and the one that is to take its place.

use std::io;

use pki::wireguard::{WireguardPrivate, WireguardPublic};

use crate::overlay::Unavailable;
use crate::run::core::AgentCore;
use crate::store::wireguard;

/// What helps where a key cannot be read, and where it is none.
const UNREADABLE: &str = "let the agent's user alone read it: `chmod 600` on the file, or `enlist-agent reconcile`, which does the same; it is tried again every 10 seconds";
const SPOILT: &str = "put the key back into the file, or remove the file, restart the agent, and order a new key: `enlist node rotate --overlay ID`";

pub struct OverlayKeys {
    current: WireguardPrivate,
    next: Option<WireguardPrivate>,
}

impl OverlayKeys {
    /// Those on disk; a new one, where there is none.
    pub fn load(core: &mut AgentCore) -> Result<Self, Unavailable> {
        let unusable = |error: io::Error| {
            let remedy = if error.kind() == io::ErrorKind::InvalidData { SPOILT } else { UNREADABLE };
            Unavailable::failed(format!("the WireGuard key: {error}")).with(remedy)
        };
        let current = match wireguard::read(core.path()).map_err(unusable)? {
            Some(key) => key,
            None => {
                let key =
                    WireguardPrivate::generate().map_err(|error| Unavailable::failed(error.to_string()))?;
                if let Err(error) = core.ballast.rescue(|| wireguard::keep(core.path(), &key)) {
                    core.not_written("the WireGuard key could not be written", &error);
                    return Err(unusable(error));
                }
                key
            }
        };
        let next = match wireguard::read_next(core.path()) {
            // One that is spoilt was never claimed by a process that knows it.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => None,
            // Any other may be the one on record.
            next => next.map_err(unusable)?,
        };
        Ok(Self { current, next })
    }

    /// The one in use.
    pub fn current(&self) -> &WireguardPrivate {
        &self.current
    }

    /// The one that is to be on record.
    pub fn claimed(&self) -> &WireguardPrivate {
        self.next.as_ref().unwrap_or(&self.current)
    }

    /// The public halves of both.
    pub fn public(&self) -> Vec<WireguardPublic> {
        [Some(&self.current), self.next.as_ref()]
            .into_iter()
            .flatten()
            .filter_map(|key| key.public().ok())
            .collect()
    }

    /// Makes the next one, unless there is one already.
    pub fn begin_next(&mut self, core: &mut AgentCore) -> Result<(), String> {
        if self.next.is_some() {
            return Ok(());
        }
        let key = WireguardPrivate::generate().map_err(|error| error.to_string())?;
        if let Err(error) = core.ballast.rescue(|| wireguard::keep_next(core.path(), &key)) {
            core.not_written("a new WireGuard key could not be written", &error);
            return Err(error.to_string());
        }
        self.next = Some(key);
        Ok(())
    }

    /// What was claimed is on record: if it is the next one, it is the one in use from here on.
    pub fn recorded(&mut self, core: &AgentCore) -> io::Result<()> {
        if let Some(next) = self.next.take() {
            if let Err(error) = core.ballast.rescue(|| wireguard::promote_next(core.path())) {
                self.next = Some(next);
                return Err(error);
            }
            self.current = next;
        }
        Ok(())
    }

    /// The next one was refused. Whether there was one.
    pub fn give_up_next(&mut self, core: &mut AgentCore) -> bool {
        let given_up = self.next.take().is_some();
        if given_up && let Err(error) = wireguard::drop_next(core.path()) {
            core.not_written("a WireGuard key that was refused could not be removed", &error);
        }
        given_up
    }
}
