//! Configuration for hosts that have no identity of their own yet: what all of them, or all of a vCluster, may know.

use crate::edge::authenticate::{self, ConnectionPeer};
use crate::fleet::configs::SentDocument;
use crate::http::failure::Failure;
use crate::process::app::App;
use api::agent::Config;
use api::code;
use lifecycle::names::VclusterId;
use lifecycle::registry::{BootConfig, State, boot_config};

/// For the bootstrap identity at the other end, as policy allows.
pub async fn read(app: &App, peer: Option<&ConnectionPeer>, vcluster: &str) -> Result<Config, Failure> {
    let peer = peer.ok_or_else(|| Failure::internal("a request without its connection", &""))?;
    authenticate::bootstrap(app, peer).await?;
    let view = app.view();
    let config = allowed(&view.state, vcluster)?;
    let base = SentDocument::boot(&config);
    Ok(Config {
        sequence: config.base.sequence(),
        vcluster: config.vcluster.map(ToString::to_string).unwrap_or_default(),
        base_version: base.version,
        base: base.text.as_bytes().to_vec(),
        base_checksum: base.checksum,
        ..Config::default()
    })
}

/// Empty for the domain's defaults.
pub fn allowed<'a>(state: &'a State, vcluster: &str) -> Result<BootConfig<'a>, Failure> {
    let named = match vcluster {
        "" => None,
        name => Some(
            VclusterId::parse(name)
                .map_err(|_| Failure::new(code::VCLUSTER_NOT_FOUND, "there is no vCluster of this name"))?,
        ),
    };
    Ok(boot_config(state, named.as_ref())?)
}
