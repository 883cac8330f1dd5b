//! What this replica knows of the hosts that are connected: live streams, presence, evidence, overlays.

pub mod alert_changes;
pub mod evidence;
pub mod live;
pub mod overlays;
pub mod presence;
pub mod recovery_token;
