//! Bootstrap identities: a certificate that many hosts share, in the image that they start from, until each has an identity of its
//! own. It reads a configuration, as policy `bootstrap.read` allows, and enrolls, and does nothing else.

pub(super) mod issue;
pub(super) mod read;
pub(super) mod revoke;

use super::State;
use crate::names::{BootstrapName, Serial, Timestamp};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bootstrap {
    pub name: BootstrapName,
    /// The certificates of this name on record, the oldest first: an image is replaced while the one before still starts.
    pub serials: Vec<Serial>,
    /// Who had the last of them issued, and when.
    pub issued_by: String,
    pub issued_at: Timestamp,
    /// When the last of them ends.
    pub expires_at: Timestamp,
}

impl State {
    /// A certificate has expired and is forgotten; with the last one, so is the name.
    pub(super) fn forget_bootstrap(&mut self, name: &BootstrapName, serial: &Serial) {
        let Some(bootstrap) = self.bootstraps.get_mut(name) else { return };
        bootstrap.serials.retain(|known| known != serial);
        if bootstrap.serials.is_empty() {
            self.bootstraps.remove(name);
        }
    }
}
