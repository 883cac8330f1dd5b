//! What this replica knows of the hosts that are connected: live streams, presence, evidence, overlays.

pub mod alert_changes;
pub mod configs;
pub mod denied;
pub mod evidence;
pub mod live;
pub mod news;
pub mod overlays;
pub mod presence;
pub mod recovery_token;
pub mod sessions;
pub mod subscription;

use configs::Configs;
use denied::DeniedSightings;
use lifecycle::names::Timestamp;
use news::FleetNews;
use overlays::Overlays;
use presence::Presence;

/// What this process remembers of hosts beyond the registry.
pub struct Fleet {
    pub presence: Presence,
    pub denied: DeniedSightings,
    pub overlays: Overlays,
    pub configs: Configs,
    pub news: FleetNews,
    /// Hosts that spoke earlier spoke to nobody: silence is counted from here.
    pub listening_since: Timestamp,
}

impl Fleet {
    pub fn new(listening_since: Timestamp) -> Self {
        Self {
            presence: Presence::default(),
            denied: DeniedSightings::default(),
            overlays: Overlays::default(),
            configs: Configs::default(),
            news: FleetNews::default(),
            listening_since,
        }
    }
}
