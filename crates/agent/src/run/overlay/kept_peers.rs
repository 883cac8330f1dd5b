//! The peers on disk, so that the overlay comes up after a restart before the control plane was reached. What was taken away is
//! written at once, so that no restart brings it back; what only came, within a minute. Nothing is kept in memory's directory.

use std::future::pending;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::Instant;

use crate::overlay::stored::KeptOverlay;
use crate::store::wireguard;

const NEW_PEERS_WITHIN: Duration = Duration::from_secs(60);

pub struct KeptPeers {
    /// The agent's directory; none in memory.
    dir: Option<PathBuf>,
    /// When they are to be written.
    due: Option<Instant>,
    /// At most one write is under way.
    writing: Option<JoinHandle<io::Result<()>>>,
    /// There are to be none.
    forgotten: bool,
}

impl KeptPeers {
    pub fn new(dir: Option<PathBuf>) -> Self {
        Self { dir, due: None, writing: None, forgotten: true }
    }

    /// What an earlier process has left. A file that cannot be read is as good as none: the control plane says it all again.
    pub fn read(&self) -> Option<KeptOverlay> {
        let dir = self.dir.as_ref()?;
        let read = wireguard::read_peers(dir).map_err(|error| error.to_string());
        let found = read.and_then(|bytes| match bytes {
            Some(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| error.to_string()),
            None => Ok(None),
        });
        found.unwrap_or_else(|why| {
            tracing::warn!("the kept peers of the overlay are passed over: {why}");
            None
        })
    }

    /// There are others than those on disk.
    pub fn changed(&mut self, is_urgent: bool) {
        if self.dir.is_none() {
            return;
        }
        let now = Instant::now();
        let by = if is_urgent { now } else { now + NEW_PEERS_WITHIN };
        self.due = Some(self.due.map_or(by, |due| due.min(by)));
        self.forgotten = false;
    }

    /// None are kept any more: this host is in no overlay, or the identity is gone.
    pub fn forget(&mut self) {
        (self.due, self.forgotten) = (None, true);
        if self.writing.is_none() {
            self.remove();
        }
    }

    fn remove(&self) {
        if let Some(Err(error)) = self.dir.as_ref().map(|dir| wireguard::remove_peers(dir)) {
            tracing::warn!("the kept peers of the overlay could not be removed: {error}");
        }
    }

    /// When there is something to write, and nothing is being written.
    pub fn wake(&self) -> Option<Instant> {
        self.due.filter(|_| self.writing.is_none())
    }

    pub fn is_due(&self, now: Instant) -> bool {
        self.wake().is_some_and(|due| due <= now)
    }

    /// Writes these, beside the loop.
    pub fn write(&mut self, peers: KeptOverlay) {
        let Some(dir) = self.dir.clone() else { return };
        self.due = None;
        self.writing = Some(spawn_blocking(move || {
            wireguard::keep_peers(&dir, &serde_json::to_vec(&peers).map_err(io::Error::other)?)
        }));
    }

    /// Waits for the end of a write; for ever while none is under way. Nothing is lost if the waiting is given up.
    pub async fn written(&mut self) -> io::Result<()> {
        let Some(writing) = &mut self.writing else { return pending().await };
        let written = writing.await.map_err(io::Error::other).flatten();
        self.writing = None;
        if self.forgotten {
            self.remove();
        } else if written.is_err() {
            self.changed(false);
        }
        written
    }

    pub fn is_writing(&self) -> bool {
        self.writing.is_some()
    }
}
