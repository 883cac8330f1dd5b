//! The anchor: the newest signed checkpoint, in a file outside of the data directory. A whole data directory that was put
//! back from an older copy is consistent in itself; only something that was not put back with it can tell.

use crate::process::app::App;
use crate::process::config::{ConfigMistake, ConfigMistakes};
use crate::process::datadir::{DataDir, replace};
use journal::audit::chain;
use journal::{Journal, View, checkpoint_message, read_small};
use lifecycle::names::{ClusterId, Fingerprint};
use pki::sign::AuditKey;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// What the file holds, as JSON. Signed as the checkpoints in the trail are.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AnchoredCheckpoint {
    cluster_id: ClusterId,
    seq: u64,
    head: String,
    signature: String,
}

#[derive(Debug, thiserror::Error)]
pub enum TrailAnchorError {
    #[error(
        "the data directory ends at line {seq} of the audit trail, but its anchor {} was written at line {anchored}: an \
         older copy was put back", path.display()
    )]
    Behind { path: PathBuf, seq: u64, anchored: u64 },
    #[error(
        "line {seq} of the audit trail is not the one that the anchor {} was written at: this is another history of the \
         same domain", path.display()
    )]
    Forked { path: PathBuf, seq: u64 },
    #[error("the anchor {} is of another domain (cluster {cluster})", path.display())]
    OtherDomain { path: PathBuf, cluster: ClusterId },
    #[error("the anchor {} is missing, but this data directory has had one", .0.display())]
    Missing(PathBuf),
    #[error("this data directory has had an anchor, but none is configured")]
    NotConfigured,
    #[error("the anchor {} cannot be used: {why}", path.display())]
    Unusable { path: PathBuf, why: String },
    #[error("the anchor cannot be written: {why}")]
    NotWritable { why: String },
}

impl TrailAnchorError {
    /// Whether the directory was found to be older or another, and not the anchor to be wanting.
    pub fn is_rollback(&self) -> bool {
        match self {
            TrailAnchorError::Behind { .. }
            | TrailAnchorError::Forked { .. }
            | TrailAnchorError::OtherDomain { .. } => true,
            TrailAnchorError::Missing(_)
            | TrailAnchorError::NotConfigured
            | TrailAnchorError::Unusable { .. }
            | TrailAnchorError::NotWritable { .. } => false,
        }
    }

    pub fn remedy(&self) -> &'static str {
        match self {
            TrailAnchorError::Behind { .. }
            | TrailAnchorError::Forked { .. }
            | TrailAnchorError::OtherDomain { .. } => {
                "put the newest copy of the data directory back; if there is none, `enlist server run --accept-rollback` \
                 starts this one, records that, and voids every enrollment token, recovery token and repair bundle; what was \
                 revoked since the copy must be revoked again"
            }
            TrailAnchorError::Missing(_)
            | TrailAnchorError::NotConfigured
            | TrailAnchorError::Unusable { .. } => {
                "put the anchor back in its place and configure it ([audit] anchor or --anchor); if it is lost, `enlist \
                 server run --accept-rollback` starts without comparing, records that, and voids every enrollment token, \
                 recovery token and repair bundle"
            }
            TrailAnchorError::NotWritable { .. } => {
                "create the anchor's directory, and let the control plane's user write to it (a systemd unit with \
                 ReadWritePaths must name it)"
            }
        }
    }

    pub fn anchor_seq(&self) -> Option<u64> {
        match self {
            TrailAnchorError::Behind { anchored: seq, .. } | TrailAnchorError::Forked { seq, .. } => {
                Some(*seq)
            }
            TrailAnchorError::OtherDomain { .. }
            | TrailAnchorError::Missing(_)
            | TrailAnchorError::NotConfigured
            | TrailAnchorError::Unusable { .. }
            | TrailAnchorError::NotWritable { .. } => None,
        }
    }
}

/// An anchor that is put back together with the directory tells nothing, and one that cannot be written is noticed before
/// anything is changed.
pub fn check_place(dir: &DataDir, anchor: Option<&Path>) -> Result<(), ConfigMistakes> {
    let Some(path) = anchor else { return Ok(()) };
    let mistake = |why: &str| {
        ConfigMistakes(vec![ConfigMistake::new("audit.anchor", &path.display().to_string(), why)])
    };
    if dir.contains(path) {
        return Err(mistake(
            "a file outside of the data directory: whoever puts an older copy back would put it back too",
        ));
    }
    let parent = path.parent().unwrap_or(path);
    if rustix::fs::access(parent, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK).is_err() {
        return Err(mistake(
            "a file in a directory that exists and that the control plane's user may write to",
        ));
    }
    Ok(())
}

/// Whether the directory has come as far as its anchor, on the same way.
pub fn check(anchor: Option<&Path>, journal: &Journal) -> Result<(), TrailAnchorError> {
    let had = journal.last_checkpoint().anchored;
    let Some(path) = anchor else {
        return if had { Err(TrailAnchorError::NotConfigured) } else { Ok(()) };
    };
    let unusable = |why: String| TrailAnchorError::Unusable { path: path.to_owned(), why };
    let text = match read_small(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !had => return Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(TrailAnchorError::Missing(path.to_owned()));
        }
        Err(error) => return Err(unusable(error.to_string())),
    };
    let anchored: AnchoredCheckpoint =
        serde_json::from_slice(&text).map_err(|error| unusable(format!("it is no anchor: {error}")))?;
    compare(path, &anchored, journal)
}

fn compare(path: &Path, anchored: &AnchoredCheckpoint, journal: &Journal) -> Result<(), TrailAnchorError> {
    let path = path.to_owned();
    let view = journal.view();
    let (Some(domain), Some(signer)) = (&view.state.domain, &view.state.audit_signer) else {
        return Err(TrailAnchorError::Unusable { path, why: "the domain is not initialized".to_owned() });
    };
    if domain.cluster != anchored.cluster_id {
        return Err(TrailAnchorError::OtherDomain { path, cluster: anchored.cluster_id });
    }
    let mut head = [0; 32];
    let signature = hex::decode(&anchored.signature).unwrap_or_default();
    let signed = hex::decode_to_slice(&anchored.head, &mut head).is_ok() && {
        let message = checkpoint_message(&domain.cluster, anchored.seq, &Fingerprint::new(head));
        pki::sign::verify_audit(&signer.certificate, &message, &signature)
    };
    if !signed {
        return Err(TrailAnchorError::Unusable { path, why: "its signature is not valid".to_owned() });
    }
    if view.audit.seq < anchored.seq {
        return Err(TrailAnchorError::Behind { path, seq: view.audit.seq, anchored: anchored.seq });
    }
    // A line that was lost for good is recorded as a gap; the log, which is authenticated, has come past it.
    let line = journal.audit().list(anchored.seq.saturating_sub(1), 1);
    let line =
        line.map_err(|error| TrailAnchorError::Unusable { path: path.clone(), why: error.to_string() })?;
    let hash = line.first().and_then(|line| chain::read(line, anchored.seq).ok()).map(|(_, hash)| hash);
    match hash {
        Some(hash) if hash != Fingerprint::new(head) => {
            Err(TrailAnchorError::Forked { path, seq: anchored.seq })
        }
        Some(_) | None => Ok(()),
    }
}

/// What the anchor says of a view.
fn compose(key: &AuditKey, view: &View) -> Result<String, String> {
    let domain = view.state.domain.as_ref().ok_or("the domain is not initialized")?;
    let message = checkpoint_message(&domain.cluster, view.audit.seq, &view.audit.head);
    let signature = key.sign(&message).map_err(|error| error.to_string())?;
    let anchored = AnchoredCheckpoint {
        cluster_id: domain.cluster,
        seq: view.audit.seq,
        head: view.audit.head.hex(),
        signature: hex::encode(signature),
    };
    serde_json::to_string(&anchored).map_err(|error| error.to_string())
}

async fn write(path: PathBuf, text: String) -> Result<(), String> {
    let write = move || replace(&path, format!("{text}\n").as_bytes(), 0o600);
    let written = tokio::task::spawn_blocking(write).await.map_err(|error| error.to_string())?;
    written.map_err(|error| error.to_string())
}

/// Keeps how far log and trail have come, in the data directory and at the anchor; why the anchor was not written, if there
/// is one. A failure is reported and stops nothing: the next checkpoint tries again.
pub async fn keep(app: &App, view: &View) -> Result<(), String> {
    let had = app.journal.last_checkpoint().anchored;
    let mut anchored = false;
    let mut failed = None;
    if let Some(path) = app.config.audit.anchor.clone() {
        failed = match compose(&app.ca.keys.audit, view) {
            Ok(text) => write(path, text).await.err(),
            Err(error) => Some(error),
        };
        anchored = had || failed.is_none();
    }
    if let Some(error) = &failed {
        tracing::error!(%error, "the anchor of the audit trail was not written");
        app.metrics.anchor_failed();
    }
    if let Err(error) = app.journal.keep_checkpoint(view, anchored).await {
        tracing::error!(%error, "the last checkpoint was not kept");
    }
    failed.map_or(Ok(()), Err)
}
