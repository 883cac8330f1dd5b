//! What a host says of itself, made fit to be kept: bounded, without what steers a terminal, and only in words
//! that are known. What cannot be read is left out, so that the rest still counts.

use api::agent;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lifecycle::host::Class;
use lifecycle::names::{Label, Serial, Timestamp, WireguardKey, is_steering};
use lifecycle::registry::{Attempt, FreeSpace, OverlayReason, OverlayReport, OverlayState, Place, Report};

/// Characters of a text.
const TEXT: usize = 200;
/// Entries that are looked at: a host has four places.
const ENTRIES: usize = 8;

/// `newest` is the newest trust bundle that there is; a host may claim one that does not exist.
pub fn report(said: agent::Evidence, newest: u64, at: Timestamp) -> Report {
    Report {
        at,
        since: at,
        class: Class::parse(&said.class),
        detail: short(&said.detail),
        correlation_id: label(&said.correlation_id),
        cert_serial: Serial::parse(&said.cert_serial).ok(),
        cert_not_after: Timestamp::parse(&said.cert_not_after).ok(),
        bundle_version: said.bundle_version.min(newest),
        last_renewal: said.last_renewal.map(attempt),
        last_recovery: said.last_recovery.map(attempt),
        endpoint_profile_id: label(&said.endpoint_profile_id),
        diagnostic_writable: said.diagnostic_writable,
        free_space: free_space(said.free_space),
        clock_offset_ms: said.clock_offset_ms,
        disk_free_bytes: said.disk_free_bytes,
        recovery_ready: said.recovery_ready,
        drift_count: said.drift_count,
        observability_pressure: said.observability_pressure,
        overlay: said.overlay.and_then(overlay).map(Box::new),
    }
}

/// None of a host that says no state that is known.
fn overlay(said: agent::OverlayReport) -> Option<OverlayReport> {
    let state = OverlayState::parse(&said.state)?;
    let key = STANDARD.decode(&said.wireguard_public_key).ok();
    let key = key.and_then(|bytes| WireguardKey::new(bytes.try_into().ok()?).ok());
    Some(OverlayReport {
        state,
        reason: OverlayReason::parse(&said.reason).filter(|_| state == OverlayState::Unavailable),
        detail: short(&said.detail),
        interface: label(&said.interface),
        backend: label(&said.backend),
        key,
        revision: said.revision,
        peers: said.peers,
        differences: said.differences,
        oldest_handshake_s: said.oldest_handshake_s,
        recent_handshakes: said.recent_handshakes,
        received_bytes: said.received_bytes,
        sent_bytes: said.sent_bytes,
    })
}

fn attempt(said: agent::Attempt) -> Attempt {
    Attempt {
        at: Timestamp::parse(&said.at).ok(),
        ok: said.ok,
        code: label(&said.code),
        correlation_id: label(&said.correlation_id),
    }
}

/// The first word about each place.
fn free_space(said: Vec<agent::FreeSpace>) -> Vec<FreeSpace> {
    let mut found: Vec<FreeSpace> = Vec::new();
    for entry in said.into_iter().take(ENTRIES) {
        let Some(place) = Place::parse(&entry.name) else { continue };
        if !found.iter().any(|known| known.place == place) {
            let path = short(&entry.path);
            found.push(FreeSpace { place, path, available_bytes: entry.available_bytes });
        }
    }
    found
}

fn label(text: &str) -> Option<Label> {
    Label::parse(text).ok()
}

/// A host's own words, as much of them as is kept.
pub fn short(text: &str) -> String {
    text.chars().filter(|c| !is_steering(*c)).take(TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_host_says_is_bounded_and_only_in_known_words() {
        let entry = |name: &str, bytes| agent::FreeSpace {
            name: name.to_owned(),
            path: format!("/{}\u{1b}", "p".repeat(500)),
            available_bytes: bytes,
        };
        let mut free_space = vec![entry("attic", 1), entry("cert", 2), entry("cert", 3), entry("runtime", 4)];
        free_space.extend((0..10_000).map(|number| entry("task_retry", number)));
        let said = agent::Evidence {
            class: "on_fire".to_owned(),
            detail: format!("a\u{1b}[2J\u{202e}{}", "x".repeat(10_000)),
            correlation_id: "two words".to_owned(),
            cert_serial: "not hex".to_owned(),
            cert_not_after: "tomorrow".to_owned(),
            bundle_version: u64::MAX,
            last_renewal: Some(agent::Attempt { code: "c".repeat(129), ..agent::Attempt::default() }),
            endpoint_profile_id: "\n".to_owned(),
            clock_offset_ms: i64::MIN,
            free_space,
            overlay: Some(agent::OverlayReport {
                state: "unavailable".to_owned(),
                reason: "bad luck".to_owned(),
                detail: "d\u{1b}".repeat(5000),
                interface: "i".repeat(129),
                wireguard_public_key: "A".repeat(10_000),
                peers: u32::MAX,
                ..agent::OverlayReport::default()
            }),
            ..agent::Evidence::default()
        };
        let kept = report(said, 3, Timestamp::from_secs(1));
        assert_eq!((kept.class, kept.cert_serial, kept.cert_not_after), (None, None, None));
        let overlay = kept.overlay.expect("a state that is known");
        assert_eq!((overlay.state, overlay.reason), (OverlayState::Unavailable, None));
        assert_eq!((overlay.detail.len(), overlay.interface, overlay.key), (TEXT, None, None));
        let unknown =
            agent::OverlayReport { state: "sideways".to_owned(), ..agent::OverlayReport::default() };
        assert_eq!(super::overlay(unknown), None);
        assert_eq!((kept.correlation_id, kept.endpoint_profile_id, kept.bundle_version), (None, None, 3));
        assert!(kept.detail.starts_with("a[2Jx") && kept.detail.len() == TEXT);
        let attempt = Attempt { at: None, ok: false, code: None, correlation_id: None };
        assert_eq!(kept.last_renewal, Some(attempt));
        let places: Vec<_> = kept.free_space.iter().map(|free| (free.place, free.available_bytes)).collect();
        assert_eq!(places, [(Place::Cert, 2), (Place::Runtime, 4), (Place::TaskRetry, 0)]);
        assert!(kept.free_space.iter().all(|free| free.path.len() == TEXT));
    }
}
