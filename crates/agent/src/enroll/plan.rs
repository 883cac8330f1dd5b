//! Everything that must be settled before a token or an identity leaves this host: where to, and by what the control plane
//! is recognised.

use std::path::PathBuf;

use client::url::UrlError;
use client::{ServerUrl, Trust};
use lifecycle::names::TenantId;

use super::credential::EnrollCredential;
use crate::ca_file;
use crate::code::AgentCode;
use crate::config::{AgentConfig, KeyStorage, OverlaySettings, RecoveryConfig, TrustChoice};
use crate::fault::{Fault, Mistake};
use crate::layout::Files;

#[derive(Debug)]
pub struct EnrollPlan {
    pub servers: Vec<ServerUrl>,
    pub trust: Trust,
    /// As agent.toml will say it.
    pub choice: TrustChoice,
    pub credential: EnrollCredential,
    /// The tenant that this host is of, if that was said.
    pub tenant: Option<TenantId>,
    /// Where the hardware identity is read that goes with the request, if it may be told.
    pub sysfs_root: Option<PathBuf>,
    pub files: Files,
    pub storage: KeyStorage,
    pub recovery: RecoveryConfig,
    pub overlay: OverlaySettings,
    /// As agent.toml will say it, if it was not there that it was said.
    pub underlay_given: Option<Vec<String>>,
}

/// What is kept beside an identity: where it is wanted, and what agent.toml will say.
#[derive(Debug, Clone, Copy)]
pub struct KeptSettings<'a> {
    pub files: &'a Files,
    pub storage: KeyStorage,
    pub choice: &'a TrustChoice,
    pub underlay_given: Option<&'a Vec<String>>,
    pub tenant: Option<&'a TenantId>,
}

impl EnrollPlan {
    pub fn kept(&self) -> KeptSettings<'_> {
        let Self { files, storage, choice, underlay_given, tenant, .. } = self;
        KeptSettings {
            files,
            storage: *storage,
            choice,
            underlay_given: underlay_given.as_ref(),
            tenant: tenant.as_ref(),
        }
    }

    /// The credential is read last: standard input should not be waited for if the rest is wrong.
    pub fn check(
        config: &AgentConfig,
        servers: Vec<ServerUrl>,
        credential: impl FnOnce() -> Result<EnrollCredential, Fault>,
    ) -> Result<Self, Fault> {
        let (choice, trust) = recognised(config, &servers)?;
        Ok(Self {
            servers,
            trust,
            choice,
            credential: credential()?,
            tenant: config.tenant.clone(),
            sysfs_root: config.sysfs_root.clone(),
            files: config.files.clone(),
            storage: config.storage,
            recovery: config.recovery.clone(),
            overlay: config.overlay.clone(),
            underlay_given: config.underlay_given.clone(),
        })
    }
}

/// By what the control plane is recognised. Without that, or without an address, nothing is sent.
pub fn recognised(config: &AgentConfig, servers: &[ServerUrl]) -> Result<(TrustChoice, Trust), Fault> {
    if servers.is_empty() {
        return Err(Fault::usage(
            AgentCode::ServerMissing,
            "no control plane is configured",
            "set it with --server https://HOST:PORT, ENLIST_AGENT_SERVER or `server` in agent.toml",
        ));
    }
    let choice = config.trust.clone().ok_or_else(trust_missing)?;
    let trust = trust(&choice)?;
    Ok((choice, trust))
}

/// The servers that were named; plain http is refused even if nothing would be sent there.
pub fn servers(config: &AgentConfig) -> Result<Vec<ServerUrl>, Fault> {
    let (mut servers, mut mistakes) = (Vec::new(), Vec::new());
    for text in &config.servers {
        match ServerUrl::parse(text) {
            Ok(url) => servers.push(url),
            Err(UrlError::PlainHttp(_)) => return Err(plain_http(text)),
            Err(error) => mistakes.push(Mistake::new("server", error.to_string())),
        }
    }
    if mistakes.is_empty() { Ok(servers) } else { Err(Fault::config(mistakes)) }
}

fn trust(choice: &TrustChoice) -> Result<Trust, Fault> {
    let path = match choice {
        TrustChoice::Pin(pin) => return Ok(Trust::pin(*pin)),
        TrustChoice::SystemRoots => return Ok(Trust::system_roots()),
        TrustChoice::CaFile(path) => path,
    };
    let unusable = |reason: String| {
        Fault::usage(
            AgentCode::CaFileUnusable,
            format!("{}: {reason}", path.display()),
            "name a PEM file with the control plane's CA: `enlist ca export --server` writes it",
        )
    };
    ca_file::trust(path).map_err(unusable)
}

fn trust_missing() -> Fault {
    Fault::usage(
        AgentCode::TrustMissing,
        "there is no CA file, pin or system roots to verify the control plane with; nothing was sent",
        "give --ca-file F or --ca-pin PIN (an operator has both), or --system-roots if its certificate is publicly trusted",
    )
}

fn plain_http(url: &str) -> Fault {
    Fault::usage(
        AgentCode::PlainHttpRefused,
        format!("{url} is not encrypted; nothing was sent"),
        "use the https:// address of the control plane",
    )
}
