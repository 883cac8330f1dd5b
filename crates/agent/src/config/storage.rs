//! Where the identity is kept, and which settings that rules out.

use serde::{Deserialize, Serialize};

use super::keys;
use super::layers::Layers;
use crate::fault::Mistake;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyStorage {
    #[default]
    Disk,
    /// Nothing secret or confidential goes to a disk.
    Memory,
}

/// Links on a disk cannot lead into memory that is mounted nowhere.
const LINKS: [&str; 6] = [
    keys::LAYOUT,
    keys::FILES_CERT,
    keys::FILES_KEY,
    keys::FILES_CA,
    keys::FILES_NODE_ISSUERS,
    keys::FILES_NODE_CA,
];

pub(super) fn choose(layers: &Layers<'_>, mistakes: &mut Vec<Mistake>) -> KeyStorage {
    if layers.text(keys::STORAGE) != Some("memory") {
        return KeyStorage::Disk;
    }
    for key in LINKS {
        if let Some(layer) = layers.iter().find(|layer| layer.values.contains_key(key)) {
            let message = "links to the identity are not possible with storage = \"memory\": leave this out, or keep the identity on disk";
            mistakes.push(Mistake::new(format!("{} {key}", layer.name), message));
        }
    }
    KeyStorage::Memory
}
