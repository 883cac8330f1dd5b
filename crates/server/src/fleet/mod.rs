//! What this replica knows of the hosts that are connected: live streams, presence, evidence, overlays.

pub mod alert_changes;
pub mod boot_config;
pub mod configs;
pub mod denied;
pub mod everywhere;
pub mod evidence;
pub mod expected_trust;
pub mod live;
pub mod news;
pub mod overlays;
pub mod presence;
pub mod recovery_token;
pub mod sessions;
pub mod subscription;

use configs::Configs;
use denied::DeniedSightings;
use expected_trust::ExpectedTrust;
use lifecycle::names::Timestamp;
use news::FleetNews;
use overlays::Overlays;
use pki::overlay_proof::ClaimKey;
use presence::Presence;
use std::sync::atomic::{AtomicU64, Ordering};

/// What this process remembers of hosts beyond the registry.
pub struct Fleet {
    pub presence: Presence,
    pub denied: DeniedSightings,
    pub overlays: Overlays,
    pub configs: Configs,
    pub expected_trust: ExpectedTrust,
    pub news: FleetNews,
    /// Hosts that spoke earlier spoke to nobody, or under a leader before: silence is counted from here.
    listening_since: AtomicU64,
}

impl Fleet {
    pub fn new(listening_since: Timestamp, claim_key: ClaimKey) -> Self {
        Self {
            presence: Presence::default(),
            denied: DeniedSightings::default(),
            overlays: Overlays::new(claim_key),
            configs: Configs::default(),
            expected_trust: ExpectedTrust::default(),
            news: FleetNews::default(),
            listening_since: AtomicU64::new(listening_since.millis()),
        }
    }

    /// Since when silence counts: the start of this process, or since when it has had the present leader.
    pub fn listening_since(&self) -> Timestamp {
        Timestamp::from_millis(self.listening_since.load(Ordering::Acquire))
    }

    /// There is a leader since now: what hosts said before may have been written down by nobody.
    pub fn listen_from(&self, now: Timestamp) {
        self.listening_since.store(now.millis(), Ordering::Release);
    }
}
