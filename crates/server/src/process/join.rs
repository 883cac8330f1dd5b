//! Joining a cluster: the ceremony of `server join`, and the data directory of the new replica.

use crate::ca::log_key;
use crate::cluster::local::{self, ReplicaFile};
use crate::process::clock;
use crate::process::config::{self, ConfigMistakes, ControlPlaneConfig, RawConfig};
use crate::process::datadir::{DataDir, DirError, replace};
use api::rest::cluster::{JoinClusterRequest, JoinedCluster};
use api::rest::secret::Secret;
use journal::{Journal, OpenError, Options, PeerOptions};
use lifecycle::names::ReplicaId;
use pki::agent_key::HostKey;
use pki::seal::{Kek, KekError};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What `server join` was asked for, before anything is made.
pub struct JoinRequest {
    pub dir: DataDir,
    pub config: RawConfig,
}

/// A key and a request for the certificate of it.
pub struct PreparedJoin {
    request: JoinRequest,
    config: ControlPlaneConfig,
    kek: Kek,
    key: HostKey,
}

#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    #[error(transparent)]
    Config(#[from] ConfigMistakes),
    #[error(transparent)]
    Dir(#[from] DirError),
    #[error("key-encryption key: {0}")]
    Kek(#[from] KekError),
    #[error("the key of the replica could not be made: {0}")]
    Key(String),
    #[error("the answer cannot be used: {0}")]
    Answer(String),
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// Reads the configuration and the key-encryption key, which must exist: it is the domain's.
pub fn prepare(request: JoinRequest) -> Result<PreparedJoin, JoinError> {
    let mut mistakes = Vec::new();
    let config = match config::check(&request.config, &mut mistakes) {
        Some(config) if mistakes.is_empty() => config,
        _ => return Err(ConfigMistakes(mistakes).into()),
    };
    let kek = config.kek.load()?;
    let key = HostKey::generate().map_err(|error| JoinError::Key(error.to_string()))?;
    Ok(PreparedJoin { request, config, kek, key })
}

impl PreparedJoin {
    /// What others would be told of the new replica, and would not lead them to it.
    pub fn misleading_name(&self) -> Option<String> {
        self.config.misleading_name()
    }

    /// What is sent to the replica that is asked.
    pub fn message(&self, token: Secret, version: &str) -> Result<JoinClusterRequest, JoinError> {
        let csr_pem = self.key.csr_pem().map_err(|error| JoinError::Key(error.to_string()))?;
        Ok(JoinClusterRequest {
            token,
            csr_pem,
            kek_id: self.kek.id().to_owned(),
            peer: self.config.peer_name(),
            urls: self
                .config
                .server_url()
                .into_iter()
                .chain(self.config.advertise.iter().skip(1).cloned())
                .collect(),
            version: version.to_owned(),
        })
    }

    /// Makes the data directory. The version file, written last, is what makes it one; until then nothing is left behind.
    pub async fn finish(self, joined: &JoinedCluster) -> Result<(), JoinError> {
        let dir = &self.request.dir;
        let answer = |what: &dyn std::fmt::Display| JoinError::Answer(what.to_string());
        let id = ReplicaId::parse(&joined.replica_id).map_err(|error| answer(&error))?;
        let sealed = hex::decode(&joined.log_key_sealed).map_err(|error| answer(&error))?;
        let mut traces = dir.create()?;
        {
            let _lock = dir.lock()?;
            let raw = toml::to_string(&self.request.config).unwrap_or_default();
            let text = format!(
                "# Local configuration of this control plane. Policy is replicated: see `enlist policy show`.\n{raw}"
            );
            replace(&dir.config(), text.as_bytes(), 0o640)?;
            replace(&dir.ca("bundle.pem"), joined.ca_pem.as_bytes(), 0o644)?;
            replace(&dir.keys("kek.id"), format!("{}\n", self.kek.id()).as_bytes(), 0o600)?;
            replace(&dir.keys(log_key::FILE), &sealed, 0o600)?;
            local::keep(dir, &self.kek, &joined.cert_pem, self.key.pkcs8())?;
            let others = joined.replicas.iter().filter(|replica| replica.replica_id != joined.replica_id);
            let replicas: BTreeMap<String, String> =
                others.map(|replica| (replica.replica_id.clone(), replica.peer.clone())).collect();
            let file = ReplicaFile {
                replica_id: joined.replica_id.clone(),
                cluster_id: joined.cluster_id.clone(),
                domain: joined.domain.clone(),
                replicas,
            };
            local::write(dir, &file)?;
            let key = log_key::load(dir, &[&self.kek]).map_err(|error| answer(&error))?;
            let mut options = Options::new(dir.path(), Arc::new(clock::now), key);
            options.replica = id;
            Journal::join(&options).await?;
        }
        dir.write_version()?;
        traces.keep();
        Ok(())
    }
}

/// What a replica's journal is opened with.
pub(super) fn peer_options(
    local: &local::LocalReplica,
    connector: Arc<dyn journal::PeerConnector>,
    incarnation: u64,
) -> PeerOptions {
    PeerOptions {
        cluster: local.cluster_id.clone(),
        incarnation,
        connector,
        seeds: local.seeds.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}
