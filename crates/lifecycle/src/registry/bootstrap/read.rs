//! What a bootstrap identity may read: configuration that is nobody's in particular.

use crate::names::VclusterId;
use crate::registry::{BootstrapRead, Documents, Rejection, State};

/// A configuration without what is said to a node alone.
#[derive(Debug, Clone, Copy)]
pub struct BootConfig<'a> {
    /// None is the domain's defaults.
    pub vcluster: Option<&'a VclusterId>,
    pub base: &'a Documents,
}

/// The domain's defaults, or the base configuration of the vCluster that is named, if policy allows it.
pub fn boot_config<'a>(state: &'a State, vcluster: Option<&VclusterId>) -> Result<BootConfig<'a>, Rejection> {
    let read = state.policy.bootstrap_read;
    let refused = || Rejection::BootstrapReadNotAllowed { read: read.as_str().to_owned() };
    match (read, vcluster) {
        (BootstrapRead::None, _) | (BootstrapRead::Defaults, Some(_)) => Err(refused()),
        (BootstrapRead::Defaults | BootstrapRead::Vclusters, None) => {
            Ok(BootConfig { vcluster: None, base: &state.defaults })
        }
        (BootstrapRead::Vclusters, Some(named)) => {
            let found = state.vclusters.get(named);
            let found = found.ok_or_else(|| Rejection::VclusterNotFound { vcluster: named.clone() })?;
            Ok(BootConfig { vcluster: Some(&found.id), base: &found.config })
        }
    }
}
