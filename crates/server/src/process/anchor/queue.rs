//! The checkpoint that waits for the anchor's task: the newest alone, because it says all that those before it said.

use tokio::sync::watch;

pub struct AnchorQueue(watch::Sender<Option<String>>);

impl Default for AnchorQueue {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl AnchorQueue {
    /// Takes the place of one that still waits.
    pub(super) fn put(&self, text: String) {
        self.0.send_replace(Some(text));
    }

    pub fn follow(&self) -> watch::Receiver<Option<String>> {
        self.0.subscribe()
    }
}
