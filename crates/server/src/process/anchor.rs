//! The anchor: the newest signed checkpoint, in a file or at a URL outside of the data directory. A whole data directory that was
//! put back from an older copy is consistent in itself; only something that was not put back with it can tell.

mod place;
mod queue;

pub use place::AnchorPlace;
pub use queue::AnchorQueue;

use crate::process::app::App;
use crate::process::config::{AuditConfig, ConfigMistake, ConfigMistakes};
use crate::process::datadir::DataDir;
use journal::audit::chain;
use journal::{Journal, View, checkpoint_message};
use lifecycle::names::{ClusterId, Fingerprint};
use pki::sign::AuditKey;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What the file or the answer to a GET holds, as JSON. Signed as the checkpoints in the trail are.
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
        "the data directory ends at line {seq} of the audit trail, but its anchor {place} was written at line {anchored}: an \
         older copy was put back"
    )]
    Behind { place: String, seq: u64, anchored: u64 },
    #[error(
        "line {seq} of the audit trail is not the one that the anchor {place} was written at: this is another history of the \
         same domain"
    )]
    Forked { place: String, seq: u64 },
    #[error("the anchor {place} is of another domain (cluster {cluster})")]
    OtherDomain { place: String, cluster: ClusterId },
    #[error("the anchor {0} is missing, but this data directory has had one")]
    Missing(String),
    #[error("this data directory has had an anchor, but none is configured")]
    NotConfigured,
    #[error("the anchor {place} cannot be used: {why}")]
    Unusable { place: String, why: String },
    #[error("the anchor {place} cannot be read: {why}")]
    Unreachable { place: String, why: String },
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
            | TrailAnchorError::Unreachable { .. }
            | TrailAnchorError::NotWritable { .. } => false,
        }
    }

    /// Whether `--accept-rollback` starts all the same. An anchor that cannot be read could not be written either, and every token
    /// would be void for nothing.
    pub fn is_acceptable(&self) -> bool {
        !matches!(self, TrailAnchorError::Unreachable { .. })
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
            TrailAnchorError::Unreachable { .. } => {
                "see that the anchor's server answers a GET of this control plane ([audit] anchor, anchor_ca_file and \
                 anchor_bearer_file, or --anchor), then start again; if it is lost for good, configure another anchor or \
                 none, and `enlist server run --accept-rollback` starts without comparing, records that, and voids every \
                 enrollment token, recovery token and repair bundle"
            }
            TrailAnchorError::NotWritable { .. } => {
                "of a file: create the anchor's directory, and let the control plane's user write to it (a systemd unit with \
                 ReadWritePaths must name it); of a URL: see that its server takes a PUT of this control plane"
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
            | TrailAnchorError::Unreachable { .. }
            | TrailAnchorError::NotWritable { .. } => None,
        }
    }
}

/// An anchor that is put back together with the directory tells nothing, and one that cannot be written is noticed before
/// anything is changed.
pub fn check_place(dir: &DataDir, audit: &AuditConfig) -> Result<(), ConfigMistakes> {
    let Some(AnchorPlace::File(path)) = &audit.anchor else { return Ok(()) };
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
pub async fn check(audit: &AuditConfig, journal: &Journal) -> Result<(), TrailAnchorError> {
    let had = journal.last_checkpoint().anchored;
    let Some(anchor) = &audit.anchor else {
        return if had { Err(TrailAnchorError::NotConfigured) } else { Ok(()) };
    };
    let place = anchor.to_string();
    let Some(text) = anchor.read(audit).await? else {
        return if had { Err(TrailAnchorError::Missing(place)) } else { Ok(()) };
    };
    let anchored: AnchoredCheckpoint = serde_json::from_slice(&text).map_err(|error| {
        TrailAnchorError::Unusable { place: place.clone(), why: format!("it is no anchor: {error}") }
    })?;
    compare(place, &anchored, journal)
}

fn compare(place: String, anchored: &AnchoredCheckpoint, journal: &Journal) -> Result<(), TrailAnchorError> {
    let view = journal.view();
    let (Some(domain), Some(signer)) = (&view.state.domain, &view.state.audit_signer) else {
        return Err(TrailAnchorError::Unusable { place, why: "the domain is not initialized".to_owned() });
    };
    if domain.cluster != anchored.cluster_id {
        return Err(TrailAnchorError::OtherDomain { place, cluster: anchored.cluster_id });
    }
    let mut head = [0; 32];
    let signature = hex::decode(&anchored.signature).unwrap_or_default();
    let signed = hex::decode_to_slice(&anchored.head, &mut head).is_ok() && {
        let message = checkpoint_message(&domain.cluster, anchored.seq, &Fingerprint::new(head));
        pki::sign::verify_audit(&signer.certificate, &message, &signature)
    };
    if !signed {
        return Err(TrailAnchorError::Unusable { place, why: "its signature is not valid".to_owned() });
    }
    if view.audit.seq < anchored.seq {
        return Err(TrailAnchorError::Behind { place, seq: view.audit.seq, anchored: anchored.seq });
    }
    // A line that was lost for good is recorded as a gap; the log, which is authenticated, has come past it.
    let line = journal.audit().list(anchored.seq.saturating_sub(1), 1);
    let line =
        line.map_err(|error| TrailAnchorError::Unusable { place: place.clone(), why: error.to_string() })?;
    let hash = line.first().and_then(|line| chain::read(line, anchored.seq).ok()).map(|(_, hash)| hash);
    match hash {
        Some(hash) if hash != Fingerprint::new(head) => {
            Err(TrailAnchorError::Forked { place, seq: anchored.seq })
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

/// Writes how far log and trail have come to the anchor, and then in the data directory that there is an anchor; says why the anchor
/// was not written. A start and a stop wait for this, no longer than the limit.
pub async fn write_now(app: &App, view: &View, limit: Duration) -> Result<(), String> {
    let Some(anchor) = &app.config.audit.anchor else {
        keep_in_directory(app, view, false).await;
        return Ok(());
    };
    let written = match compose(&app.ca.keys.audit, view) {
        Ok(text) => {
            let written = tokio::time::timeout(limit, anchor.write(&app.config.audit, text)).await;
            written.unwrap_or_else(|_| Err(format!("it took longer than {} s", limit.as_secs())))
        }
        Err(why) => Err(why),
    };
    if let Err(why) = &written {
        tracing::error!(%anchor, error = why, "the anchor of the audit trail was not written");
        app.metrics.anchor_failed();
    }
    let had = app.journal.last_checkpoint().anchored;
    keep_in_directory(app, view, had || written.is_ok()).await;
    written
}

/// Has the same written by the anchor's own task, so that no commit and no housekeeping waits for the anchor's server.
pub async fn write_soon(app: &App, view: &View) {
    let is_anchored = app.config.audit.anchor.is_some();
    if is_anchored {
        match compose(&app.ca.keys.audit, view) {
            Ok(text) => app.anchor_queue.put(text),
            Err(why) => {
                tracing::error!(error = why, "the anchor of the audit trail was not written");
                app.metrics.anchor_failed();
            }
        }
    }
    // The start has written the anchor.
    keep_in_directory(app, view, is_anchored).await;
}

async fn keep_in_directory(app: &App, view: &View, anchored: bool) {
    if let Err(error) = app.journal.keep_checkpoint(view, anchored).await {
        tracing::error!(%error, "the last checkpoint was not kept");
    }
}
