//! By what this host is let in: a token, or, where the settings say so and there is none, what the machine is known by.

use std::io::Read;
use std::path::Path;

use super::plan::EnrollPlan;
use crate::code::AgentCode;
use crate::config::AgentConfig;
use crate::fault::Fault;
use crate::hardware::{self, SysfsIdentity};
use crate::token::SecretToken;
use crate::token_source::{self, Sources};

#[derive(Debug)]
pub enum EnrollCredential {
    Token(SecretToken),
    /// What is read under the sysfs root.
    Hardware,
}

impl EnrollCredential {
    pub fn token(&self) -> Option<&SecretToken> {
        match self {
            EnrollCredential::Token(token) => Some(token),
            EnrollCredential::Hardware => None,
        }
    }

    /// Tells it from another without keeping it. A machine stays itself when a card is added to it.
    pub fn digest(&self) -> String {
        match self {
            EnrollCredential::Token(token) => token.digest(),
            EnrollCredential::Hardware => "hardware".to_owned(),
        }
    }
}

/// A token that was named comes first, whatever the attestor: whoever gives one means it.
pub fn find(config: &AgentConfig, sources: Sources<'_>, stdin: impl Read) -> Result<EnrollCredential, Fault> {
    match &config.sysfs_root {
        Some(root) if !sources.any() => {
            tell(&hardware::read(root));
            Ok(EnrollCredential::Hardware)
        }
        Some(_) | None => token_source::find(sources, stdin).map(EnrollCredential::Token),
    }
}

fn tell(found: &SysfsIdentity) {
    if found.is_empty() {
        tracing::warn!("this machine has no hardware identity to enroll by: looked at {}", found.looked_at());
    } else {
        tracing::info!("enrolling by this machine's hardware identity: {}", found.listed());
    }
    if let Some(left_out) = found.left_out() {
        tracing::warn!("left out of the hardware identity: {left_out}");
    }
}

/// What is told of this machine beside the token, or in its place. Without a token there must be something.
pub fn identity(plan: &EnrollPlan) -> Result<Option<SysfsIdentity>, Fault> {
    let found = plan.sysfs_root.as_deref().map(hardware::read).filter(|found| !found.is_empty());
    match (&plan.credential, found) {
        (EnrollCredential::Hardware, None) => {
            Err(missing(plan.sysfs_root.as_deref().unwrap_or(Path::new("/sys"))))
        }
        (EnrollCredential::Hardware | EnrollCredential::Token(_), found) => Ok(found),
    }
}

fn missing(root: &Path) -> Fault {
    let found = hardware::read(root);
    let left_out = found.left_out().map(|why| format!("; left out: {why}")).unwrap_or_default();
    let what = format!(
        "no network card with a MAC address of its own was found, so there is nothing to know this machine by: looked at {}{left_out}",
        found.looked_at()
    );
    Fault::host(AgentCode::HardwareMissing, what, AgentCode::HardwareMissing.remedy())
}
